"""The long run of generated C: every sample, all conformance tests, random graphs, cores, networks.

``make cortexm`` is this; ``ARGS="--only tests --part 1/4"`` is a part of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import islice

import zoo
from cortexm.compare import (
    INTEGERS,
    Trial,
    conformance,
    differences,
    emulated,
    random_graphs,
    samples,
)  # fmt: skip
from cortexm.networks import EMULATED, compared
from judges.recipes import FLOAT
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm.cores import CORES

_CORES = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
_PARTS = ("samples", "tests", "floats", "graphs", "cores", "networks", "emulated")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000, help="random graphs")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--emulated", type=int, default=300, help="conformance tests on each core")
    parser.add_argument("--only", choices=_PARTS, action="append")
    parser.add_argument("--core", action="append", help="of samples, cores and networks")
    parser.add_argument("--part", default="1/1", help="2/4 is the second of four parts")
    parser.add_argument("names", nargs="*", help="of networks")
    told = parser.parse_args()
    part, parts = map(int, told.part.split("/"))
    wrong: list[str] = []

    def taken(trials: Iterator[Trial]) -> Iterator[Trial]:
        return islice(trials, part - 1, None, parts)

    def tell(what: str, result: tuple[int, Sequence[str]]) -> None:
        print(f"{what}: {result[0]} agree, {len(result[1])} do not", flush=True)
        print("\n".join(result[1][:20]), flush=True)
        wrong.extend(result[1])

    def chosen(name: str) -> bool:
        return not told.only or name in told.only

    if chosen("samples"):
        for core in told.core or ("cortex-m4", "cortex-m55", "c"):
            tell(f"samples of rules, {core}", differences(taken(samples(core, 1)), core))
    if chosen("tests"):
        tell("conformance tests", differences(taken(conformance(1))))
    if chosen("floats"):
        tell("float32 tests", differences(taken(conformance(1, recipes=FLOAT))))
    if chosen("graphs"):
        graphs = random_graphs("cortex-m4", range(told.first, told.first + told.graphs))
        tell("random graphs", differences(taken(graphs), "cortex-m4", (False,), ("-O0",)))
    absent = qemu.missing()
    if absent and (chosen("cores") or chosen("emulated")):
        print(f"no emulated cores: {absent}")
    if chosen("cores") and not absent:
        integers = list(conformance(1, recipes=INTEGERS))
        integers = integers[:: max(1, len(integers) // told.emulated)]
        for core in told.core or _CORES:
            floats = conformance(8, recipes=FLOAT) if CORES[core].has_fpu else ()
            tests = [*integers, *floats]
            tell(f"conformance tests on the emulated {core}", emulated(taken(iter(tests)), core))
    for name, engine, cores in (
        ("networks", "c", ("cortex-m4",)), ("emulated", "qemu", ("cortex-m4", "cortex-m7",
                                                                 "cortex-m55")),
    ):  # fmt: skip
        if chosen(name) and not (absent and engine == "qemu"):
            names = told.names or [n for n in (EMULATED if engine == "qemu" else zoo.ZOO)
                                   if not zoo.missing(n)]  # fmt: skip
            for core in told.core or cores:
                for line, problem in compared(names[part - 1 :: parts], core, engine):
                    tell(line, (int(not problem), [f"{line}: {problem}"] if problem else []))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The long run of generated C: every sample, many conformance tests, random graphs, the cores.

``make cortexm`` is this; ``ARGS="--graphs 10000 --only graphs"`` is a part of it.
"""

from __future__ import annotations

import argparse
from itertools import islice

from cortexm.compare import conformance, differences, emulated, random_graphs, samples
from tosaic.sim.cortexm import qemu

_CORES = ("cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=1500, help="conformance tests")
    parser.add_argument("--graphs", type=int, default=1000, help="random graphs")
    parser.add_argument("--emulated", type=int, default=300, help="conformance tests on each core")
    parser.add_argument("--only", choices=("samples", "tests", "graphs", "cores"))
    told = parser.parse_args()
    wrong: list[str] = []

    def tell(what: str, result: tuple[int, list[str]]) -> None:
        print(f"{what}: {result[0]} agree, {len(result[1])} do not", flush=True)
        print("\n".join(result[1][:20]), flush=True)
        wrong.extend(result[1])

    if told.only in (None, "samples"):
        for core in ("cortex-m4", "cortex-m55", "c"):
            tell(f"samples of rules, {core}", differences(samples(core, 1), core))
    if told.only in (None, "tests"):
        tell("conformance tests", differences(islice(conformance(1, "full"), told.tests)))
    if told.only in (None, "graphs"):
        graphs = random_graphs("cortex-m4", range(told.graphs))
        tell("random graphs", differences(graphs, "cortex-m4", (False,), ("-O0",)))
    if told.only in (None, "cores"):
        if absent := qemu.missing():
            print(f"no emulated cores: {absent}")
        else:
            for core in _CORES:
                tell(f"conformance tests on the emulated {core}",
                     emulated(islice(conformance(3), told.emulated), core))  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

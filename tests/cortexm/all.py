"""The long run of generated C: every sample, all conformance tests, random graphs, cores, networks.

``make cortexm`` is this. It runs piece by piece and keeps what each piece found in
``build/cortexm.json``, so that a run that was stopped goes on where it was, as long as no source
changes; ``ARGS="--minutes 10"`` stops by itself. The table at the end is of all pieces that ran.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from benchmarks import cortexm as counted

import zoo
from cortexm.compare import (
    INTEGERS,
    OPTIMIZED,
    QUICK,
    SANITIZED,
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

ROOT = Path(__file__).parents[2]
_SOURCES = ("src/tosaic", "tests/cortexm", "tests/judges", "tests/npu", "examples/zoo",
            "benchmarks/cortexm.py")  # fmt: skip
_PARTS = ("samples", "tests", "floats", "graphs", "cores", "networks", "emulated",
          "counted")  # fmt: skip
_CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55")
_TOGETHER = 500  # random graphs in one piece

Found = tuple[int, Sequence[str]]  # how many agree, and what is wrong with the others


@dataclass(frozen=True)
class Piece:
    """Some minutes of the run: one line of what is kept, of a row of the table."""

    part: str
    row: str
    name: str
    run: Callable[[], Found]

    @property
    def key(self) -> str:
        return f"{self.row}: {self.name}"


@cache
def _tests() -> tuple[list[Trial], list[Trial]]:
    """Conformance tests of integers and of float32."""
    return list(conformance(1, recipes=INTEGERS)), list(conformance(1, recipes=FLOAT))


def _tested(kind: int, first: int, every: int) -> Found:
    return differences(_tests()[kind][first::every])


def _on_core(core: str, count: int, first: int, every: int) -> Found:
    integers, floats = _tests()
    integers = integers[:: max(1, len(integers) // count)]
    chosen = [*integers, *(floats[::8] if CORES[core].has_fpu else ())]
    return emulated(chosen[first::every], core)


def _network(name: str, core: str, engine: str) -> Found:
    ((line, problem),) = compared([name], core, engine)
    print(f"  {line}", flush=True)
    return int(not problem), [f"{line}: {problem}"] if problem else []


def _counted(name: str, core: str, memory: str) -> Found:
    line, problem = counted.row(name, core, memory)
    print(f"  {line}", flush=True)
    return int(not problem), [f"{line}: {problem}"] if problem else []


def pieces(graphs: int, on_cores: int) -> Iterator[Piece]:
    """The whole run in its order."""
    for i in range(8):
        run = partial(_sampled, i, 8)
        yield Piece("samples", "samples of rules, m4, m55 and c, host", f"{i + 1} of 8", run)
    for i in range(8):
        yield Piece(
            "tests", "conformance tests, c, host", f"{i + 1} of 8", partial(_tested, 0, i, 8)
        )
    for i in range(2):
        run = partial(_tested, 1, i, 2)
        yield Piece("floats", "float32 conformance tests, c, host", f"{i + 1} of 2", run)
    for first in range(0, graphs, _TOGETHER):
        seeds = range(first, min(first + _TOGETHER, graphs))
        run = partial(_drawn, seeds)
        yield Piece("graphs", "random graphs, cortex-m4, host", f"{seeds[0]} to {seeds[-1]}", run)
    for core in _CORES:
        for i in range(2):
            run = partial(_on_core, core, on_cores, i, 2)
            yield Piece("cores", f"conformance tests, {core}, QEMU", f"{i + 1} of 2", run)
    for name in zoo.ZOO:
        if not zoo.missing(name):
            run = partial(_network, name, "cortex-m4", "c")
            yield Piece("networks", "networks of the zoo, cortex-m4, host", name, run)
    for core in ("cortex-m4", "cortex-m7", "cortex-m55"):
        for name in EMULATED:
            run = partial(_network, name, core, "qemu")
            yield Piece("emulated", f"networks, {core}, QEMU", name, run)
    for name, core, memory in counted.rows():
        row = "instructions, arenas, QEMU"
        run = partial(_counted, name, core, memory)
        yield Piece("counted", row, f"{name}, {core}, {memory}", run)


def _sampled(first: int, every: int) -> Found:
    cores = ("cortex-m4", "cortex-m55", "c")
    return differences(samples("cortex-m4", every, first), cores, SANITIZED, OPTIMIZED)


def _drawn(seeds: range) -> Found:
    build = OPTIMIZED if seeds.start % (10 * _TOGETHER) == 0 else QUICK
    return differences(random_graphs("cortex-m4", seeds), ("cortex-m4",), build)


def fingerprint() -> str:
    """A hash of everything that a result depends on."""
    made = hashlib.sha256()
    for name in _SOURCES:
        place = ROOT / name
        for path in sorted(place.rglob("*")) if place.is_dir() else (place,):
            if path.suffix in (".py", ".c", ".h", ".S", ".json"):
                made.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return made.hexdigest()


class Kept:
    """What finished pieces found, in a file; that of other sources is forgotten."""

    def __init__(self, path: Path, sources: str) -> None:
        self.path, self.sources = path, sources
        self.found: dict[str, tuple[int, list[str]]] = {}
        if path.exists():
            stored = json.loads(path.read_text())
            self.found = stored["found"] if stored["sources"] == sources else {}

    def add(self, key: str, found: Found) -> None:
        self.found[key] = found[0], list(found[1])
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(json.dumps({"sources": self.sources, "found": self.found}, indent=1))


def table(todo: Sequence[Piece], kept: Kept) -> tuple[list[str], bool]:
    """A line for each row, and whether all of it ran and agrees."""
    lines, good = [f"{'':<44}{'pieces':>10}{'agree':>8}{'do not':>8}"], True
    for row in dict.fromkeys(piece.row for piece in todo):
        keys = [piece.key for piece in todo if piece.row == row]
        ran = [kept.found[key] for key in keys if key in kept.found]
        agreed, wrong = sum(a for a, _ in ran), [w for _, told in ran for w in told]
        good &= len(ran) == len(keys) and not wrong
        lines.append(f"{row:<44}{f'{len(ran)} of {len(keys)}':>10}{agreed:>8,}{len(wrong):>8}")
        lines += [f"    {each}" for each in wrong[:20]]
    return lines, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=10_000, help="random graphs")
    parser.add_argument("--emulated", type=int, default=300, help="conformance tests on each core")
    parser.add_argument("--only", choices=_PARTS, action="append")
    parser.add_argument("--match", default="", help="pieces whose name has this text")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no piece after that")
    parser.add_argument("--anew", action="store_true", help="forget what was kept")
    told = parser.parse_args()
    absent, start = qemu.missing(), time.monotonic()
    todo = [
        piece for piece in pieces(told.graphs, told.emulated)
        if (not told.only or piece.part in told.only) and told.match in piece.key
        and not (absent and piece.part in ("cores", "emulated", "counted"))
    ]  # fmt: skip
    kept = Kept(ROOT / "build" / "cortexm.json", fingerprint())
    for piece in todo:
        if piece.key in kept.found and not told.anew:
            continue
        if time.monotonic() - start > 60 * told.minutes:
            break
        before = time.process_time()
        found = piece.run()
        kept.add(piece.key, found)
        took = time.process_time() - before
        print(f"{piece.key}: {found[0]} agree, {len(found[1])} do not, {took:.0f} s", flush=True)
    lines, good = table(todo, kept)
    print("\n".join(["", *lines]))
    if absent:
        print(f"no emulated cores: {absent}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""``make vgf``: conformance tests through the model converter, the file reader and Vulkan.

A test is converted, the file is read back and compared with the graph, and run: by the interpreter
of what was read (``--engine file``), or by Vulkan. What the converter refuses and what the
emulation gets wrong is listed by its kind in ``vgf_expected.csv``. Outcomes that are not on the
list are printed, and so are kinds that no longer occur, so the same command probes a newer SDK.
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from judges import recipes
from judges.cases import Case
from judges.generate import cases
from judges.kept import Kept
from judges.suite import work
from judges.verdict import System, complaint
from tosaic.errors import InvalidGraph, ToolFailed, TosaicError
from tosaic.files import flatbuffer, vgf
from tosaic.interp.model import Model
from tosaic.targets.vgf.converter import convert, find_converter
from tosaic.targets.vgf.readback import difference, known_outputs

SETS = {"integer": recipes.INTEGER, "float": recipes.FLOAT, "1.1": recipes.BEYOND_1_0}


@dataclass(frozen=True)
class Expected:
    """A kind of tests whose outcome is not right with the SDK that was measured."""

    engine: str
    outcome: str
    pattern: str  # of operator and name
    kind: str


EXPECTED = tuple(
    Expected(**row)
    for row in csv.DictReader(Path(__file__).with_name("vgf_expected.csv").read_text().splitlines())
)


def row_of(engine: str, operator: str, name: str, outcome: str) -> Expected | None:
    """The row of the table that has an outcome; None if no row has it."""
    rows = (row for row in EXPECTED if row.outcome == outcome and row.engine in (engine, "both"))
    return next((row for row in rows if re.match(row.pattern, f"{operator}/{name}")), None)


def is_expected(engine: str, operator: str, name: str, outcome: str) -> bool:
    """Whether an outcome is right, or on the list."""
    return outcome == "right" or row_of(engine, operator, name, outcome) is not None


class Refused(Exception):
    """The converter takes no such graph."""


def _file(graph: bytes) -> bytes:
    try:
        data = convert(graph, keeps=False)
    except ToolFailed as refusal:
        raise Refused(str(refusal)) from None
    lowered, held = flatbuffer.read(graph), vgf.read(data)
    # What 1.1 adds, the converter expresses in 1.0: that is judged by its results alone.
    wrong = difference(lowered, held) if lowered.version == (1, 0) else None
    if wrong is not None:
        raise InvalidGraph(f"read back, {wrong}")
    return data


def _by_reader(graph: bytes, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return Model(vgf.read(_file(graph))).run(*inputs)


def _by_vulkan(graph: bytes, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    from tosaic.sim.vulkan import Session

    return Session(_file(graph)).run(*inputs)


SYSTEMS = {"file": _by_reader, "vulkan": _by_vulkan}


def outcome(case: Case, engine: str) -> str:
    """What became of a test: right, refused by the converter, or what is wrong."""
    system = System(SYSTEMS[engine], lambda graph: None, (TosaicError,))
    try:
        found = complaint(case, system)
    except Refused as refusal:
        return f"refused: {refusal}"
    if found is not None and found.startswith("broke with Refused"):
        return found.removeprefix("broke with ").replace("Refused", "refused", 1)
    if found is None:
        return "right"
    known = known_outputs(flatbuffer.read(case.graph)) if engine == "vulkan" else []
    is_zero = any(array is not None and not np.any(array) for array in known)
    return f"{'zeros' if is_zero else 'wrong'}: {found}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make vgf ARGS=…", description=__doc__)
    parser.add_argument("--set", choices=SETS, action="append", help="only this set (repeatable)")
    parser.add_argument("--engine", choices=SYSTEMS, default="file")
    parser.add_argument("--operator", default="", help="only operators that contain this")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--every", type=int, default=1, help="every so many tests only")
    parser.add_argument("--all", action="store_true", help="print what is expected, too")
    parser.add_argument("--results", default="", help="a file that outcomes are kept in")
    options = parser.parse_args(argv)
    unexpected, kept, seen = 0, Kept(options.results), Counter[Expected | None]()
    told = subprocess.run([find_converter(), "--version"], capture_output=True, text=True).stdout
    print(f"model converter: {' '.join(told.split())}")
    for name in options.set or SETS:
        start, counts = time.monotonic(), Counter[str]()
        for recipe, operator in work(SETS[name]):
            if options.operator not in operator:
                continue
            for case in cases(recipe, operator, options.size)[:: options.every]:
                if case.status != "TOSA_VALID" and options.engine == "vulkan":
                    continue
                name_of_case = f"{options.engine}/{recipe.name}/{operator}/{case}"
                found = kept.get(name_of_case, partial(outcome, case, options.engine))
                kind = found.split(":")[0]
                counts[kind] += 1
                row = row_of(options.engine, operator, str(case), kind)
                seen[row] += 1
                if kind != "right" and row is None:
                    unexpected += 1
                    print(f"{recipe.name}/{operator}/{case} {found[:200]}", flush=True)
                elif options.all and kind != "right":
                    print(f"expected: {recipe.name}/{operator}/{case} {found[:120]}", flush=True)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        print(f"{name}: {told}, {time.monotonic() - start:.0f} s", flush=True)
    for row in EXPECTED:
        if seen[row]:
            print(f"{seen[row]:>5} {row.outcome}: {row.kind}")
    print(f"{unexpected} outcomes are not on the list of those expected")
    is_whole = not options.set and not options.operator and options.every == 1
    gone = [e.kind for e in EXPECTED if e.engine in (options.engine, "both") and not seen[e]]
    if is_whole and gone:
        print(f"no longer seen: {'; '.join(gone)}")
    return 1 if unexpected or (is_whole and gone) else 0


if __name__ == "__main__":
    sys.exit(main())

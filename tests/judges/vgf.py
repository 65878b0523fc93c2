"""``make vgf``: conformance tests through the model converter, the file reader and Vulkan.

A test is converted, the file is read back and compared with the graph, and run: by the interpreter
of what was read (``--engine file``), or by Vulkan. What the converter refuses and what the
emulation gets wrong is listed in ``EXPECTED``; whatever differs from the list is printed, so the
same command probes a newer SDK.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from judges import recipes
from judges.cases import Case
from judges.generate import cases
from judges.suite import work
from judges.verdict import System, complaint
from tosaic.errors import InvalidGraph, ToolFailed, TosaicError
from tosaic.files import flatbuffer, vgf
from tosaic.interp.model import Model
from tosaic.targets.vgf.converter import convert
from tosaic.targets.vgf.readback import difference

SETS = {"integer": recipes.INTEGER, "float": recipes.FLOAT, "1.1": recipes.BEYOND_1_0}


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
    return "right" if found is None else f"wrong: {found}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make vgf ARGS=…", description=__doc__)
    parser.add_argument("--set", choices=SETS, action="append", help="only this set (repeatable)")
    parser.add_argument("--engine", choices=SYSTEMS, default="file")
    parser.add_argument("--operator", default="", help="only operators that contain this")
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--every", type=int, default=1, help="every so many tests only")
    options = parser.parse_args(argv)
    for name in options.set or SETS:
        start, counts = time.monotonic(), Counter[str]()
        for recipe, operator in work(SETS[name]):
            if options.operator not in operator:
                continue
            for case in cases(recipe, operator, options.size)[:: options.every]:
                if case.status != "TOSA_VALID" and options.engine == "vulkan":
                    continue
                found = outcome(case, options.engine)
                kind = found.split(":")[0]
                counts[kind] += 1
                if kind != "right":
                    print(f"{recipe.name}/{operator}/{case} {found[:200]}", flush=True)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        print(f"{name}: {told}, {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""``make vgf``: conformance tests through the model converter, the file reader and Vulkan.

A test is converted, the file is read back and compared with the graph, and run: by the interpreter
of what was read (``--engine file``), or by Vulkan. What the converter refuses and what the
emulation gets wrong is listed in ``EXPECTED``; whatever differs from the list is printed, so the
same command probes a newer SDK.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

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
from tosaic.targets.vgf.converter import convert
from tosaic.targets.vgf.readback import difference, known_outputs

SETS = {"integer": recipes.INTEGER, "float": recipes.FLOAT, "1.1": recipes.BEYOND_1_0}


# What may become of tests by a pattern of operator and name, other than right, with SDK 0.11.
EXPECTED: tuple[tuple[str, str, str], ...] = (
    ("refused", r"(cond_if|while_loop)", "there is no control flow"),
    ("refused", r"const_shape/", "a shape is no output"),
    ("refused", r"(matmul_t|assert_equal_shape|row_gather)/", "not taken of TOSA 1.1"),
    ("refused", r"conv2d_.*_outf32", "convolutions of mixed floats of TOSA 1.1"),
    ("refused", r"cast/.*(_outb|_b_outf)", "casts between booleans and floats"),
    ("refused", r"(gather|scatter)/.*_b_", "booleans are not gathered or scattered"),
    ("refused", r"(argmax|cast)/.*i64", "int64 of TOSA 1.1"),
    ("refused", r"argmax/.*_i32_", "ARGMAX of int32 of TOSA 1.1"),
    ("wrong", r".*i64", "int64 becomes int32, which reading back notices"),
    ("zeros", r".*", "outputs of zeros alone are not written, on Vulkan"),
    ("wrong", r"max_pool2d(_adaptive)?/.*_f16_", "-65504 for -inf in fp16, on Vulkan"),
)


def is_expected(operator: str, name: str, kind: str) -> bool:
    """Whether an outcome is on the list."""
    known = (re.match(row, f"{operator}/{name}") for way, row, _ in EXPECTED if way == kind)
    return kind == "right" or any(known)


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
    unexpected, kept = 0, Kept(options.results)
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
                if not is_expected(operator, str(case), kind):
                    unexpected += 1
                    print(f"{recipe.name}/{operator}/{case} {found[:200]}", flush=True)
                elif options.all and kind != "right":
                    print(f"expected: {recipe.name}/{operator}/{case} {found[:120]}", flush=True)
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        print(f"{name}: {told}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{unexpected} outcomes are not on the list of those expected")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())

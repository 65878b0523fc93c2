"""Judges one system against one conformance test: the wheel's rules, the wheel's answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from judges import wheel
from judges.arrays import ARRAY_TYPE, is_rounded, is_small, to_file
from judges.cases import Case


@dataclass(frozen=True, slots=True)
class System:
    """Something that runs graphs: how to call it, and the errors by which it says no."""

    run: Callable[[bytes, Sequence[np.ndarray]], Sequence[np.ndarray]]
    verify: Callable[[bytes], None]
    refusals: tuple[type[Exception], ...]


def complaint(case: Case, system: System) -> str | None:
    """Why a system's answer to a positive test is wrong; None if it is right."""
    try:
        outputs = system.run(case.graph, case.inputs)
    except system.refusals as refusal:
        if case.status == "TOSA_UNPREDICTABLE":
            return None if str(refusal) else "refused without a sentence"
        return f"refused: {refusal}"
    except Exception as error:  # noqa: BLE001 - one broken test must not hide the others
        return f"broke with {type(error).__name__}: {error}"
    if case.status != "TOSA_VALID":
        return f"accepted what the reference model calls {case.status}"
    if len(outputs) != len(case.output_types):
        return f"gave {len(outputs)} outputs for {len(case.output_types)}"
    for number, output in enumerate(outputs):
        reason = _output_complaint(case, number, output)
        if reason:
            return f"output {number}: {reason}"
    return None


def acceptance(case: Case, system: System) -> str | None:
    """Why a system's verdict on a negative test is wrong; None if it refuses with a sentence."""
    try:
        system.verify(case.graph)
    except system.refusals as refusal:
        return None if len(str(refusal).split()) >= 3 else f"refused without a sentence: {refusal}"
    except Exception as error:  # noqa: BLE001
        return f"broke with {type(error).__name__}: {error}"
    return "accepted"


def _output_complaint(case: Case, number: int, output: np.ndarray) -> str | None:
    tosa_type = case.output_types[number]
    expected = case.expected(number)
    if output.dtype != ARRAY_TYPE[tosa_type]:
        return f"type {output.dtype} for {tosa_type}"
    if output.shape != expected.shape:
        return f"shape {output.shape} for {expected.shape}"
    rule = case.description["meta"]["compliance"]["tensors"][case.description["ofm_name"][number]]
    if rule["mode"] == "FROM_BLOCK":  # the wheel's library judges it beside its inputs only
        return _difference(output, expected.astype(output.dtype).astype(np.float64))
    if is_small(tosa_type) and (tosa_type not in ("FP8E4M3", "FP8E5M2") or "block_size" in rule):
        share = 0.5 if rule["mode"] == "ULP" else 0.0
        right = is_rounded(output, tosa_type, expected, share)
        return None if right else "not the nearest elements"
    if expected.dtype.kind in "iub" and case.is_exact:
        return _difference(output, expected)
    return None if _complies(case, number, output) else _difference(output, expected) or "not exact"


def _complies(case: Case, number: int, output: np.ndarray) -> bool:
    name = case.description["ofm_name"][number]
    given = to_file(output, case.output_types[number])
    rules = case.description["meta"]["compliance"]
    expected, bounds = case.expected(number), case.bounds(number)
    return bool(_library().verify_data(name, rules, given, expected, bounds))


@cache
def _library() -> Any:
    wheel.skip_schema_validation()
    from checker.verifier import VerifierLibrary

    return VerifierLibrary(wheel.library("verify"))


def _difference(output: np.ndarray, expected: np.ndarray) -> str | None:
    """Where two arrays first differ, for people; None if they are equal."""
    if output.dtype.kind not in "iub":
        output = output.astype(np.float64)
    wrong = np.argwhere(output != expected)
    if len(wrong) == 0:
        return None
    place = tuple(map(int, wrong[0]))
    share = f"{len(wrong)} of {expected.size} elements"
    return f"{share} differ, first at {place}: {output[place]} for {expected[place]}"

"""Inputs that a generated test avoids: extremes, where sums overflow and indices point nowhere."""

from __future__ import annotations

import zlib

import numpy as np

from judges.cases import Case
from judges.reference import ReferenceRefused, run_reference
from judges.verdict import System

_INT48 = (-(1 << 47), (1 << 47) - 1)


def extremes(case: Case) -> list[np.ndarray]:
    """Inputs of a case's types and shapes with values at and near the ends of their ranges."""
    random = np.random.default_rng(zlib.crc32(str(case).encode()))
    found = [_extreme(array, random) for array in case.inputs]
    # int4 comes in bytes, and what is no int4 is no input.
    return [np.clip(a, -7, 7) if "_i4" in str(case) and a.dtype == np.int8 else a for a in found]


def complaint(case: Case, system: System) -> tuple[str, str | None]:
    """The reference model's status for extreme inputs, and what is wrong with the system's."""
    inputs = extremes(case)
    try:
        expected = run_reference(case.graph, inputs, apart=True)
        status = "TOSA_VALID"
    except ReferenceRefused as refusal:
        expected, status = [], refusal.status
    try:
        outputs = system.run(case.graph, inputs)
    except system.refusals as refusal:
        return status, f"refused: {refusal}" if status == "TOSA_VALID" else None
    if status != "TOSA_VALID":
        return status, f"accepted what the reference model calls {status}"
    same = all(np.array_equal(a, b) for a, b in zip(outputs, expected, strict=True))
    return status, None if same else "differs"


def _extreme(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if array.dtype == np.bool_:
        return random.integers(0, 2, array.shape).astype(np.bool_)
    info = np.iinfo(array.dtype)
    low, high = _INT48 if array.dtype == np.int64 else (int(info.min), int(info.max))
    ends = np.array([low, low + 1, -1, 0, 1, high - 1, high], array.dtype)
    anything = random.integers(low, high, array.shape, array.dtype, endpoint=True)
    return np.where(random.random(array.shape) < 0.5, random.choice(ends, array.shape), anything)

"""Real factors as the multipliers and shifts of RESCALE."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array


def multipliers_and_shifts(factors: Sequence[float] | Array, bits: int) -> tuple[Array, Array]:
    """Real factors as multiplier / 2^shift, the multipliers with as many bits as there are."""
    given = np.asarray(factors, np.float64)
    if not ((given > 0) & (given < math.inf)).all():
        wrong = next(f for f in factors if not 0 < f < math.inf)
        raise Unsupported(f"values cannot be rescaled by {wrong}")
    fractions, exponents = np.frexp(given)
    multipliers = np.rint(fractions * (1 << bits)).astype(np.int64)
    is_next = multipliers == 1 << bits  # a power of two, by rounding
    shifts = bits - exponents.astype(np.int64) - is_next
    multipliers >>= is_next + np.clip(shifts - 62, 0, 62)
    if shifts.min() < 2:
        wrong = factors[int((shifts < 2).argmax())]
        raise Unsupported(f"values cannot be rescaled by {wrong}, which is too large")
    return multipliers, np.minimum(shifts, 62)


def multiplier_and_shift(factor: float, bits: int) -> tuple[int, int]:
    """The same for one factor."""
    (multiplier,), (shift,) = multipliers_and_shifts([factor], bits)
    return int(multiplier), int(shift)

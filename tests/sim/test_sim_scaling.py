"""Rounding is what fractions say it is, at every size of product."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.registers import Rounding
from tosaic.sim.ethosu.scaling import rescale, shift_right

HALF = Fraction(1, 2)


def natural(x: Fraction) -> int:
    return floor(x + HALF)


def away(x: Fraction) -> int:
    return floor(x + HALF) if x >= 0 else -floor(HALF - x)


def to_zero(x: Fraction) -> int:
    return int(x)


def twice(value: int, multiplier: int, shift: int) -> int:
    """TOSA's apply_scale_32 with double rounding, word for word."""
    extra = (1 << 30 if value >= 0 else -(1 << 30)) if shift > 31 else 0
    return (value * multiplier + (1 << shift >> 1) + extra) >> shift


@pytest.mark.parametrize(
    ("rounding", "exact"),
    [
        (Rounding.NATURAL, natural),
        (Rounding.SYMMETRIC, away),
        (Rounding.TRUNCATE_TO_ZERO, to_zero),
        (Rounding.TRUNCATE_TO_LOWER, floor),
    ],
)
def test_a_single_rounding_is_exact(rounding: Rounding, exact: object) -> None:
    rng = np.random.default_rng(1)
    assert callable(exact)
    for shift in (0, 1, 2, 7, 30, 31, 40, 62, 63):
        values = np.concatenate([rng.integers(-(1 << 31), 1 << 31, 200), np.arange(-9, 10)])
        for multiplier in (1, 3, 1 << 30, (1 << 31) - 1):
            got = rescale(values, multiplier, shift, rounding)
            wanted = [exact(Fraction(int(v) * multiplier, 1 << shift)) for v in values]
            np.testing.assert_array_equal(got, wanted)


def test_double_rounding_is_that_of_tosa() -> None:
    rng = np.random.default_rng(2)
    for shift in (2, 14, 31, 32, 33, 40, 47, 62):
        values = rng.integers(-(1 << 31), 1 << 31, 300)
        multiplier = int(rng.integers(1 << 30, 1 << 31))
        got = rescale(values, multiplier, shift, Rounding.DOUBLE_SYMMETRIC)
        np.testing.assert_array_equal(got, [twice(int(v), multiplier, shift) for v in values])


def test_products_beyond_64_bits_do_not_wrap() -> None:
    values = np.array([(1 << 47) - 1, -(1 << 47), 12345])
    got = rescale(values, (1 << 31) - 1, 40, Rounding.NATURAL)
    exact = [natural(Fraction(int(v) * ((1 << 31) - 1), 1 << 40)) for v in values]
    np.testing.assert_array_equal(got, exact)


def test_every_channel_has_its_own_scale() -> None:
    values = np.full((2, 3, 4), 1000)
    multiplier, shift = np.array([1, 3, 5, 1 << 20]), np.array([0, 1, 4, 22])
    got = rescale(values, multiplier, shift, Rounding.NATURAL)
    np.testing.assert_array_equal(got[1, 2], [1000, 1500, 313, 250])


def test_a_rounding_that_vela_never_asks_for_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="double asymmetric"):
        shift_right(np.array([5]), np.array([1]), Rounding.DOUBLE_ASYMMETRIC)

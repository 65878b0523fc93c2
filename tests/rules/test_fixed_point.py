"""Fixed-point numbers: what their operators emit computes what it says, and bounds are derived."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from judges.rules import run_both
from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Quant, Value
from tosaic.ir.int_intervals import analysed
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.spec.dtypes import I16, I32, I48
from tosaic.spec.env import Env

ENV = Env.parse("TOSA-1.0+INT+int16")
STEPS = np.arange(-32768, 32768, 13, dtype=np.int16)


def given(unit: float) -> tuple[Lowering, Fixed]:
    """int16 numbers of a unit as int32."""
    b = Lowering(ENV)
    return b, Fixed(b, b.input(I16, STEPS.shape, "x"), unit).to(I32)


def computed(b: Lowering, made: Fixed) -> Array:
    """The real numbers, by interpreter and reference model; no operator may be unpredictable."""
    b.output(made.value)
    assert not analysed(b.graph).findings
    ours, theirs = run_both(b.graph, [STEPS])
    np.testing.assert_array_equal(ours, theirs)
    real: Array = ours.astype(np.float64) * made.unit
    return real


@pytest.mark.parametrize("unit", [1.0, 2.0**-7, 0.3])
@pytest.mark.parametrize(
    ("fixed", "real", "units"),
    [
        (lambda x: x + 5.0, lambda x: x + 5.0, 0.5),
        (lambda x: 5.0 - x, lambda x: 5.0 - x, 0.5),
        (lambda x: -x, lambda x: -x, 0.0),
        (lambda x: x * 3, lambda x: x * 3, 0.0),
        (lambda x: (x << 4) >> 6, lambda x: x / 4, 0.5),
        (lambda x: x.times(x, 16 * x.unit * x.unit), lambda x: x * x, 0.5),
        (lambda x: x.scaled(x.unit * 3.7), lambda x: x, 0.5),
        (lambda x: x.to(I16, x.unit * 3.7), lambda x: x, 0.5),
        (lambda x: x.within(20 * x.unit), None, 0.0),
        (lambda x: x.abs().maximum(7.0), lambda x: np.maximum(abs(x), 7.0), 0.5),
    ],
)  # fmt: skip
def test_operators_compute_real_numbers_to_half_a_unit(
    unit: float, fixed: Callable[[Fixed], Fixed], real: Callable[[Array], Array] | None,
    units: float,
) -> None:  # fmt: skip
    b, x = given(unit)
    made, numbers = fixed(x), STEPS.astype(np.float64) * unit
    wanted = np.clip(numbers, -20 * unit, 20 * unit) if real is None else real(numbers)
    assert np.abs(computed(b, made) - wanted).max() <= (units + 1e-6) * made.unit


def test_what_is_split_off_and_what_is_left_are_the_number() -> None:
    b, x = given(1.0)
    upper, rest = x.split(5)
    whole = computed(b, (upper << 5) + rest)
    np.testing.assert_array_equal(whole, STEPS)
    assert rest.b is b


def test_units_that_no_shift_leads_to_are_refused() -> None:
    _, x = given(0.3)
    with pytest.raises(AssertionError):
        x.times(x, 0.1)
    with pytest.raises(AssertionError):
        x + x.at(0.2)
    with pytest.raises(Unsupported, match="beyond the numbers"):
        x + 1e12


def product(b: Lowering, terms: int) -> Value:
    left, right = (b.input(I16, (1, 3, terms), name) for name in ("x", "y"))
    zero = b.const([0], I16)
    return b.MATMUL(left, b.permute(right, (0, 2, 1)), zero, zero, out=I48)


@pytest.mark.parametrize("terms", [1, 2, 3, 64, 1000])
def test_as_many_bits_are_dropped_as_the_largest_sum_has_too_many(terms: int) -> None:
    """2^30 is the largest product of int16, so no more than log2 of the terms are added to 31."""
    b = Lowering(ENV)
    made, spare = Fixed(b, product(b, terms), 0.5).fitted(30)
    assert spare == (terms << 30).bit_length() - 30
    assert made.unit == 0.5 * 2.0**spare
    b.output(made.value)
    assert not analysed(b.graph).findings


def test_what_is_proved_in_real_numbers_bounds_the_integers() -> None:
    _, x = given(2.0**-4)
    assert x.most == 32768
    bounded = x.proved(-3.0, 2.5)
    assert bounded.value.limits == (-48, 40)
    assert bounded.most == 48
    assert bounded.quantized().quant == Quant(2.0**-4)

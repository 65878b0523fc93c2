"""What samples of random numbers do not reach: ties, poles, zeros, numbers in tensors, refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from judges.rules import finish, run_both
from tosaic.errors import Unsupported
from tosaic.front.registry import RULES
from tosaic.ir.graph import Quant
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16
from tosaic.spec.env import Env

FLOAT, INT, INT16 = (Env.parse(f"TOSA-1.0+{p}") for p in ("FP", "INT", "INT+int16"))


def in_float(target: str, *arrays: np.ndarray, **arguments: object) -> np.ndarray:
    """The result of a rule for float tensors, the same from interpreter and reference model."""
    b = Lowering(FLOAT)
    names = ["self", "other"][: len(arrays)]
    values = {n: b.input("f32", a.shape, n) for n, a in zip(names, arrays)}
    graph = finish(b, RULES[target].lower(b, **values, **arguments), FLOAT)
    ours, theirs = run_both(graph, list(arrays))
    np.testing.assert_array_equal(ours, theirs)
    return ours


def test_halves_are_rounded_to_the_even_side() -> None:
    x = np.array([-3.5, -2.5, -1.5, -0.5, 0.5, 0.49999997, 1.5, 2.5, 8388609.0], np.float32)
    np.testing.assert_array_equal(in_float("aten.round.default", x), np.round(x))


def test_a_floored_quotient_of_multiples_is_exact() -> None:
    y = np.arange(1, 60, dtype=np.float32).repeat(20) / np.float32(8)  # products are exact
    x = y * np.tile(np.arange(-10, 10, dtype=np.float32), 59)
    expected = torch.floor_divide(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    np.testing.assert_array_equal(in_float("aten.floor_divide.default", x, y), expected)


def test_the_sign_of_zero_is_zero() -> None:
    x = np.array([-2.0, 0.0, 3.0], np.float32)
    np.testing.assert_array_equal(in_float("aten.sign.default", x), np.sign(x))


def test_a_square_root_of_zero_is_zero() -> None:
    x = np.array([0.0, 4.0], np.float32)
    np.testing.assert_allclose(in_float("aten.sqrt.default", x), [0.0, 2.0], rtol=1e-6)


def test_a_number_beside_a_scalar_tensor_leaves_it_a_scalar() -> None:
    assert in_float("aten.add.Tensor", np.array(2.0, np.float32), other=1.5).shape == ()


def test_a_constant_of_one_element_counts_as_a_number_beside_a_quantized_tensor() -> None:
    b = Lowering(INT)
    x = b.with_quant(b.input(I8, (256,), "x"), Quant(0.5, 3))
    b.wanted = wanted = (Quant(0.25, -7), I8)
    y = RULES["aten.mul.Tensor"].lower(b, x, b.tensor(torch.tensor(0.3)))
    given = np.arange(-128, 128).astype(np.int8)
    ours, theirs = run_both(finish(b, b.requantize(y, *wanted), INT), [given])
    assert np.array_equal(ours, theirs)
    real = (given.astype(np.float64) - 3) * 0.5 * np.float32(0.3) / 0.25 - 7
    assert np.abs(ours - np.clip(np.round(real), -128, 127)).max() <= 1


def test_minus_infinity_fills_a_mask_with_the_least_integer() -> None:
    b = Lowering(INT)
    x = b.with_quant(b.input(I8, (4,), "x"), Quant(0.5, 3))
    mask = b.input("bool", (4,), "mask")
    graph = finish(b, RULES["aten.masked_fill.Scalar"].lower(b, x, mask, -np.inf), INT)
    ours, _ = run_both(graph, [np.array([1, 2, 3, 4], np.int8), np.array([1, 0, 1, 0], bool)])
    assert ours.tolist() == [-128, 2, -128, 4]


@pytest.mark.parametrize(
    ("name", "reach", "steps"),
    [("sigmoid", 8, 1), ("sigmoid", 20, 2), ("tanh", 8, 2), ("tanh", 20, 10), ("gelu", 8, 1),
     ("silu", 20, 1), ("hardswish", 8, 1), ("hardswish", 20, 12), ("erf", 3, 1), ("exp", 8, 3)],
)  # fmt: skip
def test_all_int16_inputs_of_a_curve_are_near_it(name: str, reach: float, steps: int) -> None:
    """The steps are measured: kinks and strong bends between nodes cost them."""
    given = np.arange(-32768, 32768).astype(np.int16)
    scale = reach / 32767
    rule, overload = RULES[f"aten.{name}.default"], getattr(torch.ops.aten, name).default
    real = overload(torch.from_numpy(given * np.float64(scale))).numpy()
    b = Lowering(INT16)
    x = b.with_quant(b.input(I16, given.shape, "x"), Quant(scale))
    b.wanted = Quant(np.abs(real).max() / 32767), I16
    graph = finish(b, rule.lower(b, x), INT16)
    ours, theirs = run_both(graph, [given])
    assert np.array_equal(ours, theirs)
    ideal = np.clip(np.round(real / b.wanted[0].scale), -32768, 32767)
    assert np.abs(ours - ideal).max() <= steps


def test_a_function_that_int16_tables_cannot_follow_is_refused() -> None:
    b = Lowering(INT16)
    x = b.with_quant(b.input(I16, (4,), "x"), Quant(40 / 32767))
    b.wanted = Quant(4 / 32767), I16
    with pytest.raises(Unsupported, match=r"5 tables of 513 int16 entries are \d+ steps off"):
        RULES["aten.tan.default"].lower(b, x)


@pytest.mark.parametrize(
    ("name", "reach", "most", "steps"),
    [("log", 6.0, 3.5, 12), ("rsqrt", 6.0, 3.3, 13), ("asin", 1.5, 2.4, 10),
     ("acosh", 7.0, 3.0, 12), ("reciprocal", 6.0, 5.0, 20), ("hardshrink", 6.0, 6.0, 2),
     ("erfinv", 1.4, 2.0, 9)],
)  # fmt: skip
def test_where_one_int16_table_is_coarse_a_few_are_near(
    name: str, reach: float, most: float, steps: int
) -> None:
    """Beside a pole, a jump and the end of a domain; the steps are measured."""
    given = np.arange(-32768, 32768).astype(np.int16)
    x = torch.from_numpy(given * np.float64(reach / 32767))
    real = getattr(torch.ops.aten, name).default(x).numpy()
    b = Lowering(INT16)
    value = b.with_quant(b.input(I16, given.shape, "x"), Quant(reach / 32767))
    b.wanted = Quant(most / 32767), I16
    ours, theirs = run_both(
        finish(b, RULES[f"aten.{name}.default"].lower(b, value), INT16), [given]
    )
    assert np.array_equal(ours, theirs)
    ideal = real / (most / 32767)
    inside = np.abs(np.nan_to_num(ideal, nan=np.inf)) <= 32767
    beside = np.abs(x.numpy() - np.round(2 * x.numpy()) / 2)  # where a jump is, it counts itself
    inside &= beside > reach / 32767 / 2
    assert inside.sum() > 8000
    assert np.abs(ours - ideal)[inside].max() <= steps


def test_a_float_tensor_beside_a_quantized_one_is_refused() -> None:
    b = Lowering(INT)
    x = b.with_quant(b.input(I8, (4,), "x"), Quant(0.5, 3))
    with pytest.raises(Unsupported, match="must be quantized too"):
        RULES["aten.add.Tensor"].lower(b, x, b.input("f32", (4,), "y"))

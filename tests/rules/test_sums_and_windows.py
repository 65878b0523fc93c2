"""Products, windows and grids beyond what samples can say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from judges.rules import (
    bias_constant,
    called,
    dequantized,
    finish,
    quantized,
    range_quant,
    run_both,
    weight_constant,
)
from tosaic.errors import Unsupported
from tosaic.ir.graph import Graph, Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16, I32, DType
from tosaic.spec.env import Env

FLOAT = Env.parse("TOSA-1.0+FP")
INTEGERS = {I8: Env.parse("TOSA-1.0+INT"), I16: Env.parse("TOSA-1.0+INT+int16")}


def _values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 4 - 2


def _within_one_step(
    b: Lowering, result: Value, expected: torch.Tensor, inputs: list[np.ndarray], kind: DType
) -> Graph:
    quant = range_quant(expected, kind)
    graph = finish(b, b.requantize(result, quant, kind), INTEGERS[kind])
    ours, theirs = run_both(graph, inputs)
    assert np.array_equal(ours, theirs)
    ideal = quantized(expected, quant, kind).astype(np.int64)
    assert len(np.unique(ideal)) > 20
    assert np.abs(ours.astype(np.int64) - ideal).max() <= 1
    return graph


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize(
    ("target", "shape", "weights", "arguments", "function"),
    [
        ("aten.conv1d.default", (1, 4, 9), (6, 4, 3), ([1], [1]), F.conv1d),
        ("aten.conv2d.default", (1, 4, 6, 5), (6, 4, 3, 3), ([1, 1], [1, 1]), F.conv2d),
        ("aten.conv2d.default", (1, 4, 6, 5), (8, 1, 3, 3), ([1], [1], [1], 4), F.conv2d),
        ("aten.conv2d.default", (1, 4, 6, 5), (6, 2, 3, 3), ([1], [1], [1], 2), F.conv2d),
        ("aten.linear.default", (2, 5, 16), (8, 16), (), F.linear),
    ],
)
def test_sums_that_nothing_is_wanted_of_stay_sums(
    target: str, shape: Any, weights: Any, arguments: Any, function: Any, kind: DType
) -> None:
    b, x = Lowering(INTEGERS[kind]), _values(*shape)
    quant = range_quant(x, kind)
    value, q = b.with_quant(b.input(kind, shape, "x"), quant), quantized(x, quant, kind)
    weight, real = weight_constant(b, _values(*weights, seed=1))
    bias, offset = bias_constant(b, _values(weights[0], seed=2), quant, weight, kind)
    sums = called(b, target, value, weight, bias, *arguments)
    assert sums.dtype is I32
    expected = function(dequantized(q, quant), real, offset, *arguments)
    _within_one_step(b, sums, expected, [q], kind)


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("target", ["aten.mm.default", "aten.matmul.default"])
def test_a_product_with_constant_weights_is_a_convolution(target: str, kind: DType) -> None:
    b, x = Lowering(INTEGERS[kind]), _values(5, 12)
    quant = range_quant(x, kind)
    value, q = b.with_quant(b.input(kind, (5, 12), "x"), quant), quantized(x, quant, kind)
    weight, real = weight_constant(b, _values(12, 7, seed=1), axis=1)
    expected = dequantized(q, quant) @ real
    graph = _within_one_step(b, called(b, target, value, weight), expected, [q], kind)
    assert "CONV2D" in [op.name for op in graph.ops]


def test_a_weight_with_a_zero_point_keeps_it() -> None:
    b, x = Lowering(INTEGERS[I8]), _values(4, 12)
    quant, levels = range_quant(x, I8), torch.arange(-60, 60, dtype=torch.int8).reshape(10, 12)
    value, q = b.with_quant(b.input(I8, (4, 12), "x"), quant), quantized(x, quant, I8)
    weight = b.tensor(levels, Quant(0.02, 11))
    expected = dequantized(q, quant) @ ((levels.double() - 11) * 0.02).T
    _within_one_step(b, called(b, "aten.linear.default", value, weight), expected, [q], I8)


def test_int16_with_a_zero_point_is_refused() -> None:
    b = Lowering(INTEGERS[I16])
    value = b.with_quant(b.input(I16, (1, 12), "x"), Quant(0.01, 3))
    weight, _ = weight_constant(b, _values(4, 12))
    with pytest.raises(Unsupported, match="input_zp must be 0"):
        called(b, "aten.linear.default", value, weight)


@pytest.mark.parametrize("axes", [1, 2])
def test_a_transposed_convolution_by_its_core_name(axes: int) -> None:
    b = Lowering(FLOAT)
    x, w, bias = _values(1, 4, *(5,) * axes), _values(4, 3, *(3,) * axes, seed=1), _values(6)
    rest = ([2] * axes, [1] * axes, [1] * axes, True, [1] * axes, 2)
    value = b.input("f32", tuple(x.shape), "x")
    made = called(b, "aten.convolution.default", value, b.tensor(w), b.tensor(bias), *rest)
    expected = torch.ops.aten.convolution.default(x, w, bias, *rest).numpy()
    for result in run_both(finish(b, made, FLOAT), [x.numpy()]):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kernel", "stride"), [(2, 1), (4, 2), (5, 3)])
def test_transposed_convolutions_that_cut_more_than_the_kernel_adds(
    kernel: int, stride: int
) -> None:
    x, w = _values(1, 2, 9, 9), _values(2, 3, kernel, kernel)
    rest = [None, [stride], [kernel]]
    b = Lowering(FLOAT)
    value = b.input("f32", tuple(x.shape), "x")
    made = called(b, "aten.conv_transpose2d.input", value, b.tensor(w), *rest)
    expected = torch.ops.aten.conv_transpose2d.input(x, w, *rest).numpy()
    for result in run_both(finish(b, made, FLOAT), [x.numpy()]):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "shapes", "arguments", "sentence"),
    [
        ("aten.convolution.default", ((1, 2, 3, 3, 3), (2, 2, 2, 2, 2)),
         (None, [1], [0], [1], True, [0], 1), "no transposed convolution over three axes"),
        ("aten.adaptive_avg_pool2d.default", ((1, 2, 40, 40),), ([23, 17],), "uneven windows"),
        ("aten.upsample_bilinear2d.vec", ((1, 2, 900, 3),),
         (None, False, [1.41421356, 1.0]), "scale factor 1.41421356"),
        ("aten.batch_norm.default", ((1, 2, 3),), (None, None, None, None, True, 0.1, 1e-5, False),
         "training mode"),
    ],
)  # fmt: skip
def test_what_tosa_cannot_say_is_refused_with_a_sentence(
    target: str, shapes: Any, arguments: Any, sentence: str
) -> None:
    b = Lowering(FLOAT)
    first, *weights = shapes
    values = [b.input("f32", first, "x"), *(b.tensor(_values(*shape)) for shape in weights)]
    with pytest.raises(Unsupported, match=sentence):
        called(b, target, *values, *arguments)


@pytest.mark.parametrize("times", [2, 4, 8])
def test_whole_nearest_scales_have_the_form_that_an_npu_takes(times: int) -> None:
    """Half pixels: scale (2k, 2), offset 1 - k, border k - 1 (facts/vela-forms.md, RESIZE)."""
    b = Lowering(INTEGERS[I8])
    x = b.with_quant(b.input(I8, (1, 3, 5, 6), "x"), Quant(0.1, 3))
    called(b, "aten.upsample_nearest2d.vec", x, None, [float(times)] * 2)
    (op,) = [op for op in b.graph.ops if op.name == "RESIZE"]
    scale, offset, border = (v.const.array.tolist() for v in op.ins[1:])
    assert scale == [2 * times, 2] * 2
    assert offset == [1 - times] * 2
    assert border == [times - 1] * 2


@pytest.mark.parametrize("sizes", [[7, 15], [6, 6], [3, 4]])
def test_nearest_pixels_of_any_fraction_are_one_resize(sizes: list[int]) -> None:
    b = Lowering(FLOAT)
    called(b, "aten.upsample_nearest2d.vec", b.input("f32", (1, 3, 4, 5), "x"), sizes, None)
    assert [op.name for op in b.graph.ops] == ["TRANSPOSE", "RESIZE", "TRANSPOSE"]


def test_long_sums_of_int16_do_not_leave_int32() -> None:
    b, x = Lowering(INTEGERS[I16]), _values(40, 2048).abs()
    quant = range_quant(x, I16)
    value, q = b.with_quant(b.input(I16, (40, 2048), "x"), quant), quantized(x, quant, I16)
    weight, real = weight_constant(b, _values(8, 2048, seed=1).abs() + 1)
    expected = dequantized(q, quant) @ real.T
    assert float((expected / quant.scale).max()) / max(weight.quant.scale) > 2**31
    _within_one_step(b, called(b, "aten.linear.default", value, weight), expected, [q], I16)


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("wanted", [True, False], ids=["settled", "sums"])
def test_batch_norm_takes_factors_of_any_sign_and_size(kind: DType, wanted: bool) -> None:
    b, x = Lowering(INTEGERS[kind]), _values(2, 5, 6, 4)
    gamma, beta = torch.tensor([1.5, -0.7, 0.0, 1e-6, -0.02]), torch.tensor([0.3, -1, 0.8, -2, 1])
    mean, var = _values(5, seed=3), _values(5, seed=4).abs() + 0.1
    quant = range_quant(x, kind)
    value, q = b.with_quant(b.input(kind, tuple(x.shape), "x"), quant), quantized(x, quant, kind)
    parameters = [p.double() for p in (mean, var, gamma, beta)]
    expected = F.batch_norm(dequantized(q, quant), *parameters)
    b.wanted = (range_quant(expected, kind), kind) if wanted else None
    constants = [b.tensor(t) for t in (gamma, beta, mean, var)]
    y = called(b, "aten.batch_norm.default", value, *constants, False, 0.1, 1e-5, False)
    _within_one_step(b, y, expected, [q], kind)

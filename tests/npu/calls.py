"""Steps of the hunt that are ATen calls, lowered by Tosaic's own rules.

A call reads quantized values of the graph and constants; its result gets the scale that its real
numbers need, which PyTorch computes. So the graphs have the very forms that a compile has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tosaic.rules  # noqa: F401  (registers them)
from npu.maker import Maker
from tosaic.errors import Unsupported
from tosaic.front.registry import RULES
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.mask import Mask
from tosaic.spec.dtypes import BOOL, I8, I16, I32

Call = Callable[[Maker, Value], Value]


def quantized(m: Maker, x: Value) -> Value:
    """The value with a meaning: a random scale where it has none."""
    if x.dtype not in (I8, I16):
        raise Unsupported("no quantized value")
    if x.quant is None:
        zero = m.size(-20, 20) if x.dtype is I8 else 0
        x.quant = Quant(float(2.0 ** m.rng.uniform(-7, -3)) / (1 if x.dtype is I8 else 128), zero)
    if isinstance(x.quant, Mask):
        raise Unsupported("a mask")
    return x


def real(m: Maker, x: Value) -> torch.Tensor:
    """The real numbers that a value stands for."""
    array = m.measure(x)
    if x.dtype is BOOL or isinstance(x.quant, Mask):
        return torch.tensor(array != 0)
    if x.quant is None:
        return torch.tensor(array)
    scale, zero = np.asarray(x.quant.scale), np.asarray(x.quant.zero_point)
    if x.quant.axis is not None:
        shape = [-1 if axis == x.quant.axis else 1 for axis in range(array.ndim)]
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return torch.tensor(scale * (array - zero))


def call(m: Maker, name: str, *given: Any, to: Any = None) -> Value:
    """An ATen call with values, constants and numbers as arguments, as a compile lowers it."""
    packet, overload = name.split(".")
    function = getattr(getattr(torch.ops.aten, packet), overload)
    rule = RULES[f"aten.{name}"]
    plain = [_plain(m, each) for each in given]
    with torch.no_grad():
        result = function(*plain)
    names = [a.name for a in function._schema.arguments]
    first = next(each for each in _values(given))
    kind = to or first.dtype
    m.b.wanted = None
    if isinstance(result, torch.Tensor) and result.dtype.is_floating_point:
        if rule.policy == "SHARED":
            m.b.wanted = (first.quant, first.dtype)
        else:
            m.b.wanted = (_parameters(m, result, kind), kind)
    made = rule.lower(m.b, **dict(zip(names, given)))
    if m.b.wanted is not None and isinstance(made, Value):
        made = m.b.requantize(made, *m.b.wanted)
    if not isinstance(made, Value):
        made = m.pick(*(each for each in made if isinstance(each, Value)))
    return made


def _values(given: Any) -> list[Value]:
    found: list[Value] = []
    for each in given:
        if isinstance(each, Value):
            found.append(each)
        elif isinstance(each, list):
            found += _values(each)
    return found


def _plain(m: Maker, given: Any) -> Any:
    if isinstance(given, Value):
        return real(m, given)
    return [_plain(m, each) for each in given] if isinstance(given, list) else given


def _parameters(m: Maker, result: torch.Tensor, kind: Any) -> Quant:
    """Scale and zero point for real numbers, often with room, now and then with too little."""
    if not result.numel() or not torch.isfinite(result).all():
        raise Unsupported("no finite numbers")
    low, high = min(float(result.min()), 0.0), max(float(result.max()), 0.0)
    span = max(high - low, 1e-4) * m.pick(1.0, 1.0, 1.3, 0.8)
    if kind is I16:
        return Quant(max(-low, high, 1e-4) / 32767)
    return Quant(span / 255, int(np.clip(round(-128 - low / (span / 255)), -128, 127)))


def weight(m: Maker, shape: tuple[int, ...], axis: int = 0) -> Value:
    """A constant of int8 with a scale for each output; some are shared by several calls."""
    known = [v for op in m.b.graph.ops for v in op.ins if v.is_const and v.dtype is I8
             and v.shape == shape and v.quant is not None and v.quant.axis == axis]  # fmt: skip
    if known and m.chance(0.4):
        return m.pick(*known)
    scales = tuple(float(s) for s in m.rng.uniform(0.002, 0.02, shape[axis]))
    array = m.weights(I8, shape) if m.chance(0.8) else np.ones(shape, np.int8)
    return m.b.const(array, I8, quant=Quant(scales, (0,) * shape[axis], axis))


def bias(m: Maker, x: Value, kernel: Value, axis: int = 0) -> Value | None:
    if m.chance(0.3):
        return None
    assert x.quant is not None
    assert kernel.quant is not None
    scales = tuple(x.quant.one_scale * s for s in kernel.quant.scale)  # type: ignore[union-attr]
    array = np.rint(m.rng.normal(0, 300, kernel.shape[axis])).astype(np.int32)
    return m.b.const(array, I32, quant=Quant(scales, (0,) * len(array), 0))


def other(m: Maker, x: Value, shape: tuple[int, ...]) -> Value:
    """Another quantized value: one of the graph, an input or a constant."""
    known = [v for op in m.b.graph.ops for v in op.outs if v.dtype is x.dtype
             and type(v.quant) is Quant and v.quant.axis is None]  # fmt: skip
    alike = [v for v in known if v.shape == shape]
    if alike and m.chance(0.6):
        return m.pick(*alike)
    sized = [v for v in known if v.type.size == math.prod(shape)]
    if sized and m.chance(0.6):
        return m.b.reshape(m.pick(*sized), shape)
    return quantized(m, m.either(x.dtype, shape))


def broadcast(m: Maker, x: Value) -> tuple[int, ...]:
    share = m.pick(0.0, 0.3, 0.6)
    shape = tuple(1 if m.chance(share) else n for n in x.shape)
    return shape[m.size(0, len(shape) - 1) :] if m.chance(0.2) and len(shape) > 1 else shape


def axis(m: Maker, x: Value) -> int:
    return m.size(0, x.type.rank - 1)


def axes(m: Maker, x: Value) -> list[int]:
    found = [n for n in range(x.type.rank) if m.chance(0.4)]
    return found or [axis(m, x)]


def need(holds: bool) -> None:
    if not holds:
        raise Unsupported("the call does not suit the value")


def curve(m: Maker, x: Value) -> Value:
    name = m.pick("sigmoid", "tanh", "relu", "gelu", "exp", "abs", "neg", "silu", "hardswish")
    return call(m, f"{name}.default", x)


def root(m: Maker, x: Value) -> Value:
    squares = call(m, "add.Tensor", call(m, "mul.Tensor", x, x), 0.01)
    return call(m, m.pick("rsqrt.default", "sqrt.default"), squares)


def softmax(m: Maker, x: Value) -> Value:
    return call(m, m.pick("softmax.int", "log_softmax.int"), x, axis(m, x))


def layer_norm(m: Maker, x: Value) -> Value:
    shape = list(x.shape[-m.size(1, min(2, x.type.rank)) :])
    need(math.prod(shape) > 1)
    scale = m.b.const(m.rng.uniform(0.5, 1.5, shape).astype(np.float32))
    shift = m.b.const(m.rng.normal(0, 0.3, shape).astype(np.float32))
    return call(m, "layer_norm.default", x, shape, scale, shift, 1e-5)


def group_norm(m: Maker, x: Value) -> Value:
    need(x.type.rank in (3, 4) and x.shape[1] > 1)
    groups = m.pick(*(n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0))
    need(x.type.size // x.shape[0] // groups > 1)
    return call(m, "group_norm.default", x, groups)


def reduced(m: Maker, x: Value) -> Value:
    name = m.pick("mean.dim", "sum.dim_IntList", "amax.default", "amin.default")
    return call(m, name, x, axes(m, x), m.chance(0.6))


def spread(m: Maker, x: Value) -> Value:
    where = axes(m, x)
    need(math.prod(x.shape[n] for n in where) > 1)
    return call(m, m.pick("var.correction", "std.correction"), x, where)


def of_two(m: Maker, x: Value) -> Value:
    y = other(m, x, broadcast(m, x))
    pair = m.pick((x, y), (y, x))
    name = m.pick("add", "sub", "mul", "mul", "maximum", "minimum", "add")
    return call(m, f"{name}.{'default' if name in ('maximum', 'minimum') else 'Tensor'}", *pair)


def quotient(m: Maker, x: Value) -> Value:
    below = call(m, "add.Tensor", call(m, "abs.default", other(m, x, broadcast(m, x))), 0.5)
    return call(m, "div.Tensor", x, below)


def with_number(m: Maker, x: Value) -> Value:
    return call(m, m.pick("add.Tensor", "mul.Tensor"), x, float(m.rng.uniform(-2, 2)))


def linear(m: Maker, x: Value) -> Value:
    kernel = weight(m, (m.size(1, 12), x.shape[-1]))
    return call(m, "linear.default", x, kernel, bias(m, x, kernel))


def matmul(m: Maker, x: Value) -> Value:
    need(x.type.rank >= 2)
    if m.chance(0.5):
        y = call(m, "transpose.int", x, -1, -2)
    else:
        y = other(m, x, (*x.shape[:-2], x.shape[-1], m.size(1, 6)))
    return call(m, "matmul.default", x, y)


def conv2d(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4)
    kernel, stride, gap = m.pick(1, 1, 3, 3, 2), m.pick(1, 1, 2, 3), m.pick(1, 1, 2)
    pad = m.size(0, kernel // 2 * gap)
    need(min(x.shape[2:]) + 2 * pad > (kernel - 1) * gap)
    groups = m.pick(1, 1, x.shape[1])
    outs = m.size(1, 10) if groups == 1 else x.shape[1] * m.pick(1, 1, 2)
    w = weight(m, (outs, x.shape[1] // groups, kernel, kernel))
    return call(m, "conv2d.default", x, w, bias(m, x, w), [stride] * 2, [pad] * 2, [gap] * 2,
                groups)  # fmt: skip


def conv1d(m: Maker, x: Value) -> Value:
    need(x.type.rank == 3)
    kernel, pad = m.pick(1, 3), m.size(0, 1)
    need(x.shape[2] + 2 * pad >= kernel)
    w = weight(m, (m.size(1, 8), x.shape[1], kernel))
    return call(m, "conv1d.default", x, w, bias(m, x, w), [1], [pad], [1], 1)


def conv3d(m: Maker, x: Value) -> Value:
    need(x.type.rank == 5 and min(x.shape[2:]) > 1)
    w = weight(m, (m.size(1, 4), x.shape[1], m.size(1, 2), 2, 2))
    return call(m, "conv3d.default", x, w, bias(m, x, w), [1] * 3, [0] * 3, [1] * 3, 1)


def conv_transpose(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4)
    kernel, stride = m.size(2, 4), m.pick(1, 2)
    w = weight(m, (x.shape[1], m.size(1, 6), kernel, kernel), 1)
    return call(m, "conv_transpose2d.input", x, w, bias(m, x, w, 1), [stride] * 2,
                [m.size(0, 1)] * 2, [0, 0], 1, [1, 1])  # fmt: skip


def pool(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4 and min(x.shape[2:]) > 1)
    size, stride = m.size(2, 3), m.size(1, 2)
    need(min(x.shape[2:]) >= size)
    if m.chance(0.5):
        return call(m, "max_pool2d.default", x, [size] * 2, [stride] * 2, [m.size(0, 1)] * 2)
    return call(m, "avg_pool2d.default", x, [size] * 2, [stride] * 2, [m.size(0, 1)] * 2)


def upsample(m: Maker, x: Value) -> Value:
    need(x.type.rank == 4)
    size = [n * 2 for n in x.shape[2:]]
    if m.chance(0.6):
        return call(m, "upsample_nearest2d.vec", x, size, None)
    return call(m, "upsample_bilinear2d.vec", x, size, m.chance(0.5), None)


def chosen(m: Maker, x: Value) -> Value:
    mask = call(m, "gt.Scalar", other(m, x, broadcast(m, x)), float(m.rng.normal(0, 0.2)))
    return call(m, "where.self", mask, x, other(m, x, x.shape), to=x.dtype)


def joined(m: Maker, x: Value) -> Value:
    where = axis(m, x)
    shape = (*x.shape[:where], m.size(1, 4), *x.shape[where + 1 :])
    parts = [
        m.b.requantize(v, x.quant, x.dtype) for v in (x, other(m, x, shape), other(m, x, x.shape))
    ]
    return call(m, "cat.default", parts[: m.size(2, 3)], where)


def piece(m: Maker, x: Value) -> Value:
    where = axis(m, x)
    need(x.shape[where] > 1)
    start = m.size(0, x.shape[where] - 1)
    end, step = m.size(start + 1, x.shape[where]), m.pick(1, 1, 1, 2)
    return call(m, "slice.Tensor", x, where, start, end, step)


def selected(m: Maker, x: Value) -> Value:
    need(x.type.rank > 1)
    where = axis(m, x)
    return call(m, "select.int", x, where, m.size(0, x.shape[where] - 1))


def permuted(m: Maker, x: Value) -> Value:
    return call(m, "permute.default", x, [int(n) for n in m.rng.permutation(x.type.rank)])


def viewed(m: Maker, x: Value) -> Value:
    shape, where = list(x.shape), axis(m, x)
    if m.chance(0.5) and where:
        shape[where - 1 : where + 1] = [shape[where - 1] * shape[where]]
    else:
        need(len(shape) < 6)
        part = m.pick(*(n for n in range(1, shape[where] + 1) if shape[where] % n == 0))
        shape[where : where + 1] = [part, shape[where] // part]
    return call(m, "view.default", x, shape)


def padded(m: Maker, x: Value) -> Value:
    sizes = [m.size(0, 2) for _ in range(2 * m.size(1, min(3, x.type.rank)))]
    need(any(sizes))
    return call(m, "constant_pad_nd.default", x, sizes, 0.0)


def repeated(m: Maker, x: Value) -> Value:
    return call(m, "repeat.default", x, [m.size(1, 3) if m.chance(0.4) else 1 for _ in x.shape])


def scanned(m: Maker, x: Value) -> Value:
    return call(m, "cumsum.default", x, axis(m, x))


def requantized(m: Maker, x: Value) -> Value:
    kind = m.pick(I8, I16)
    return m.b.requantize(x, _parameters(m, real(m, x), kind), kind)


MOVES: tuple[Call, ...] = (
    joined, joined, piece, piece, selected, permuted, permuted, viewed, viewed, viewed, padded,
    repeated,
)  # fmt: skip
OPERATORS: tuple[Call, ...] = (
    curve, curve, root, softmax, layer_norm, group_norm, reduced, reduced, spread, of_two, of_two,
    of_two, of_two, quotient, with_number, linear, linear, matmul, conv2d, conv2d, conv1d, conv3d,
    conv_transpose, pool, upsample, chosen, chosen, scanned, requantized,
)  # fmt: skip

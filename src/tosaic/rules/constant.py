"""Constant tensors, casts, and calls that return their operand."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives import data_movement as moves
from tosaic.lowering.alternatives.mask import Mask, compared, inverted, number_of
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.rules._integer_floor import whole as rounded
from tosaic.rules._operands import converted
from tosaic.rules.compare import truth
from tosaic.spec import dtypes as d

_DROPOUT = (Sample(((2, 3, 4),), (0.5, False)), Sample(((2, 3, 4),), (0.0, True)))
_SHAPES = (Sample(((2, 3, 4),)), Sample(((1, 3, 4, 4),)))


@shared(
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    samples=_SHAPES,
)
@shared("dim_order_ops._clone_dim_order.default")
def same(b: Lowering, self: Value, **memory: Any) -> Value:
    """The same numbers; where they lie in memory is none of TOSA's business."""
    return self


@shared("aten.dropout.default", "aten.feature_dropout.default", samples=_DROPOUT)
def dropout(b: Lowering, input: Value, p: float, train: bool) -> Value:
    if train and p:
        raise Unsupported("dropout in training mode is random: call eval() before exporting")
    return input


@rule("aten._assert_tensor_metadata.default", policy="NONE")
def assert_metadata(b: Lowering, **claims: Any) -> None:
    """Export has checked what this claims."""


@shared("aten.copy.default", samples=[Sample(((2, 3), (2, 3))), Sample(((2, 3, 4), (3, 1)))])
def copy(b: Lowering, self: Value, src: Value, non_blocking: bool = False) -> Value:
    """The second value, in the shape and type of the first."""
    kind = self.dtype if self.quant is None else d.F32
    return moves.expanded(b, _cast(b, src, kind), self.shape)


def _kind(dtype: torch.dtype | None, otherwise: d.DType) -> d.DType:
    found = otherwise if dtype is None else TYPES.get(dtype)
    if found is None:
        raise Unsupported(f"TOSA has no tensors of {dtype}")
    return found


def _cast(b: Lowering, x: Value, kind: d.DType) -> Value:
    """As PyTorch casts: fractions are cut off, and what is not 0 is True."""
    if isinstance(x.quant, Mask):
        return _cast_mask(b, x, kind)
    if kind.is_float if x.quant is not None else x.dtype is kind:
        return x
    if x.quant is not None and kind is d.BOOL:
        return truth(b, x)
    if x.quant is not None:
        whole = b.with_quant(_truncated(b, x, x.quant.one_scale), None)
        ends = [(end - x.quant.one_zero) * x.quant.one_scale for end in x.dtype.range]
        fits = kind.range[0] - 1 < ends[0] and ends[1] < kind.range[1] + 1
        return b.levels(whole, kind) if fits and kind is not d.I32 else converted(b, whole, kind)
    if kind.is_float and not x.dtype.is_float and b.wanted is not None:
        return _real(b, x)
    if x.dtype.is_int and kind is d.BOOL:
        zero = b.number(0, x)
        return moves.first(
            b,
            lambda: b.with_quant(b.CAST(x, out=kind), None),
            lambda: inverted(b, compared(b, "==", x, zero)),
        )
    if x.dtype.is_float8 and not kind.is_float:
        return _cast(b, converted(b, x, d.F32), kind)
    if x.dtype.is_float and kind is d.BOOL:
        return b.with_quant(b.LOGICAL_NOT(b.EQUAL(x, b.number(0, x))), None)
    if x.dtype.is_float and kind.is_int:
        whole = b.SELECT(b.GREATER_EQUAL(x, b.number(0, x)), b.FLOOR(x), b.CEIL(x))
        return b.with_quant(b.CAST(whole, out=kind), None)
    if {x.dtype, kind} == {d.F16, d.BF16}:
        return _cast(b, _cast(b, x, d.F32), kind)
    return b.with_quant(converted(b, x, kind), None)


def _real(b: Lowering, x: Value) -> Value:
    """Integers or a mask as quantized real numbers, limited to what the result can hold."""
    if x.dtype is d.BOOL:
        return b.with_quant(number_of(b, x, d.I8), Quant(1.0))
    assert b.wanted is not None
    if x.dtype is not d.I32:
        return b.with_quant(b.IDENTITY(x), Quant(1.0))
    (quant, kind), most = b.wanted, d.I32.range[1]
    reals = [(end - quant.one_zero) * quant.one_scale for end in kind.range]
    low, high = max(math.floor(reals[0]), -most), min(math.ceil(reals[1]), most)
    limited = b.MINIMUM(b.MAXIMUM(x, b.number(low, x)), b.number(high, x))
    return b.with_quant(limited, Quant(1.0))


def _truncated(b: Lowering, x: Value, scale: float) -> Value:
    """Without a fraction; multiples of whole steps have none."""
    if scale.is_integer():
        plain = x.dtype is d.I32 and scale == 1
        return b.IDENTITY(x) if plain else b.rescale(x, [scale], 0, d.I32)
    return rounded(b, x, "trunc")


def _cast_mask(b: Lowering, x: Value, kind: d.DType) -> Value:
    """A mask of int8 as itself, as the real numbers 0 and 1, or as integers."""
    if kind is d.BOOL:
        return x
    if kind.is_float:
        return b.with_quant(b.IDENTITY(x), Quant(1.0))
    return number_of(b, x, kind)


_REAL = "a quantized value stands for real numbers, of whatever float type"


@rule(
    "aten.to.dtype",
    policy="SHARED",
    samples=[
        Sample(((2, 3, 4),), (torch.float16,)),
        Sample(((2, 3, 4),), (torch.int32,), domain=(-9.0, 9.0), integers=(d.I8, d.I16)),
        Sample(((2, 3, 4),), (torch.float32,)),
        Sample(((2, 3, 4),), (torch.float32,), kinds=("bool",), integers=(d.I8, d.I16)),
        Sample(((2, 3, 4),), (torch.float16,), domain=(-9.0, 9.0), kinds=("i32",),
               integers=(d.I8, d.I16)),
    ],
    integers=(),
    why=_REAL,
)  # fmt: skip
@rule(
    "aten._to_copy.default",
    policy="SHARED",
    samples=[
        Sample(((2, 3, 4),), (), (("dtype", torch.float16),)),
        Sample(
            ((2, 3, 4),), (), (("dtype", torch.int32),), domain=(-9.0, 9.0), integers=(d.I8, d.I16)
        ),
        Sample(((2, 3, 4),)),
    ],
    integers=(),
    why=_REAL,
)
@shared("dim_order_ops._to_dim_order_copy.default", "aten.to.device", "aten.to.dtype_layout")
def to_copy(b: Lowering, self: Value, dtype: torch.dtype | None = None, **memory: Any) -> Value:
    return _cast(b, self, _kind(dtype, self.dtype))


@shared("aten.type_as.default", "aten.to.other", samples=[Sample(((2, 3), (4,)))])
def type_as(b: Lowering, self: Value, other: Value, **memory: Any) -> Value:
    return _cast(b, self, other.dtype if other.quant is None else d.F32)


def _created(name: str, b: Lowering, self: Value | None = None, **arguments: Any) -> Value:
    """A tensor that PyTorch makes of numbers; of another tensor at most shape and type count."""
    packet, overload = name.split(".")
    kept = {k: v for k, v in arguments.items() if k not in _MEMORY}
    if self is not None:
        kind = d.F32 if self.quant is not None else self.dtype
        like = torch.empty((), dtype=_TORCH[kind]).expand(self.shape)
        return b.tensor(getattr(getattr(torch.ops.aten, packet), overload)(like, **kept))
    return b.tensor(getattr(getattr(torch.ops.aten, packet), overload)(**kept))


_MEMORY = ("layout", "device", "pin_memory", "memory_format")
_TORCH = {kind: dtype for dtype, kind in TYPES.items()}
for _name in (
    "full.default", "zeros.default", "ones.default", "scalar_tensor.default", "full_like.default",
    "zeros_like.default", "ones_like.default", "new_full.default", "new_zeros.default",
    "new_ones.default", "arange.default", "arange.start", "arange.start_step", "eye.default",
    "eye.m", "linspace.default",
):  # fmt: skip
    rule(f"aten.{_name}")(partial(_created, _name))
rule("aten.empty.memory_format")(partial(_created, "zeros.default"))
rule("aten.empty_like.default")(partial(_created, "zeros_like.default"))
rule("aten.new_empty.default")(partial(_created, "new_zeros.default"))

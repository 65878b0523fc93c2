"""Comparisons, logic, and selection by a mask."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import Operand, operands
from tosaic.spec import dtypes as d

_PAIRS = (
    Sample(((2, 3, 4), (2, 3, 4))),
    Sample(((2, 3, 4), (4,))),
    Sample(((2, 1, 5), (3, 1))),
)
_EQUALS = (
    Sample(((12, 40), (40,)), whole=True),
    Sample(((3, 4, 5), (4, 1)), whole=True),
    Sample(((5, 3), (3,)), kinds=("bool", "bool")),
)
_NUMBERS = (Sample(((2, 3, 4),), (0.7,)), Sample(((4, 500),), (-1,)))  # all int8 there are
_ZERO = (Sample(((4, 20),), (0,), whole=True), Sample(((2, 3, 8),), (0.0,), whole=True))


_TURNED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}


def _is_known(x: Value) -> bool:
    """Whether it is a constant of real numbers, which a comparison takes as they are."""
    return x.quant is None and x.is_const and x.dtype.is_float


def _compare(b: Lowering, self: Value, other: Operand, sign: str) -> Value:
    if sign == "!=":
        return masks.inverted(b, _compare(b, self, other, "=="))
    if isinstance(other, Value) and other.quant is not None and _is_known(self):
        self, other, sign = other, self, _TURNED.get(sign, sign)
    if self.quant is not None and isinstance(other, Value) and _is_known(other):
        number = _number(other)
        if number is None:
            return masks.compared_with_each(b, sign, self, other)
        self, other = b.same_rank(self, other)[0], number
    if self.quant is not None and not isinstance(other, Value):
        return masks.compared_with(b, sign, self, float(other))
    if isinstance(other, Value) and is_mask(self) and is_mask(other) and sign == "==":
        return masks.inverted(b, masks.differ(b, self, other))
    return masks.compared(b, sign, *operands(b, self, other))


for _name, _sign, _tensors, _numbers in (
    ("eq", "==", _EQUALS, _ZERO),
    ("ne", "!=", _EQUALS, _ZERO),
    ("gt", ">", _PAIRS, _NUMBERS),
    ("ge", ">=", _PAIRS, _NUMBERS),
    ("lt", "<", _PAIRS, _NUMBERS),
    ("le", "<=", _PAIRS, _NUMBERS),
):
    _compared = partial(_compare, sign=_sign)
    rule(f"aten.{_name}.Tensor", policy="SHARED", samples=_tensors, masks=("self", "other"))(
        _compared
    )
    shared(f"aten.{_name}.Scalar", samples=_numbers)(_compared)


def truth(b: Lowering, x: Value) -> Value:
    """What is not zero."""
    return x if is_mask(x) else _compare(b, x, 0, "!=")


_MASKS = (
    Sample(((4, 5), (4, 5)), kinds=("bool", "bool")),
    Sample(((2, 4, 5), (4, 1)), kinds=("bool", "bool")),
)


Join = Callable[[Lowering, Value, Value], Value]  # of two masks


def _logical(b: Lowering, self: Value, other: Value, join: Join) -> Value:
    return join(b, truth(b, self), truth(b, other))


def _bitwise(b: Lowering, self: Value, other: Operand, join: Join, name: str) -> Value:
    """Beside a mask, True and False are masks too."""
    if is_mask(self) and isinstance(other, bool):
        other = masks.as_mask(b, b.const(other, d.BOOL))
    if is_mask(self) and isinstance(other, Value) and is_mask(other):
        return join(b, self, other)
    return b.op(name, *operands(b, self, other))


for _name, _join, _flag in (
    ("and", masks.both, True),
    ("or", masks.either, False),
    ("xor", masks.differ, True),
):
    _samples: tuple[Sample, ...] = (*_MASKS, Sample(((4, 5), (5,)), whole=True))
    rule(f"aten.logical_{_name}.default", samples=_samples)(partial(_logical, join=_join))
    _bits = partial(_bitwise, join=_join, name=f"BITWISE_{_name.upper()}")
    rule(f"aten.bitwise_{_name}.Tensor", policy="NONE", samples=_MASKS)(_bits)
    _samples = (Sample(((4, 5),), (_flag,), kinds=("bool",)),)
    rule(f"aten.bitwise_{_name}.Scalar", policy="NONE", samples=_samples)(_bits)


@rule(
    "aten.logical_not.default",
    samples=[Sample(((4, 5),), kinds=("bool",)), Sample(((4, 5),), whole=True)],
)
def logical_not(b: Lowering, self: Value) -> Value:
    return masks.inverted(b, truth(b, self))


@rule("aten.bitwise_not.default", policy="NONE", samples=[Sample(((4, 5),), kinds=("bool",))])
def bitwise_not(b: Lowering, self: Value) -> Value:
    return masks.inverted(b, self) if is_mask(self) else b.BITWISE_NOT(self)


@rule("aten.where.self", samples=[
    Sample(((2, 3, 4), (2, 3, 4), (2, 3, 4)), kinds=("bool",)),
    Sample(((3, 1), (2, 3, 4), (4,)), kinds=("bool",)),
    Sample(((4, 5), (1,), (4, 5)), kinds=("bool",)),
])  # fmt: skip
def where(b: Lowering, condition: Value, self: Operand, other: Operand) -> Value:
    tensors = [v for v in (self, other) if isinstance(v, Value)]
    if len(tensors) == 2 and all(map(is_mask, tensors)):
        return masks.chosen(b, condition, *(masks.as_mask(b, v) for v in tensors))
    if all(v.quant is None for v in tensors):
        return masks.chosen(b, condition, *operands(b, self, other))
    given = next(v for v in (self, other) if isinstance(v, Value) and v.quant is not None)
    assert given.quant is not None
    quant, kind = b.wanted or (given.quant, given.dtype)
    settled = [  # rounded before the choice, once
        b.requantize(v, quant, kind)
        if isinstance(v, Value) and _number(v) is None
        else b.quantized_number(_number(v) or 0.0, quant, kind, 0)
        for v in (self, other)
    ]
    return masks.chosen(b, condition, *settled)


def _number(x: Operand) -> float | None:
    """A number, or a constant that is one; None for other tensors."""
    if not isinstance(x, Value):
        return float(x)
    if x.quant is None and x.is_const and x.const is not None and x.type.size == 1:
        return float(x.const.array.reshape(-1)[0])
    return None


rule("aten.where.ScalarOther", samples=[Sample(((3, 1), (2, 3, 4)), (0.5,), kinds=("bool",))])(
    where
)
rule("aten.where.ScalarSelf", samples=[Sample(((3, 1), (2, 3, 4)), (0.5,), kinds=("bool",))])(where)


@rule(
    "aten.where.Scalar",
    samples=[Sample(((3, 4),), (0.5, -1.5), kinds=("bool",))],
)
def where_numbers(b: Lowering, condition: Value, self: float, other: float) -> Value:
    numbers = self, other
    if all(type(number) is int for number in numbers):
        return masks.chosen(b, condition, *(b.const(number, d.I32) for number in numbers))
    if b.wanted is not None:
        return masks.chosen(b, condition, *(b.quantized_number(n, *b.wanted, 0) for n in numbers))
    return masks.chosen(b, condition, *(b.const(number, d.F32) for number in numbers))


@rule("aten.masked_fill.Scalar", samples=[
    Sample(((2, 3, 4), (3, 4)), (0.5,), kinds=("", "bool")),
    Sample(((5, 6), (5, 1)), (-7,), kinds=("", "bool")),
])  # fmt: skip
def masked_fill(b: Lowering, self: Value, mask: Value, value: Operand) -> Value:
    """An infinity becomes the largest integer there is."""
    return where(b, mask, value, self)


rule("aten.masked_fill.Tensor", samples=[Sample(((4, 5), (4, 5), ()), kinds=("", "bool"))])(
    masked_fill
)

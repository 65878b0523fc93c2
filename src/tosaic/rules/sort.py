"""topk and sort along an axis.

Elements that are equal keep their order. Places are counted in the type that values are compared
in, int32 or float32, as TOSA's profiles compare no others; an index is exact in either.
"""

from __future__ import annotations

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, shared
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import first, joined
from tosaic.lowering.alternatives.mask import both, chosen, compared, inverted
from tosaic.lowering.alternatives.reduce_extreme import extreme, numbered
from tosaic.lowering.builder import Lowering
from tosaic.rules._indices import int32, small_compared
from tosaic.rules._operands import converted, scale_of
from tosaic.spec import dtypes as d

_ROUNDS = 16  # of topk, up to which they are cheaper: each looks at the whole axis once
_MOST_ROUNDS = 64
_PLACES = 1 << 15  # that int16 counts
_LONGEST = 256  # of a sort: every pair of elements is compared
_PAIRS = 1 << 18  # of all rows together, where one is longer

_TOP = [
    Sample(((4, 9),), (3,)),
    Sample(((2, 7, 3),), (2, 1, False)),
    Sample(((8, 40),), (1,)),
    Sample(((2, 48),), (2,)),
    Sample(((4, 9),), (4,), whole=True),
    Sample(((2, 24),), (20,)),
    Sample(((1, 336),), (20,)),
]
_ALL = [
    Sample(((4, 7),)),
    Sample(((5, 3),), (0, True)),
    Sample(((3, 12),), (-1, True), whole=True),
]


def _comparable(b: Lowering, x: Value) -> Value:
    """Values in a type that TOSA compares."""
    if x.quant is not None:
        return b.with_quant(b.widened(x), None)
    return converted(b, x, d.F32 if x.dtype.is_float else d.I32)


def _compared(b: Lowering, name: str, x: Value, y: Value, given: Value) -> Value:
    """Levels of quantized values are small; other integers may be any."""
    return (compared if given.quant is None else small_compared)(b, name, x, y)


def _beyond(x: Value, y: Value, sign: int) -> float:
    """A number that comes before or behind all there are: quantized ones have at most 17 bits."""
    if y.dtype.is_float:
        return sign * np.inf
    return sign * (1 << 20) if x.quant is not None else d.I32.range[sign > 0]


Found = tuple[Value, Value]  # values and places, both in the type that they were compared in


def _finished(b: Lowering, found: Found, x: Value) -> Found:
    """Values as they were given, places as indices."""
    values, places = found
    if x.quant is not None:
        values = b.requantize(b.with_quant(values, Quant(scale_of(x))), x.quant, x.dtype)
    return converted(b, values, x.dtype), int32(b, places)


def _extreme(b: Lowering, name: str, x: Value, axis: int, is_small: bool) -> Value:
    """The largest or smallest; int32 that all but its ends fit int16 have more than one form."""
    if not is_small or x.dtype is not d.I32:
        return extreme(b, name, x, axis)
    return first(
        b,
        lambda: extreme(b, name, x, axis),
        lambda: b.levels(extreme(b, name, b.levels(x, d.I16), axis)),
    )


def _rounds(b: Lowering, x: Value, k: int, axis: int, largest: bool) -> Found:
    """The best of what is left, k times, and the first place that holds it."""
    y = _comparable(b, x)
    size = x.shape[axis]
    name = "REDUCE_MAX" if largest else "REDUCE_MIN"
    places, last = numbered(b, y, axis, y.dtype), b.number(size - 1, y)
    worst = _beyond(x, y, -1 if largest else 1)
    values, indices, free = [], [], None
    left = y
    for _ in range(k):
        best = _extreme(b, name, left, axis, x.quant is not None)
        hit = _compared(b, "==", left, best, x)
        hit = hit if free is None else both(b, hit, free)
        place = _extreme(b, "REDUCE_MIN", chosen(b, hit, places, last), axis, size < _PLACES)
        other = inverted(b, small_compared(b, "==", places, place))
        free = other if free is None else both(b, free, other)
        left = chosen(b, free, left, b.number(worst, y))
        values.append(best)
        indices.append(place)
    return joined(b, values, axis), joined(b, indices, axis)


def _has_many_pairs(x: Value, axis: int) -> bool:
    size = x.shape[axis]
    return size > _LONGEST and x.type.size * size > _PAIRS


def _ranked(b: Lowering, x: Value, axis: int, descending: bool, slots: range) -> Found:
    """How many elements come before each says where it goes; ``slots`` of that order are kept."""
    size = x.shape[axis]
    if _has_many_pairs(x, axis):
        raise Unsupported(f"a sort compares every pair: {size} elements are more than {_LONGEST}")
    transposed = b.axis_last(_comparable(b, x), axis)
    rows = transposed.type.size // size
    mine = b.reshape(transposed, (rows, size, 1))
    other = b.reshape(transposed, (rows, 1, size))
    pair = (other, mine) if descending else (mine, other)
    strict, loose = _compared(b, ">", *pair, x), _compared(b, ">=", *pair, x)
    earlier = b.const(np.tril(np.ones((1, size, size), bool), -1), d.BOOL)
    before = chosen(b, earlier, loose, strict)  # [row, mine, other]
    count = chosen(b, before, b.number(1, mine), b.number(0, mine))
    goes_to = b.REDUCE_SUM(count, axis=2)  # [row, mine, 1]
    lands = small_compared(
        b, "==", goes_to, b.const(np.asarray(slots).reshape(1, 1, len(slots)), mine.dtype)
    )
    made = []
    for source in (mine, numbered(b, mine, 1, mine.dtype)):
        found = b.REDUCE_SUM(chosen(b, lands, source, b.number(0, mine)), axis=1)  # of one element
        shaped = b.reshape(found, (*transposed.shape[:-1], len(slots)))
        made.append(b.axis_back(shaped, axis))
    return made[0], made[1]


@shared("aten.topk.default", samples=_TOP)
def topk(
    b: Lowering, self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    if not self.type.rank:
        return self, b.const(0, d.I32)
    axis = dim % self.type.rank
    is_long = _has_many_pairs(self, axis)
    if k <= (_MOST_ROUNDS if is_long else _ROUNDS):
        return _finished(b, _rounds(b, self, k, axis, largest), self)
    if is_long:
        raise Unsupported(
            f"topk is lowered up to k = {_MOST_ROUNDS}, or over at most {_LONGEST} elements, "
            f"not with k = {k} over {self.shape[axis]}"
        )
    return _finished(b, _ranked(b, self, axis, largest, range(k)), self)


@shared("aten.sort.default", samples=_ALL)
@shared(
    "aten.sort.stable",
    samples=[Sample(((4, 9),), (), (("stable", True), ("descending", True)), whole=True)],
)
def sort(
    b: Lowering, self: Value, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> tuple[Value, Value]:
    if not self.type.rank:
        return self, b.const(0, d.I32)
    axis = dim % self.type.rank
    return _finished(b, _ranked(b, self, axis, descending, range(self.shape[axis])), self)


@shared("aten.argsort.default", samples=_ALL[:2])
@shared(
    "aten.argsort.stable",
    samples=[Sample(((4, 9),), (), (("stable", True), ("dim", 0)), whole=True)],
)
def argsort(
    b: Lowering, self: Value, dim: int = -1, descending: bool = False, stable: bool | None = None
) -> Value:
    return sort(b, self, dim, descending)[1]


@shared("aten.msort.default", samples=[Sample(((5, 3),))])
def msort(b: Lowering, self: Value) -> Value:
    return sort(b, self, 0)[0]


@shared("aten.kthvalue.default", samples=[Sample(((3, 9),), (4,)), Sample(((5, 3),), (2, 0, True))])
def kthvalue(
    b: Lowering, self: Value, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Value, Value]:
    if not self.type.rank:
        return self, b.const(0, d.I32)
    axis = dim % self.type.rank
    values, places = _ranked(b, self, axis, False, range(k - 1, k))
    shape = [s for i, s in enumerate(values.shape) if keepdim or i != axis]
    return _finished(b, (b.reshape(values, shape), b.reshape(places, shape)), self)


@shared("aten.median.dim", samples=[Sample(((3, 8),), (1,)), Sample(((5, 3),), (0, True))])
def median(b: Lowering, self: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the two in the middle."""
    size = self.shape[dim] if self.type.rank else 1
    return kthvalue(b, self, (size + 1) // 2, dim, keepdim)

"""Sums, means and extremes over axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule, shared
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives import mask as masks
from tosaic.lowering.alternatives.data_movement import added, first
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.alternatives.reduce_extreme import extreme, place_of_extreme
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import scale_of, times
from tosaic.rules._products import factors, meant, product, unit_of
from tosaic.rules.compare import truth
from tosaic.rules.pool import adaptive_avg_pool2d
from tosaic.spec import dtypes as d

_AXES = (
    Sample(((1, 4, 5, 6),), ([2, 3],)),
    Sample(((4, 6),), ([-1], True)),
    Sample(((2, 3, 4),), ([0],)),
    Sample(((5, 3, 4),), ([-1, 1], True)),
)
_AXIS = (Sample(((4, 6),), (-1,)), Sample(((2, 3, 4),), (1, True)), Sample(((5, 3, 4),), (0,)))
Axes = Sequence[int] | int | None


def _axes(x: Value, dim: Axes) -> list[int]:
    """The axes meant, in order; all where none is named."""
    rank = x.type.rank
    named = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return sorted({axis % rank for axis in named}) if rank else []


def _reduced(
    b: Lowering, emit: Callable[..., Value], x: Value, axes: Sequence[int], keepdim: bool
) -> Value:
    """One reduction after another; the result keeps its meaning."""
    y = x
    for axis in axes:
        made = emit(y, axis=axis)
        y = made if made.quant is not None else b.with_quant(made, x.quant)
    return _kept(b, y, axes, keepdim)


def _kept(b: Lowering, y: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Without the axes that were reduced to 1, unless they are kept."""
    return y if keepdim else b.reshape(y, [s for i, s in enumerate(y.shape) if i not in axes])


def _total(b: Lowering, x: Value, axes: list[int], keepdim: bool, count: int) -> Value:
    """The sum over axes divided by a count, which changes only what integers mean."""
    if is_mask(x) and b.wanted is None:
        x = masks.number_of(b, x, d.I32)
    elif x.dtype is d.BOOL:  # how many are true, as a real number
        x = b.with_quant(masks.number_of(b, x, d.I8), Quant(1.0))
    if x.quant is None:
        total = _reduced(b, partial(added, b), x, axes, keepdim)
        return total if count == 1 else times(b, total, 1.0 / count)
    if math.prod(x.shape[a] for a in axes) * x.dtype.range[1] * 2 >= 1 << 31:
        raise Unsupported("the sum of so many integers does not fit int32")
    wide = b.widened(x)
    total = _reduced(b, partial(added, b), wide, axes, keepdim=True)
    total.quant = Quant(scale_of(wide) / count)
    return _kept(b, b.requantized(total), axes, keepdim)  # before the reshape, where it is fused


@rule("aten.sum.dim_IntList", samples=_AXES)
def sum(
    b: Lowering, self: Value, dim: Axes = None, keepdim: bool = False, dtype: object = None
) -> Value:
    return _total(b, self, _axes(self, dim), keepdim, 1)


@rule("aten.mean.dim", samples=_AXES)
def mean(
    b: Lowering, self: Value, dim: Axes = None, keepdim: bool = False, dtype: object = None
) -> Value:
    axes = _axes(self, dim)
    count = math.prod(self.shape[a] for a in axes)
    same = self.quant is None or b.wanted == (self.quant, self.dtype)
    if axes == [2, 3] and self.type.rank == 4 and same and self.dtype is not d.I32:
        return first(
            b,
            lambda: _kept(b, adaptive_avg_pool2d(b, self, (1, 1)), axes, keepdim),
            lambda: _total(b, self, axes, keepdim, count),
        )
    return _total(b, self, axes, keepdim, count)


rule("aten.sum.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),))])(sum)
rule("aten.mean.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),))])(mean)


def _extreme(b: Lowering, self: Value, dim: Axes = None, keepdim: bool = False, *,
             name: str) -> Value:  # fmt: skip
    return _reduced(b, partial(extreme, b, name), self, _axes(self, dim), keepdim)


amax = partial(_extreme, name="REDUCE_MAX")


def _with_place(b: Lowering, self: Value, dim: int, keepdim: bool = False, *,
                name: str) -> tuple[Value, Value]:  # fmt: skip
    found = _extreme(b, self, dim, keepdim, name=name)
    return found, _place(b, self, dim, keepdim, name=name)


@shared("aten.aminmax.default", samples=[Sample(((4, 6),), (), (("dim", 1),)), Sample(((40,),))])
def aminmax(
    b: Lowering, self: Value, dim: int | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    low, high = (_extreme(b, self, dim, keepdim, name=f"REDUCE_{end}") for end in ("MIN", "MAX"))
    return low, high


_WHERE = (*_AXIS, Sample(((3, 4, 50),), (-1,)), Sample(((3, 50),), (None, True)))


def _place(b: Lowering, self: Value, dim: int | None = None, keepdim: bool = False, *,
           name: str) -> Value:  # fmt: skip
    """The first of the largest or the least, counted in int32."""
    rank, shape = self.type.rank, self.shape
    axis = 0 if dim is None or not rank else dim % rank
    if dim is None or not rank:
        shape = (self.type.size, *((1,) * (rank if keepdim else 0)))
    elif keepdim:  # the axis is taken away: another comes behind it
        shape = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    return place_of_extreme(b, b.reshape(self, shape), axis, name == "REDUCE_MAX")


for _end in ("max", "min"):
    _name = f"REDUCE_{_end.upper()}"
    shared(f"aten.a{_end}.default", samples=_AXES)(partial(_extreme, name=_name))
    shared(f"aten.{_end}.default", samples=[Sample(((2, 3, 4),)), Sample(((40,),))])(
        partial(_extreme, name=_name)
    )
    shared(f"aten.{_end}.dim", samples=_AXIS)(partial(_with_place, name=_name))
    shared(f"aten.arg{_end}.default", samples=_WHERE)(partial(_place, name=_name))


@rule("aten.prod.dim_int", samples=[*_AXIS, Sample(((3, 11),), (1,), domain=(0.6, 1.4))])
def prod(b: Lowering, self: Value, dim: Axes = None, keepdim: bool = False,
         dtype: object = None) -> Value:  # fmt: skip
    axes = _axes(self, dim)
    if self.quant is None or not axes:
        return _reduced(b, b.REDUCE_PRODUCT, self, axes, keepdim)
    given, count = factors(b, self), math.prod(self.shape[axis] for axis in axes)
    value = given.value
    for axis in axes:
        value = product(b, value, axis)
    return _kept(b, meant(b, value, (unit_of(given.unit, count),), None, count), axes, keepdim)


rule("aten.prod.default", samples=[Sample(((2, 3),))])(prod)


_MASKS = (
    Sample(((2, 12),), (0,), kinds=("bool",)),
    Sample(((4, 2, 6),), (1, True), kinds=("bool",)),
)


def _decided(
    b: Lowering, self: Value, dim: Axes = None, keepdim: bool = False, *, name: str
) -> Value:
    return _reduced(b, partial(masks.reduced, b, name), truth(b, self), _axes(self, dim), keepdim)


_LISTS = (
    Sample(((2, 12, 1),), ([0, -1],), kinds=("bool",)),
    Sample(((4, 2, 6),), ([-2], True), kinds=("bool",)),
)
_WHOLE = (Sample(((2, 3, 4),), kinds=("bool",)),)
for _name in ("any", "all"):
    _decide = partial(_decided, name=f"REDUCE_{_name.upper()}")
    rule(f"aten.{_name}.dim", samples=_MASKS)(_decide)
    rule(f"aten.{_name}.dims", samples=_LISTS)(_decide)
    rule(f"aten.{_name}.default", samples=_WHOLE)(_decide)

"""Alternatives for data movement: slices, concatenation, tiling and gather by constant indices.

Quantized values keep their parameters. A constant is moved itself, when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d

# Up to this many pieces, slices and a concatenation are cheaper than a GATHER and run everywhere.
FEW_PIECES = 16
_ENDS = 3  # pieces of an axis that is padded with its own elements on both sides
_MOST_WEIGHTS = 1 << 22  # of a product that picks elements
_LONG = 1 << 15  # elements of an axis that are added up at once where more are refused


def first(b: Lowering, *forms: Callable[[], Value]) -> Value:
    """The first of several equal expressions that is not refused; the first one's reason if all."""
    refusal: Unsupported | None = None
    for form in forms:
        with b.scratch() as trial:
            try:
                value = form()
            except Unsupported as reason:
                refusal = refusal or reason
                continue
            trial.commit()
            return value
    raise refusal or Unsupported("there is no expression for this")


def _one_scale(x: Value) -> Quant | None:
    if x.quant is not None and x.quant.axis is not None:
        raise Unsupported("a quantized value with a scale for each channel cannot be moved")
    return x.quant


def _picked(quant: Quant | None, axis: int, indices: Sequence[int]) -> Quant | None:
    """The parameters of the elements at some indices."""
    if quant is None or quant.axis != axis or not isinstance(quant.scale, tuple):
        return quant
    zero = quant.zero_point
    if isinstance(zero, tuple):
        zero = tuple(zero[i] for i in indices)
    return Quant(tuple(quant.scale[i] for i in indices), zero, axis)


def piece(b: Lowering, x: Value, axis: int, start: int, stop: int) -> Value:
    """The elements from start up to stop along an axis, both within it."""
    if stop <= start:
        raise Unsupported("the result has no elements, which TOSA has no tensors for")
    if (start, stop) == (0, x.shape[axis]):
        return x
    shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1 :])
    quant = _picked(x.quant, axis, range(start, stop))
    if x.is_const:
        index = (*(slice(None),) * axis, slice(start, stop))
        return b.remade(x, lambda a: a[index], shape, quant=quant)
    starts = [start if i == axis else 0 for i in range(x.type.rank)]
    return b.with_quant(b.SLICE(x, b.shape(starts), b.shape(shape)), quant)


def joined(b: Lowering, values: Sequence[Value], axis: int) -> Value:
    """Values with equal parameters one after the other, as many at once as the level allows."""
    most = b.env.level.max_tensor_list_size
    if len(values) == 1:
        return values[0]
    if any(v.quant != values[0].quant for v in values):
        raise Unsupported("values of different scales cannot be concatenated")
    if len(values) > most:
        values = [joined(b, values[i : i + most], axis) for i in range(0, len(values), most)]
        return joined(b, values, axis)
    return b.with_quant(b.CONCAT(*values, axis=axis), _one_scale(values[0]))


def tiled(b: Lowering, x: Value, multiples: Sequence[int]) -> Value:
    """The whole value repeated along each axis."""
    if all(n == 1 for n in multiples):
        return x
    if min(multiples) < 1:
        raise Unsupported("the result has no elements, which TOSA has no tensors for")
    quant = _one_scale(x)
    if x.is_const:
        shape = [s * n for s, n in zip(x.shape, multiples)]
        return b.remade(x, lambda a: np.tile(a, multiples), shape, quant=quant)
    return b.with_quant(b.TILE(x, b.shape(multiples)), quant)


def expanded(b: Lowering, x: Value, shape: Sequence[int]) -> Value:
    """Axes of one element repeated, and leading axes added; -1 keeps a size."""
    shape = tuple(shape)
    extra = len(shape) - x.type.rank
    x = b.reshape(x, (1,) * extra + x.shape)
    return tiled(b, x, [1 if n in (-1, s) else n for n, s in zip(shape, x.shape)])


def take(b: Lowering, x: Value, axis: int, indices: Sequence[int]) -> Value:
    """The elements at constant indices along an axis, in that order."""
    if not len(indices):
        raise Unsupported("the result has no elements, which TOSA has no tensors for")
    if x.is_const:
        shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
        quant = _picked(x.quant, axis, indices)
        return b.remade(x, lambda a: a.take(indices, axis), shape, quant=quant)
    runs = _runs(indices)

    def pieces() -> Value:
        return joined(b, [_run(b, x, axis, *run) for run in runs], axis)

    is_apart = len(runs) > _ENDS or any(abs(step) > 1 for _, step, _ in runs)
    if b.traits.free_sizes and is_apart and not _times(indices):  # one form, whatever is left over
        return first(b, lambda: _gathered(b, x, axis, indices), pieces)
    if len(runs) <= FEW_PIECES:
        return pieces()
    times = _times(indices)
    if times:
        return repeated(b, piece(b, x, axis, indices[0], indices[-1] + 1), axis, times)
    return first(
        b,
        lambda: _gathered(b, x, axis, indices),
        lambda: _multiplied(b, x, axis, indices),
        pieces,
    )


def _times(indices: Sequence[int]) -> int:
    """How often each of neighbouring indices comes, if all come equally often; else 0."""
    count = indices[-1] - indices[0] + 1
    if count < 1 or len(indices) % count:
        return 0
    times = len(indices) // count
    whole = np.repeat(np.arange(indices[0], indices[-1] + 1), times)
    return times if np.array_equal(whole, indices) else 0


def repeated(b: Lowering, x: Value, axis: int, times: int) -> Value:
    """Each element of an axis several times: copies behind one another, inside of the axis."""
    quant, shape = _one_scale(x), list(x.shape)
    rows = b.reshape(x, (math.prod(shape[: axis + 1]), math.prod(shape[axis + 1 :])))
    shape[axis] *= times
    return b.with_quant(b.reshape(joined(b, [rows] * times, 1), shape), quant)


def _multiplied(b: Lowering, x: Value, axis: int, indices: Sequence[int]) -> Value:
    """Elements picked by a 1×1 convolution whose weights are 0 and 1; the axis is its channels."""
    size, count = x.shape[axis], len(indices)
    if x.dtype not in (d.I8, d.I16) or size * count > _MOST_WEIGHTS:
        raise Unsupported("a product with 0 and 1 picks int8 and int16 by few indices only")
    quant, transposed = _one_scale(x), b.axis_last(x, axis)
    rows = b.reshape(transposed, (1, 1, math.prod(transposed.shape[:-1]), size))
    shape = (count, 1, 1, size)
    weights = b.const(lambda: np.eye(size)[list(indices)].reshape(shape), d.I8, shape=shape)
    wide = d.I48 if x.dtype is d.I16 else d.I32
    sums = b.layer("CONV2D", rows, weights, acc=wide)
    found = b.reshape(b.rescale(sums, [1.0], 0, x.dtype), (*transposed.shape[:-1], count))
    return b.with_quant(b.axis_back(found, axis), quant)


def _runs(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """Indices as (start, step, count); runs of neighbours are kept whole."""
    if isinstance(indices, range):
        return [(indices.start, indices.step, len(indices))]
    steps = [int(s) for s in np.diff(indices)] + [0]
    runs, i, last = [], 0, len(indices) - 1
    while i <= last:
        step, j = steps[i], i
        while j < last and steps[j] == step:
            j += 1
        if j < last and step != 1 and steps[j] == 1:
            j -= 1  # the neighbours that follow begin here
        if (abs(step) > 1 and j - i < 2) or j <= i:
            j, step = i, 1
        runs.append((int(indices[i]), step, j - i + 1))
        i = j + 1
    return runs


def _run(b: Lowering, x: Value, axis: int, start: int, step: int, count: int) -> Value:
    if count == 1:
        return piece(b, x, axis, start, start + 1)
    if step == 0:
        one = piece(b, x, axis, start, start + 1)
        return tiled(b, one, [count if i == axis else 1 for i in range(x.type.rank)])
    if step < 0:
        return backwards(b, _run(b, x, axis, start + step * (count - 1), -step, count), axis)
    if step == 1:
        return piece(b, x, axis, start, start + count)
    return _strided(b, x, axis, start, step, count)


def backwards(b: Lowering, x: Value, axis: int) -> Value:
    """The elements of an axis in reverse order."""
    quant, size = _one_scale(x), x.shape[axis]
    if size == 1:
        return x

    def pieces() -> Value:
        return joined(b, [piece(b, x, axis, i, i + 1) for i in reversed(range(size))], axis)

    def apart() -> Value:  # not the last axis, then
        rows = b.reshape(x, (math.prod(x.shape[:axis]), size, math.prod(x.shape[axis + 1 :])))
        return b.reshape(b.with_quant(b.REVERSE(rows, axis=1), quant), x.shape)

    return first(b, lambda: b.with_quant(b.REVERSE(x, axis=axis), quant), apart, pieces)


def _strided(b: Lowering, x: Value, axis: int, start: int, step: int, count: int) -> Value:
    """Every step-th element: an axis of them beside an axis of those between."""
    size, length, quant = x.shape[axis], count * step, _one_scale(x)
    early = min(max(start + length - size, 0), start)  # begin earlier rather than pad
    x = piece(b, x, axis, start - early, min(start - early + length, size))
    short = length - x.shape[axis]
    if short:
        around = [0] * (2 * x.type.rank)
        around[2 * axis + 1] = short
        x = b.with_quant(b.PAD(x, b.shape(around), b.const([0], x.dtype)), quant)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    if x.type.rank + 1 > b.env.level.max_rank:
        before, after = (math.prod(before),), (math.prod(after),)
    beside = b.reshape(x, (*before, count, step, *after))
    kept = piece(b, beside, len(before) + 1, early, early + 1)
    return b.reshape(kept, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _gathered(b: Lowering, x: Value, axis: int, indices: Sequence[int]) -> Value:
    quant = _one_scale(x)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = b.reshape(x, (outer, x.shape[axis], inner))
    which = b.const(np.tile(np.asarray(indices), (outer, 1)), d.I32)
    found = b.with_quant(b.GATHER(rows, which), quant)
    return b.reshape(found, (*x.shape[:axis], len(indices), *x.shape[axis + 1 :]))


def added(b: Lowering, x: Value, axis: int) -> Value:
    """The sum over an axis; a long one in parts."""

    def parts() -> Value:
        if not x.shape[axis]:
            raise Unsupported("it sums no elements, and TOSA has no tensors without any")
        spans = [(i, min(i + _LONG, x.shape[axis])) for i in range(0, x.shape[axis], _LONG)]
        sums = [b.REDUCE_SUM(b.with_quant(piece(b, x, axis, *s), None), axis=axis) for s in spans]
        return reduce(lambda x, y: b.ADD(x, y), sums)

    return first(b, lambda: b.REDUCE_SUM(x, axis=axis), parts)

"""Window arithmetic over one to three axes: start, remainder, padding and layout."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.errors import Unsupported
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.data_movement import joined, piece
from tosaic.lowering.builder import Lowering

Pads = list[tuple[int, int]]


def each(values: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each axis, as PyTorch reads one number for all of them."""
    given = (values,) if isinstance(values, int) else tuple(values)
    return given * axes if len(given) == 1 else given


def channels_last(b: Lowering, x: Value, axes: int) -> Value:
    """[N, C, *S] or [C, *S] as [N, *S, C]; one axis becomes two, [1, W]."""
    if x.type.rank not in (axes + 1, axes + 2):
        raise Unsupported(
            f"the windows move over {axes} axes, and the tensor has rank {x.type.rank}"
        )
    whole = x if x.type.rank == axes + 2 else b.reshape(x, (1, *x.shape))
    y = b.permute(whole, (0, *range(2, axes + 2), 1))
    return b.reshape(y, (y.shape[0], 1, *y.shape[1:])) if axes == 1 else y


def channels_first(b: Lowering, y: Value, axes: int, rank: int) -> Value:
    """Back to the layout of PyTorch, in the rank that was given."""
    if axes == 1:
        y = b.reshape(y, (y.shape[0], *y.shape[2:]))
    y = b.permute(y, (0, axes + 1, *range(1, axes + 1)))
    return b.reshape(y, y.shape[1:]) if rank == axes + 1 else y


def flat(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """Numbers for the axes of the operator: those of one axis are [1, W]."""
    return (fill, *values) if len(values) == 1 else tuple(values)


def steps(size: int, pads: tuple[int, int], reach: int, stride: int, ceil: bool = False) -> int:
    """How many windows there are; with ``ceil`` the last may hang over the padding."""
    span = size + sum(pads) - reach
    count = (-(-span // stride) if ceil else span // stride) + 1
    if ceil and (count - 1) * stride >= size + pads[0]:
        count -= 1
    if count < 1:
        raise Unsupported(f"a window of {reach} does not fit {size} elements")
    return count


def side_by_side(b: Lowering, parts: Sequence[Value], axis: int) -> Value:
    """Parts side by side; scales for each channel too, where they lie along the axis."""
    if len(parts) == 1:
        return parts[0]
    quant = parts[0].quant
    if quant is not None and isinstance(quant.scale, tuple):
        scales = [s for p in parts if p.quant for s in p.quant.scale]  # type: ignore[union-attr]
        quant = Quant(tuple(scales), 0, axis)
    return b.with_quant(joined(b, [b.with_quant(p, None) for p in parts], axis), quant)


def fitted(
    b: Lowering, x: Value, reach: Sequence[int], stride: Sequence[int], pads: Pads,
    ceil: bool = False,
) -> tuple[Value, Pads]:  # fmt: skip
    """[N, *S, C] and its padding such that the last window ends with it, as TOSA asks.

    What a stride leaves over behind the last window is cut off.
    """
    exact = []
    for axis, (before, after) in enumerate(pads):
        size = x.shape[1 + axis]
        count = steps(size, (before, after), reach[axis], stride[axis], ceil)
        behind = (count - 1) * stride[axis] + reach[axis] - size - before
        x = piece(b, x, 1 + axis, 0, size + min(behind, 0))
        exact.append((before, max(behind, 0)))
    return x, exact


def listed(pads: Pads) -> tuple[int, ...]:
    return tuple(n for pair in pads for n in pair)

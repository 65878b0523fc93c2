"""Simplifies data movement: drops no-ops and merges RESHAPE, SLICE, CONCAT, PAD in a row."""

from __future__ import annotations

import math

from tosaic.ir.graph import Op, Value
from tosaic.rewrite.match import Matcher, one_number, rewrite, sizes
from tosaic.spec.dtypes import I8, I16, I32
from tosaic.spec.ops_elementwise import BROADCASTS

_WIDER = {I8: 8, I16: 16, I32: 32}


@rewrite("IDENTITY")
def pass_on(m: Matcher, op: Op) -> Value | None:
    return op.ins[0]


@rewrite("RESHAPE", "SLICE", "TILE", "PAD", "TRANSPOSE", "CAST", "CONCAT", "REVERSE", "RESIZE")
def drop_idle(m: Matcher, op: Op) -> Value | None:
    """The operand, where nothing is moved or changed."""
    x, result = op.ins[0], op.outs[0]
    if x.type != result.type:
        return None
    if op.name == "TRANSPOSE":
        return x if op.attrs["perms"] == tuple(range(x.type.rank)) else None
    if op.name == "REVERSE":
        return x if x.shape[op.attrs["axis"]] == 1 else None
    return x if op.name != "RESIZE" or _copies(op) else None


def _copies(op: Op) -> bool:
    """Whether a RESIZE takes each element once, from its own place."""
    scale, offset = sizes(op.ins[1]), sizes(op.ins[2])
    nearest = op.attrs["mode"] == "NEAREST_NEIGHBOR"
    return nearest and scale is not None and scale[::2] == scale[1::2] and offset == [0, 0]


@rewrite("TRANSPOSE")
def merge_transposes(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "TRANSPOSE")
    if before is None:
        return None
    first = before.attrs["perms"]
    return m.b.TRANSPOSE(before.ins[0], perms=[first[p] for p in op.attrs["perms"]])


@rewrite("REVERSE")
def cancel_reverses(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "REVERSE")
    return before.ins[0] if before is not None and before.attrs == op.attrs else None


@rewrite("REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL", "REDUCE_ANY")
def merge_reductions(m: Matcher, op: Op) -> Value | None:
    """Axes that lie together, one after the other: as one axis. Sums of floats are left."""
    before = m.made_by(op.ins[0], op.name) if m.only(op.ins[0]) else None
    if before is None or not (op.ins[0].dtype.is_int or op.name != "REDUCE_SUM"):
        return None
    shape = list(before.ins[0].shape)
    first, last = sorted((op.attrs["axis"], before.attrs["axis"]))
    if any(size != 1 for size in shape[first + 1 : last]) or first == last:
        return None
    shape[first], shape[last] = shape[first] * shape[last], 1
    whole = m.b.RESHAPE(before.ins[0], m.b.shape(shape))
    made = m.b.op(op.name, whole, **{**op.attrs, "axis": first})
    return made


@rewrite("RESHAPE")
def merge_reshapes(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "RESHAPE")
    if before is None:
        return None
    if before.ins[0].type == op.outs[0].type:
        return before.ins[0]
    return m.b.RESHAPE(before.ins[0], op.ins[1])


@rewrite("CAST")
def merge_casts(m: Matcher, op: Op) -> Value | None:
    """Integers that become wider and wider still."""
    before = m.made_by(op.ins[0], "CAST")
    if before is None:
        return None
    kinds = [v.dtype for v in (before.ins[0], op.ins[0], op.outs[0])]
    widths = [_WIDER.get(k, 0) for k in kinds]
    if 0 in widths or widths != sorted(widths):
        return None
    return m.b.CAST(before.ins[0], out=op.outs[0].dtype)


@rewrite("SLICE")
def merge_slices(m: Matcher, op: Op) -> Value | None:
    before, start = m.made_by(op.ins[0], "SLICE"), sizes(op.ins[1])
    first = sizes(before.ins[1]) if before is not None else None
    if before is None or start is None or first is None:
        return None
    total = m.b.shape([a + b for a, b in zip(first, start)])
    return m.b.SLICE(before.ins[0], total, op.ins[2])


@rewrite("SLICE")
def slice_whole(m: Matcher, op: Op) -> Value | None:
    """A piece of a piece that got or lost axes of one element, from the whole itself."""
    reshape, start, size = m.made_by(op.ins[0], "RESHAPE"), sizes(op.ins[1]), sizes(op.ins[2])
    piece = m.made_by(reshape.ins[0], "SLICE") if reshape is not None else None
    first = sizes(piece.ins[1]) if piece is not None else None
    if piece is None or start is None or size is None or first is None:
        return None
    before, after = (
        [i for i, n in enumerate(v.shape) if n != 1] for v in (piece.outs[0], op.ins[0])
    )
    if [piece.outs[0].shape[i] for i in before] != [op.ins[0].shape[i] for i in after]:
        return None
    extents = [1] * len(first)
    for whole, part in zip(before, after):
        first[whole] += start[part]
        extents[whole] = size[part]
    taken = m.b.SLICE(piece.ins[0], m.b.shape(first), m.b.shape(extents))
    return m.b.RESHAPE(taken, m.b.shape(size))


@rewrite("SLICE")
def slice_part(m: Matcher, op: Op) -> Value | None:
    """A piece of one of several joined values, from that value itself."""
    before, start, size = m.made_by(op.ins[0], "CONCAT"), sizes(op.ins[1]), sizes(op.ins[2])
    if before is None or start is None or size is None:
        return None
    axis = before.attrs["axis"]
    offset = 0
    for part in before.ins:
        end = offset + part.shape[axis]
        if offset <= start[axis] and start[axis] + size[axis] <= end:
            start[axis] -= offset
            if list(part.shape) == size:
                return part
            return m.b.SLICE(part, m.b.shape(start), op.ins[2])
        offset = end
    return None


@rewrite("SLICE")
def slice_whole_parts(m: Matcher, op: Op) -> Value | None:
    """Some of several values that follow one another in memory, whatever shape they got."""
    reshape, start, size = m.made_by(op.ins[0], "RESHAPE"), sizes(op.ins[1]), sizes(op.ins[2])
    before = m.made_by(reshape.ins[0], "CONCAT") if reshape is not None else None
    if reshape is None or before is None or start is None or size is None:
        return None
    given, axis = op.ins[0].shape, before.attrs["axis"]
    outer = next((i for i, n in enumerate(given) if n != 1), 0)
    inner = math.prod(given[outer + 1 :])
    if math.prod(before.outs[0].shape[:axis]) != 1 or math.prod(size[outer + 1 :]) != inner:
        return None
    first, last, at, parts = start[outer] * inner, (start[outer] + size[outer]) * inner, 0, []
    for part in before.ins:
        if first <= at and at + part.type.size <= last:
            parts.append(part)
        at += part.type.size
    if sum(part.type.size for part in parts) != last - first:
        return None
    if len(parts) > 1 and not (m.only(op.ins[0]) and m.only(reshape.ins[0])):
        return None
    whole = parts[0] if len(parts) == 1 else m.b.CONCAT(*parts, axis=axis)
    return m.b.RESHAPE(whole, m.b.shape(size))


@rewrite("CONCAT")
def merge_concats(m: Matcher, op: Op) -> Value | None:
    """Joined values that are joined with more along the same axis."""
    parts: list[Value] = []
    for value in op.ins:
        inner = m.made_by(value, "CONCAT")
        flat = inner is not None and inner.attrs == op.attrs and m.only(value)
        parts += inner.ins if flat and inner is not None else [value]
    if len(parts) == len(op.ins):
        return None
    return m.b.CONCAT(*parts, **op.attrs)


@rewrite("CONCAT")
def rejoin(m: Matcher, op: Op) -> Value | None:
    """Neighbouring pieces of one value as one piece, or as the value itself."""
    axis, parts = op.attrs["axis"], [_piece(m, v) for v in op.ins]
    joined: list[Value] = []
    index = 0
    while index < len(parts):
        stop, source = index + 1, parts[index]
        while stop < len(parts) and _follows(parts[stop - 1], parts[stop], axis):
            stop += 1
        if stop - index == 1 or source is None:
            joined.append(op.ins[index])
        else:
            whole, start, size = source
            size = [*size]
            size[axis] = sum(v.shape[axis] for v in op.ins[index:stop])
            same = tuple(size) == whole.shape
            made = whole if same else m.b.SLICE(whole, m.b.shape(start), m.b.shape(size))
            joined.append(made)
        index = stop
    if len(joined) == len(op.ins):
        return None
    return joined[0] if len(joined) == 1 else m.b.CONCAT(*joined, axis=axis)


Piece = tuple[Value, list[int], list[int]]


def _piece(m: Matcher, value: Value) -> Piece | None:
    op = m.made_by(value, "SLICE")
    start, size = (sizes(v) for v in op.ins[1:]) if op is not None else (None, None)
    if op is None or start is None or size is None:
        return None
    return op.ins[0], start, size


def _follows(before: Piece | None, after: Piece | None, axis: int) -> bool:
    """Whether a piece begins where another of the same value ends, along that axis alone."""
    if before is None or after is None or before[0] is not after[0]:
        return False
    ends = [s + (n if i == axis else 0) for i, (s, n) in enumerate(zip(*before[1:]))]
    sides = [i for i in range(len(ends)) if i != axis]
    return ends == after[1] and all(before[2][i] == after[2][i] for i in sides)


@rewrite("PAD")
def merge_pads(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "PAD")
    if before is None or not m.only(op.ins[0]):
        return None
    inner, outer = sizes(before.ins[1]), sizes(op.ins[1])
    numbers = one_number(before.ins[2]), one_number(op.ins[2])
    if inner is None or outer is None or None in numbers or numbers[0] != numbers[1]:
        return None
    total = m.b.shape([a + b for a, b in zip(inner, outer)])
    return m.b.PAD(before.ins[0], total, op.ins[2])


@rewrite("TILE")
def merge_tiles(m: Matcher, op: Op) -> Value | None:
    before = m.made_by(op.ins[0], "TILE")
    inner, outer = (sizes(before.ins[1]), sizes(op.ins[1])) if before is not None else (None, None)
    if before is None or inner is None or outer is None:
        return None
    total = m.b.shape([a * b for a, b in zip(inner, outer)])
    return m.b.TILE(before.ins[0], total)


@rewrite(*BROADCASTS)
def untile(m: Matcher, op: Op) -> Value | None:
    """An operand that is repeated along axes of one element is broadcast instead."""
    count = 2 if op.name == "MUL" else len(op.ins)  # the shift is no operand of this kind
    for index, value in enumerate(op.ins[:count]):
        tile = m.made_by(value, "TILE")
        if tile is None:
            continue
        source, others = tile.ins[0], [v for i, v in enumerate(op.ins[:count]) if i != index]
        kept = all(
            old == new or (old == 1 and any(v.shape[axis] == new for v in others))
            for axis, (old, new) in enumerate(zip(source.shape, value.shape))
        )
        if kept and math.prod(source.shape) < math.prod(value.shape):
            ins = [source if i == index else v for i, v in enumerate(op.ins)]
            return m.b.op(op.name, *ins, out=op.outs[0].dtype, **op.attrs)
    return None

"""Holes of templates: what stands for a value, an operand, an index, a mask, an axis, a number.

``x`` is the float that the others refer to (``q`` an integer in its place), ``d`` one of its axes.
"""

from __future__ import annotations

import torch

from judges.fuzz.writer import Retry, Writer, hole, ranks_of


def _subject(w: Writer) -> str:
    for name in ("x", "q", "h"):
        if name in w.bound:
            return name
    raise Retry("no subject")


def shape_of(w: Writer) -> tuple[int, ...]:
    return tuple(w.of(_subject(w)).shape)


@hole("x", "z")
def _float(w: Writer, detail: str) -> str:
    return w.pick("f", ranks_of(detail))


@hole("q")
def _integer(w: Writer, detail: str) -> str:
    return w.pick("i", ranks_of(detail))


@hole("h")
def _bool(w: Writer, detail: str) -> str:
    return w.pick("b", ranks_of(detail))


@hole("y")
def _operand(w: Writer, detail: str) -> str:
    """An operand that broadcasts with x: a number, a value or a constant."""
    return repr(w.number()) if w.chance(0.25) else _tensor(w, detail)


@hole("Y", "U")
def _tensor(w: Writer, detail: str) -> str:
    found = w.compatible(shape_of(w))
    if found and w.chance(0.6):
        return str(w.one(found))
    return w.constant(w.broadcast_shape(shape_of(w)))


@hole("r")
def _integer_operand(w: Writer, detail: str) -> str:
    """An operand that broadcasts with the integer q."""
    found = w.compatible(shape_of(w), "i")
    draw = w.below(3)
    if draw == 0:
        return str(1 + w.below(5))
    if draw == 1 and found:
        return str(w.one(found))
    return w.constant(w.broadcast_shape(shape_of(w)), "i", 7)


@hole("w")
def _same_shape(w: Writer, detail: str) -> str:
    shape = shape_of(w)
    found = [n for n in w.compatible(shape) if tuple(w.values[n].shape) == shape]
    return str(w.one(found)) if found and w.chance(0.7) else w.constant(shape)


@hole("m")
def _mask(w: Writer, detail: str) -> str:
    found = w.compatible(shape_of(w), "b")
    if found and w.chance(0.5):
        return str(w.one(found))
    if w.chance(0.5):
        return w.constant(w.broadcast_shape(shape_of(w)), "b")
    return f"({w.bound[_subject(w)]} > {w.number()})"


@hole("k", "l")
def _number(w: Writer, detail: str) -> float:
    return w.number()


@hole("p")
def _positive(w: Writer, detail: str) -> float:
    return round(abs(w.number()) + 0.05, 2)


@hole("n")
def _count(w: Writer, detail: str) -> int:
    return 1 + w.below(int(detail or 3))


@hole("b")
def _flag(w: Writer, detail: str) -> bool:
    return w.chance(0.5)


@hole("d")
def _axis(w: Writer, detail: str) -> int:
    rank = len(shape_of(w))
    if rank == 0:
        raise Retry("no axis")
    return w.below(2 * rank) - rank


@hole("e")
def _other_axis(w: Writer, detail: str) -> int:
    rank = len(shape_of(w))
    others = [a for a in range(rank) if a != int(w.hole("d")) % rank]
    return int(w.one(others)) if others else int(w.hole("d"))


@hole("axes")
def _axes(w: Writer, detail: str) -> tuple[int, ...]:
    rank = len(shape_of(w))
    if rank == 0:
        raise Retry("no axis")
    return tuple(a for a in range(rank) if w.chance(0.5)) or (rank - 1,)


def axis_size(w: Writer) -> int:
    return shape_of(w)[int(w.hole("d"))]


@hole("t")
def _part(w: Writer, detail: str) -> int:
    """A number of elements along d."""
    return 1 + w.below(axis_size(w))


@hole("j")
def _index(w: Writer, detail: str) -> int:
    return w.below(axis_size(w))


@hole("I")
def _indices(w: Writer, detail: str) -> str:
    """One axis of indices along d, of a constant or of a computed integer."""
    size = axis_size(w)
    usable = [
        n for n, v in w.values.items()
        if v.dtype in (torch.int64, torch.int32) and v.dim() == 1
    ]  # fmt: skip
    if usable and w.chance(0.4):
        return f"{w.one(usable)}.clamp(0, {size - 1})"
    return w.constant((1 + w.below(5),), "i", size)


@hole("G")
def _gathered(w: Writer, detail: str) -> str:
    """Indices along d for each element."""
    shape = list(shape_of(w))
    size = axis_size(w)
    if w.chance(0.3):
        return f"{w.bound[_subject(w)]}.argsort({w.hole('d')})"
    shape[int(w.hole("d"))] = 1 + w.below(size)
    return w.constant(tuple(shape), "i", size)


@hole("perm")
def _permutation(w: Writer, detail: str) -> str:
    return ", ".join(str(int(i)) for i in w.random.permutation(len(shape_of(w)))) or "()"


@hole("shape")
def _new_shape(w: Writer, detail: str) -> tuple[int, ...]:
    size = w.of(_subject(w)).numel()
    return w.factors(size, w.below(7) if size == 1 else 1 + w.below(6))


@hole("full")
def _expanded(w: Writer, detail: str) -> tuple[int, ...]:
    shape = tuple(n if n > 1 else 1 + w.below(3) for n in shape_of(w))
    return (1 + w.below(3), *shape) if w.chance(0.3) and len(shape) < 6 else shape


@hole("repeats")
def _repeats(w: Writer, detail: str) -> tuple[int, ...]:
    return tuple(1 + w.below(2) for _ in range(max(len(shape_of(w)), 1) + w.below(2)))


@hole("slices")
def _slices(w: Writer, detail: str) -> str:
    """Slices, indices, None and ... as they are written in brackets."""
    parts: list[str] = []
    for n in shape_of(w):
        a, b = w.below(n), w.below(n)
        parts.append(w.one([
            ":", ":", f"{a}", f"{min(a, b)}:", f":{max(a, b) + 1}", f"::{1 + w.below(3)}",
            f"-{1 + w.below(n)}:", f"{min(a, b)}:{max(a, b) + 1}", "None, :",
        ]))  # fmt: skip
        if w.chance(0.1):
            parts.append("...")
            break
    return ", ".join(parts) or "None"


@hole("pad")
def _padding(w: Writer, detail: str) -> tuple[int, ...]:
    shape = shape_of(w)
    if detail:  # reflect and replicate: as many axes as detail says, each smaller than the axis
        axes = min(int(detail), len(shape) - 1)
        sizes = [shape[-1 - a // 2] for a in range(2 * axes)]
        return tuple(w.below(min(3, n)) for n in sizes)
    axes = 1 + w.below(len(shape)) if shape else 0
    return tuple(w.below(3) - (1 if w.chance(0.1) else 0) for _ in range(2 * axes))


@hole("s")
def _size(w: Writer, detail: str) -> int:
    return axis_size(w)


@hole("u")
def _new_axis(w: Writer, detail: str) -> int:
    rank = len(shape_of(w))
    return w.below(2 * rank + 2) - rank - 1


@hole("last")
def _last(w: Writer, detail: str) -> tuple[int, ...]:
    shape = shape_of(w)
    return shape[-1 - w.below(min(len(shape), 2)) :]


@hole("C")
def _channel_weight(w: Writer, detail: str) -> str:
    return w.constant((w.one((1, shape_of(w)[1])),))


@hole("J", "K")
def _last_indices(w: Writer, detail: str) -> str:
    """Indices into the last axis, or (K) into the first; three of them, to broadcast."""
    shape = shape_of(w)
    size = min(shape[0], shape[1]) if len(shape) > 1 else shape[-1]
    return w.constant((3,), "i", min(size, shape[-1]))


@hole("E")
def _table(w: Writer, detail: str) -> str:
    return w.constant((3, 1 + w.below(6)))


@hole("R")
def _right_factor(w: Writer, detail: str) -> str:
    """The right operand of a product: a vector, a matrix or several."""
    shape = shape_of(w)
    inner, columns = shape[-1], 1 + w.below(6)
    return w.constant(w.one([(inner,), (inner, columns), (1, inner, columns)]))


@hole("L")
def _linear_weight(w: Writer, detail: str) -> str:
    return w.constant((1 + w.below(6), shape_of(w)[-1]))


@hole("B")
def _bilinear_weight(w: Writer, detail: str) -> str:
    n = shape_of(w)[-1]
    return w.constant((1 + w.below(3), n, n))


@hole("A")
def _attention_mask(w: Writer, detail: str) -> str:
    length = shape_of(w)[-2]
    if w.chance(0.5):
        return w.constant((length, length))
    return w.member(f"torch.ones({length}, {length}).tril().bool()", "c")


@hole("I0")
def _first_indices(w: Writer, detail: str) -> str:
    return w.constant((1 + w.below(3),), "i", shape_of(w)[0])

"""Splits a batched MATMUL of several heads into one product for each head.

Heads that are channels of one linear layer have to be moved apart before they are multiplied, and
together again behind that. Where a layer for each head writes what that head needs, nothing moves:
a target that transposes the right operand of a product computes several matrices one by one
anyway, and the transposition costs nothing where a convolution makes the operand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.rewrite.axes import merged_axes
from tosaic.rewrite.epilogue import again, chain, product_of
from tosaic.rewrite.match import Allowed, Cost, Matcher, sizes
from tosaic.spec.dtypes import I8, I16
from tosaic.spec.env import Env

_MOST = 32  # matrices of one product
_ELEMENTS = 1 << 22  # of which the places are followed
_MOVES = ("RESHAPE", "TRANSPOSE", "SLICE")


def part_heads(
    graph: Graph, env: Env, allowed: Allowed | None, cost: Cost | None, traits: Traits = PLAIN
) -> None:
    """Part products of several matrices where a target has to turn one of each."""
    if not any(op.name == "MATMUL" and op.ins[0].shape[0] > 1 for op in graph.ops):
        return
    m = Matcher(graph, env, allowed, cost, traits=traits)
    for op in list(graph.ops):
        if op in m.place and op.name == "RESCALE":
            m.attempt(multiply_each, op)
    for op in list(m.place):
        if op in m.place and op.name == "TRANSPOSE":
            m.attempt(join_channels, op)
    m.run()


@dataclass(frozen=True, slots=True)
class _Origin:
    """The product that a value comes from, its functions, and the place of each element there."""

    product: Op
    functions: list[Op]
    places: Array


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix [1, H, W], or [1, W, H] that is still to be turned.

    Next to a product that transposes its right operand, both transpositions are left out.
    """

    value: Value
    transposed: bool = False

    def get(self, m: Matcher) -> Value:
        return m.b.TRANSPOSE(self.value, perms=(0, 2, 1)) if self.transposed else self.value


def multiply_each(m: Matcher, op: Op) -> Value | None:
    """A product for each of several matrices, with the RESCALE behind it."""
    reshape = m.made_by(op.ins[0], "RESHAPE") if m.only(op.ins[0]) else None
    sums = reshape.ins[0] if reshape is not None else op.ins[0]
    product = m.made_by(sums, "MATMUL") if m.only(sums) else None
    if product is None or op.attrs["per_channel"] or not 1 < product.ins[0].shape[0] <= _MOST:
        return None
    right = _matrices(m, product.ins[1])
    left = (_matrices(m, product.ins[0]) or _pieces(m, product.ins[0])) if right else None
    if left is None or right is None:
        return None
    made = []
    for x, y in zip(left, right):
        each = m.b.MATMUL(x.get(m), y.get(m), *product.ins[2:], out=product.outs[0].dtype)
        value = m.b.RESCALE(each, *op.ins[1:], out=op.outs[0].dtype, **op.attrs)
        made.append(m.b.RESHAPE(value, m.b.shape((1, *value.shape))))
    return m.b.RESHAPE(m.b.CONCAT(*made, axis=1), m.b.shape(op.outs[0].shape))


def join_channels(m: Matcher, op: Op) -> Value | None:
    """[matrices, rows, channels] as [rows, matrices, channels]: written beside one another."""
    extents, perms = merged_axes(op.ins[0].shape, op.attrs["perms"])
    joined = _joined(m, op.ins[0])
    outer = len(perms) - 3
    if joined is None or perms != [*range(outer), outer + 1, outer, outer + 2] or outer > 1:
        return None
    if any(part.shape != (1, 1, *extents[-2:]) for part in joined.ins):
        return None
    count = extents[outer]
    starts = range(0, len(joined.ins), count)
    rows = [m.b.CONCAT(*joined.ins[at : at + count], axis=3) for at in starts]
    whole = rows[0] if len(rows) == 1 else m.b.CONCAT(*rows, axis=2)
    return m.b.RESHAPE(whole, m.b.shape(op.outs[0].shape))


def _joined(m: Matcher, value: Value) -> Op | None:
    """The CONCAT of matrices that a value is, whatever shape it got."""
    while m.only(value) and (reshape := m.made_by(value, "RESHAPE")) is not None:
        value = reshape.ins[0]
    joined = m.made_by(value, "CONCAT") if m.only(value) else None
    return joined if joined is not None and joined.attrs["axis"] == 1 else None


def _pieces(m: Matcher, value: Value) -> list[_Matrix] | None:
    """Matrices as pieces of what one operator alone reads."""
    if not m.only(value):
        return None
    count, *size = value.shape
    whole = m.b.RESHAPE(value, m.b.shape((1, count, *size)))
    found = []
    for index in range(count):
        piece = m.b.SLICE(whole, m.b.shape((0, index, 0, 0)), m.b.shape((1, 1, *size)))
        found.append(_Matrix(m.b.RESHAPE(piece, m.b.shape((1, *size)))))
    return found


def _matrices(m: Matcher, value: Value) -> list[_Matrix] | None:
    """Matrices [N, H, W] as N products with the channels of each."""
    origin = _origin(m, value)
    found = [_matrix(m, origin, places) for places in origin.places] if origin is not None else []
    return [v for v in found if v is not None] if found and None not in found else None


def _matrix(m: Matcher, origin: _Origin, places: Array) -> _Matrix | None:
    """A product for the elements of one matrix: rows by channels, or turned."""
    rows, channels = np.divmod(places, origin.product.outs[0].shape[3])
    transposed = not _is_grid(rows, channels)
    if transposed:
        rows, channels = rows.T, channels.T
    first, count = int(rows[0, 0]), len(rows)
    if not _is_grid(rows, channels) or (rows[:, 0] != np.arange(first, first + count)).any():
        return None
    source = _rows(m, origin.product, first, count)
    if source is None:
        return None
    sums = product_of(m, origin.product, source, channels[0])
    made = again(m, sums, origin.functions, channels[0])
    return _Matrix(m.b.RESHAPE(made, m.b.shape((1, *rows.shape))), transposed)


def _is_grid(rows: Array, channels: Array) -> bool:
    return bool((rows == rows[:, :1]).all() and (channels == channels[:1]).all())


def _rows(m: Matcher, product: Op, first: int, count: int) -> Value | None:
    """What a product reads for some of its places; a product of single places alone has such."""
    x, result = product.ins[0], product.outs[0]
    total = result.type.size // result.shape[3]
    if count == total:
        return x
    kernel, attrs = product.operand("weight").shape[1:3], product.attrs
    if kernel != (1, 1) or attrs["stride"] != (1, 1) or any(attrs["pad"]):
        return None
    flat = m.b.RESHAPE(x, m.b.shape((1, 1, total, x.shape[3])))
    size = m.b.shape((1, 1, count, x.shape[3]))
    return m.b.SLICE(flat, m.b.shape((0, 0, first, 0)), size)


def _origin(m: Matcher, value: Value) -> _Origin | None:
    """Where the elements of a value are in the result of a product whose heads are multiplied."""
    steps: list[Op] = []
    while (made := m.made_by(value, *_MOVES, "RESCALE")) is not None:
        if made.name == "RESCALE" and not _widens(made):
            break
        steps.append(made)
        value = made.ins[0]
    last = value.producer
    if last is None or last not in m.place or not steps or value.type.size > _ELEMENTS:
        return None
    found = chain(m, last, "CONV2D")
    if found is None or value.shape[0] != 1 or not _is_multiplied(m, value):
        return None
    product, *functions = found
    if not (product.operand("weight").is_const and product.operand("bias").is_const):
        return None
    places = np.arange(value.type.size).reshape(value.shape)
    for step in reversed(steps):
        if step.name == "RESCALE":
            functions.append(step)
        else:
            places = _moved(step, places)
    return _Origin(product, functions, places)


def _widens(op: Op) -> bool:
    """Whether a RESCALE makes int16 of int8, all alike."""
    return op.ins[0].dtype is I8 and op.outs[0].dtype is I16 and not op.attrs["per_channel"]


def _moved(step: Op, places: Array) -> Array:
    if step.name == "TRANSPOSE":
        return places.transpose(step.attrs["perms"])
    if step.name == "RESHAPE":
        return places.reshape(step.outs[0].shape)
    start = sizes(step.ins[1]) or [0] * places.ndim
    return places[tuple(slice(s, s + n) for s, n in zip(start, step.outs[0].shape))]


def _is_multiplied(m: Matcher, value: Value) -> bool:
    """Whether nothing but products of several matrices comes of a value, whatever moves it."""
    if m.results[value]:
        return False
    for reader in m.readers(value):
        if reader.name == "MATMUL" and value in reader.ins[:2]:
            continue
        moves = reader.name in _MOVES or (reader.name == "RESCALE" and _widens(reader))
        if not moves or not _is_multiplied(m, reader.outs[0]):
            return False
    return True

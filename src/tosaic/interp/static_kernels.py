"""Kernels of small integer operators on arrays that are allocated once, as calls of NumPy.

Each value has its place in memory before the run, as int64, which holds all integers and their
products; reshapes and slices are views of it; a chain of unary functions of 8 or 16 bits is one
table; all arguments of the calls are bound. Nothing is checked: what takes part is defined for all
values that can come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tosaic.interp.bounds import Ends
from tosaic.interp.exact import FLOAT32_EXACT
from tosaic.interp.kernel import Context, to_numpy, to_torch
from tosaic.interp.onednn import from_carrier
from tosaic.interp.row_chains import UNARY, tabulate
from tosaic.ir.graph import Op, Value
from tosaic.spec import dtypes as d

Ints = NDArray[np.int64]
_BINARY: dict[str, Callable[..., Any]] = {
    "ADD": np.add, "SUB": np.subtract, "MUL": np.multiply,
    "MAXIMUM": np.maximum, "MINIMUM": np.minimum,
}  # fmt: skip
REDUCE: dict[str, Callable[..., Any]] = {
    "REDUCE_SUM": np.add.reduce, "REDUCE_MAX": np.maximum.reduce, "REDUCE_MIN": np.minimum.reduce,
}  # fmt: skip
VIEWS = {"RESHAPE", "SLICE", "TRANSPOSE", "REVERSE", "IDENTITY"}


def numbers_of(value: Value) -> Ints:
    assert value.const is not None
    return value.const.array.astype(np.int64).reshape(-1)


class Static:
    """A run of operators; calls take the tensors of ``ins`` and give those of ``outs``."""

    def __init__(
        self, ops: Sequence[Op], context: Context, ins: Sequence[Value], outs: Sequence[Value]
    ) -> None:
        self._context, self._kept = context, set(outs)
        self._calls: list[Callable[[], object]] = []
        self._arrays: dict[Value, Ints] = {}
        self._bases: dict[Value, tuple[Value, tuple[Op, ...]]] = {}  # what values are views of
        self._full: dict[tuple[bytes, tuple[int, ...]], Ints] = {}
        self._tables: dict[Any, Ints] = {}
        self._done: dict[Any, Ints] = {}
        self._sizes: dict[Value, dict[int, int]] = {}
        self._meanings: dict[Op, int] = {}
        self._numbered: dict[Any, int] = {}
        self._recipes: dict[Any, list[tuple[Callable[..., Any], Ints]]] = {}
        self._uses: dict[Value, list[Op]] = {}
        for op in ops:
            for value in op.ins:
                self._uses.setdefault(value, []).append(op)
        self._ins = [self._new(v) for v in ins]
        for value in ins:
            self._bases[value] = value, ()
        taken: set[Op] = set()
        for op in ops:
            if op not in taken:
                taken.update(self._emit(op))
        self._outs = [(self._arrays[v], v) for v in outs]

    def __call__(self, *ins: Tensor) -> list[Tensor]:
        for array, tensor in zip(self._ins, ins):
            array[...] = from_carrier(tensor).numpy()
        for call in self._calls:
            call()
        return [to_torch(array.astype(v.dtype.array), v.dtype) for array, v in self._outs]

    def _new(self, value: Value) -> Ints:
        made = self._arrays[value] = np.zeros(value.shape, np.int64)
        return made

    def _array(self, value: Value) -> Ints:
        """Where a value lies; constants come as they are."""
        if value not in self._arrays:
            assert value.const is not None
            self._arrays[value] = value.const.array.astype(np.int64)
        return self._arrays[value]

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        self._calls.append(partial(function, *arguments))

    def _whole(self, numbers: Any, shape: tuple[int, ...]) -> Ints:
        """Numbers in the shape of an operand: NumPy is slow where it has to broadcast."""
        given = np.asarray(numbers, np.int64)
        found = np.broadcast_to(given if shape else given.reshape(()), shape).copy()
        return self._full.setdefault((found.tobytes(), shape), found)

    def _emit(self, op: Op) -> Sequence[Op]:
        """The calls of an operator, and of those behind it that are part of them."""
        out = op.outs[0]
        if op.name in VIEWS:
            x = self._array(op.ins[0])
            self._arrays[out] = made = self._view(op, x)
            if np.may_share_memory(made, x):
                base, path = self._bases.get(op.ins[0], (op.ins[0], ()))
                self._bases[out] = base, (*path, op)
            return (op,)
        chain = self._chain(op)
        if chain is not None:
            self._arrays[chain[-1].outs[0]] = self._shared(op, chain)
            return chain
        if op.name in ("CONV2D", "MATMUL"):
            self._product(op)
        elif op.name == "CONCAT":
            parts = np.split(self._new(out), np.cumsum([v.shape[op.attrs["axis"]] for v in op.ins])
                             [:-1], op.attrs["axis"])  # fmt: skip
            for part, value in zip(parts, op.ins):
                self._call(np.copyto, part, self._array(value))
        elif op.name in REDUCE:
            arguments = op.attrs["axis"], None, self._new(out), True
            self._call(REDUCE[op.name], self._array(op.ins[0]), *arguments)
        elif op.name in _BINARY:
            made = self._new(out)
            a, b = (self._operand(v, out.shape) for v in op.ins[:2])
            self._call(_BINARY[op.name], a, b, made)
            if op.name == "MUL" and (bits := int(numbers_of(op.ins[2])[0])):
                self._call(np.add, made, self._whole(1 << bits - 1, out.shape), made)
                self._call(np.right_shift, made, self._whole(bits, out.shape), made)
        else:
            self._arrays[out] = self._unary(op, self._array(op.ins[0]))
        return (op,)

    def _view(self, op: Op, x: Ints) -> Ints:
        """An operator of ``VIEWS`` on an array: a view of it, or of a copy that each run makes."""
        if op.name == "RESHAPE":
            return self._reshaped(x, op.outs[0].shape)
        if op.name == "TRANSPOSE":
            return x.transpose(op.attrs["perms"])
        if op.name == "REVERSE":  # copied: NumPy 2.1 reduces negative strides wrongly
            return self._copied(np.flip(x, op.attrs["axis"]))
        if op.name == "SLICE":
            starts, sizes = numbers_of(op.ins[1]), op.outs[0].shape
            return x[tuple(slice(a, a + n) for a, n in zip(starts, sizes))]
        return x

    def _reshaped(self, x: Ints, shape: tuple[int, ...]) -> Ints:
        """The same elements in another shape, copied where no view has it."""
        made = x.reshape(shape)
        return made if np.may_share_memory(made, x) else self._copied(x).reshape(shape)

    def _copied(self, x: Ints) -> Ints:
        apart = np.zeros(x.shape, np.int64)
        self._call(np.copyto, apart, x)
        return apart

    def _operand(self, value: Value, shape: tuple[int, ...]) -> Ints:
        return self._whole(self._array(value), shape) if value.is_const else self._array(value)

    def _chain(self, op: Op) -> tuple[Op, ...] | None:
        """Unary operators from this one on whose values nothing else reads; None for others."""
        if not _is_unary(op):
            return None
        run = [op]
        while run[-1].outs[0] not in self._kept:
            users = self._uses.get(run[-1].outs[0], [])
            if len(users) != 1 or not _is_unary(users[0]):
                break
            run.append(users[0])
        narrow = op.ins[0].dtype in (d.I8, d.I16)
        return tuple(run) if narrow and _pays(run) else (op,)

    def _shared(self, op: Op, chain: tuple[Op, ...]) -> Ints:
        """The result of a chain; that of several parts of a value is computed of all of it."""
        base, path = self._bases.get(op.ins[0], (op.ins[0], ()))
        ends = self._context.bounds.of(op.ins[0])
        # Kernels leave out what the bounds of their operand make needless, so these are part of it.
        key = ends, *map(self._meaning, chain)
        if path and not base.is_const and _within(self._context.bounds.of(base), ends):
            whole = self._array(base)
            if self._read(base)[self._meaning(op)] * 2 > whole.size:
                found = self._done.get((base, key))
                if found is None:
                    found = self._done[base, key] = self._computed(chain, whole, key)
                for view in path:  # what is a view of the base need not be one of the result
                    found = self._view(view, found)
                return found
        return self._computed(chain, self._array(op.ins[0]), key)

    def _meaning(self, op: Op) -> int:
        """What an operator does to its first operand, as a number."""
        if op not in self._meanings:
            numbers = tuple(v.const.array.tobytes() for v in op.ins[1:] if v.const is not None)
            kinds = op.name, op.ins[0].dtype, op.outs[0].dtype
            key = *kinds, repr(op.attrs), numbers
            self._meanings[op] = self._numbered.setdefault(key, len(self._numbered))
        return self._meanings[op]

    def _read(self, base: Value) -> dict[int, int]:
        """Elements of what reads a value or views of it, by what they do to it."""
        if base not in self._sizes:
            found, ahead = dict[int, int](), [base]
            while ahead:
                for op in self._uses.get(ahead.pop(), ()):
                    if op.name in VIEWS:
                        ahead.append(op.outs[0])
                    else:
                        meaning = self._meaning(op)
                        found[meaning] = found.get(meaning, 0) + op.outs[0].type.size
            self._sizes[base] = found
        return self._sizes[base]

    def _computed(self, chain: tuple[Op, ...], x: Ints, key: object) -> Ints:
        narrow = chain[0].ins[0].dtype in (d.I8, d.I16)
        if not (narrow and _pays(chain)):
            for op in chain:
                x = self._unary(op, x)
            return x
        if key not in self._tables:
            entries = tabulate(chain, self._context)
            # From 0 on, then from the lowest: a negative index counts from the end.
            self._tables[key] = np.roll(to_numpy(entries, chain[-1].outs[0].dtype).astype(np.int64),
                                        len(entries) // 2)  # fmt: skip
        out = np.zeros(x.shape, np.int64)
        self._call(self._tables[key].take, x, 0, out, "wrap")
        return out

    def _unary(self, op: Op, x: Ints) -> Ints:
        if op.name == "CAST" or (op.name == "CLAMP" and not self._limits(op, op.ins[0])):
            return x
        if op.name == "RESCALE":
            return self._rescale(op, x)
        out = np.zeros(x.shape, np.int64)
        if op.name == "ABS":
            self._call(np.abs, x, out)
        else:
            self._saturate(self._limits(op, op.ins[0]), x, out)
        return out

    def _limits(self, op: Op, value: Value) -> list[tuple[Callable[..., Any], int]]:
        """What has to be done so that a value lies within the ends of a CLAMP."""
        low, high = self._context.bounds.of(value)
        least, most = op.attrs["min_val"], op.attrs["max_val"]
        ends = [(np.maximum, least, low < least), (np.minimum, most, high > most)]
        return [(function, end) for function, end, needed in ends if needed]

    def _saturate(self, limits: list[tuple[Callable[..., Any], int]], x: Ints, out: Ints) -> None:
        for function, end in limits:
            self._call(function, x, self._whole(end, out.shape), out)
            x = out

    def _rescale(self, op: Op, x: Ints) -> Ints:
        ends = self._context.bounds.of(op.ins[0])
        key = self._meaning(op), ends, x.shape
        if key not in self._recipes:
            self._recipes[key] = [(f, self._whole(n, x.shape)) for f, n in _rescaling(op, ends)]
        out = np.zeros(x.shape, np.int64)
        for function, numbers in self._recipes[key]:
            self._call(function, x, numbers, out)
            x = out
        return x

    def _product(self, op: Op) -> None:
        """In floats that hold every partial sum; a bias is a row of the right matrix."""
        most = max(map(abs, self._context.bounds.of(op.outs[0])))
        kind = np.float32 if most < FLOAT32_EXACT else np.float64
        out, x = self._new(op.outs[0]), self._array(op.ins[0])
        if op.name == "MATMUL":
            sides = []
            for value, zp in zip(op.ins[:2], op.ins[2:4]):
                side = np.zeros(value.shape, kind)
                self._call(np.copyto, side, self._array(value), "unsafe")
                if zero := int(numbers_of(zp)[0]):
                    self._call(np.subtract, side, np.full(value.shape, zero, kind), side)
                sides.append(side)
            made = np.zeros(op.outs[0].shape, kind)
            self._call(np.matmul, *sides, made)
            self._call(np.copyto, out, made, "unsafe")
            return
        weight = self._array(op.ins[1]).reshape(op.ins[1].shape[0], -1) - numbers_of(op.ins[4])
        bias = np.broadcast_to(numbers_of(op.ins[2]), len(weight))
        bias = bias - weight.sum(1) * numbers_of(op.ins[3])
        rows = self._reshaped(x, (x.size // x.shape[-1], x.shape[-1]))
        given = np.ones((len(rows), weight.shape[1] + 1), kind)
        right = np.ascontiguousarray(np.concatenate([weight, bias[:, None]], 1).T.astype(kind))
        made = np.zeros((len(rows), len(weight)), kind)
        self._call(np.copyto, given[:, :-1], rows, "unsafe")
        self._call(np.dot, given, right, made)
        self._call(np.copyto, out.reshape(made.shape), made, "unsafe")


def _rescaling(op: Op, bounds: Ends) -> list[tuple[Callable[..., Any], Any]]:
    """The least of multiplying, adding, shifting and saturating, each with its numbers."""
    multiplier, shift, (input_zp,), (output_zp,) = (numbers_of(v) for v in op.ins[1:])
    ends = np.array(bounds)[:, None] - input_zp
    scaled = (ends * multiplier + (np.int64(1) << shift - 1) >> shift) + output_zp
    common = np.minimum(_twos(multiplier), shift).min()
    multiplier, shift = multiplier >> common, shift - common
    offset, after = ((np.int64(1) << shift) >> 1) - input_zp * multiplier, output_zp
    peak = int(np.abs(ends).max()) * int(multiplier.max())
    if abs(int(output_zp)) << int(shift.max()) < 1 << 61 and peak < 1 << 61:
        offset, after = offset + (output_zp << shift), np.int64(0)
    low, high = op.outs[0].dtype.range
    calls = [
        (np.multiply, multiplier, (multiplier != 1).any()),
        (np.add, offset, offset.any()),
        (np.right_shift, shift, shift.any()),
        (np.add, after, after),
        (np.maximum, low, scaled.min() < low),
        (np.minimum, high, scaled.max() > high),
    ]
    return [(function, numbers) for function, numbers, needed in calls if needed]


def _within(inner: Ends, outer: Ends) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _twos(numbers: Ints) -> Ints:
    """The exponent of two in numbers; 62 for 0."""
    found = [(int(n) & -int(n)).bit_length() - 1 if n else 62 for n in numbers]
    return np.array(found, np.int64)


def _is_unary(op: Op) -> bool:
    return op.name in UNARY and op.name != "NEGATE" and not op.attrs.get("per_channel")


def _pays(chain: Sequence[Op]) -> bool:
    """Whether a table is faster than its operators."""
    return chain[0].ins[0].dtype is d.I8 or len(chain) > 1 or chain[0].name == "TABLE"

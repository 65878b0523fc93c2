"""The rules' Builder: TOSA operators, and helpers such as rescaling that need several of them.

A quantized value is an integer Value with a Quant. An accumulator is an int32 or int48 value
whose zero point is 0; ``requantize`` rescales it to what the next call wants. Rules never see which
call comes next: ``wanted`` says what the result must become, or None if it may stay as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Quant, Value
from tosaic.ir.int_intervals import Bounds, Intervals, quick
from tosaic.ir.multipliers import multipliers_and_shifts
from tosaic.lowering.alternatives.cast import to_integers
from tosaic.lowering.alternatives.lut import FINE, LIMIT, Zone, table8, table16, zones16
from tosaic.lowering.alternatives.octaves import of_octaves
from tosaic.lowering.target import Target
from tosaic.spec import dtypes as d

_FUNCTIONS = {(d.I8, d.I8), (d.I16, d.I16), (d.I16, d.I8)}
TYPES: dict[torch.dtype, d.DType] = {
    torch.bool: d.BOOL,
    torch.int8: d.I8,
    torch.int16: d.I16,
    torch.int32: d.I32,
    torch.int64: d.I32,
    torch.float16: d.F16,
    torch.bfloat16: d.BF16,
    torch.float32: d.F32,
    torch.float8_e4m3fn: d.F8E4M3,
    torch.float8_e5m2: d.F8E5M2,
}


class Lowering(Builder):
    """A Builder with the vocabulary of the rules."""

    wanted: tuple[Quant, d.DType] | None = None
    items: Mapping[int, tuple[Quant, d.DType]] = MappingProxyType({})  # for several results

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._rough, self._exact = quick(), Intervals()
        self._sum_bits = dict(zip((d.I8, d.I16), self.traits.sum_bits))

    @classmethod
    def of(cls, target: Target) -> Lowering:
        """A Builder of a new graph for a target."""
        return cls(target.env, None, target.constraints, target.traits)

    def tensor(self, data: Tensor, quant: Quant | None = None) -> Value:
        """A constant from a torch tensor, copied when it is first needed."""
        kind = TYPES.get(data.dtype)
        if kind is None:
            raise Unsupported(f"TOSA has no constants of {data.dtype}")
        source = data.detach()
        if source.dtype is torch.int64 and source.numel():
            low, high = (int(end) for end in torch.aminmax(source))
            if low < kind.range[0] or high > kind.range[1]:
                raise Unsupported(f"a constant of {low} to {high} does not fit TOSA's 32 bits")

        def make() -> np.ndarray[Any, Any]:
            plain = source.cpu()
            if kind.array.__module__ != np.__name__:  # bfloat16 and 8-bit floats
                bits = {8: torch.int8, 16: torch.int16}[kind.bits]
                return plain.contiguous().view(bits).numpy().view(kind.array)
            return np.asarray(plain.numpy(), dtype=kind.array)

        return self.const(make, kind, quant=quant, shape=tuple(source.shape))

    def number(self, value: float, like: Value) -> Value:
        """A constant of one element in the type and rank of another value."""
        kind = like.dtype
        if kind.is_int and not kind.range[0] <= value <= kind.range[1]:
            raise Unsupported(f"{value} is beyond the numbers of {kind.name}")
        held = np.float64 if kind.is_float else kind.array
        return self.const(np.full((1,) * like.type.rank, value, held), kind)

    def quantized_number(self, value: float, quant: Quant, kind: d.DType, rank: int) -> Value:
        """A constant of one element, rounded to the nearest of some parameters; saturates.

        What is no number becomes 0, as integers have nothing for it.
        """
        real = 0.0 if math.isnan(value) else value
        steps = float(np.clip(real / quant.one_scale + quant.one_zero, *kind.range))
        return self.const(np.full((1,) * rank, round(steps)), kind, quant=quant)

    def with_quant(self, value: Value, quant: Quant | None) -> Value:
        """The value, with the quantization parameters of its integers."""
        value.quant = quant
        return value

    def proved(self, value: Value, low: float, high: float = d.I32.range[1]) -> Value:
        """Say what integers lie within, where that follows from more than their operands' ranges.

        The proof stands where it is said. Interval analysis relies on it, for the exact result
        before any bits are lost.
        """
        before = value.limits or value.dtype.range
        value.limits = max(before[0], math.floor(low)), min(before[1], math.ceil(high))
        value.bounds = None
        for intervals in (self._rough, self._exact):
            intervals.forget(value)
        return value

    def magnitude(self, x: Value, exact: bool = False) -> int:
        """How far from 0 an integer can be, by interval analysis; exactly, with all constants."""
        return max(map(abs, (self._exact if exact else self._rough).of(x).ends))

    def mul(self, x: Value, y: Value, shift: int = 0) -> Value:
        """x · y / 2^shift, rounded once."""
        return self.MUL(x, y, self.const([shift], d.I8))

    def permute(self, x: Value, perms: Sequence[int]) -> Value:
        """A transposition; a constant is turned itself, when it is made."""
        perms = tuple(perms)
        if perms == tuple(range(x.type.rank)):
            return x
        quant = x.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, perms.index(quant.axis))
        if x.is_const:
            permuted = tuple(x.shape[p] for p in perms)
            return self.remade(x, lambda a: a.transpose(perms), permuted, quant=quant)
        return self.with_quant(self.TRANSPOSE(x, perms=perms), quant)

    def axis_last(self, x: Value, axis: int) -> Value:
        """With one axis behind all others."""
        return self.permute(x, [i for i in range(x.type.rank) if i != axis] + [axis])

    def axis_back(self, x: Value, axis: int) -> Value:
        """With the last axis at its place again."""
        last = x.type.rank - 1
        return self.permute(x, [*range(axis), last, *range(axis, last)])

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Another shape for the same elements; an axis of scales must stay whole."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        quant = _reshaped(x.quant, x.shape, shape)
        if x.is_const:
            return self.remade(x, lambda a: a.reshape(shape), shape, quant=quant)
        return self.with_quant(self.RESHAPE(x, self.shape(shape)), quant)

    def same_rank(self, *values: Value) -> list[Value]:
        """Leading ones, as PyTorch broadcasts and TOSA does not."""
        rank = max(v.type.rank for v in values)
        return [self.reshape(v, (1,) * (rank - v.type.rank) + v.shape) for v in values]

    def rescale(self, x: Value, factor: Sequence[float], zero_point: int, out: d.DType) -> Value:
        """RESCALE by real factors, one or one for each element of the last axis."""
        wide = x.dtype is not d.I48
        multipliers, shifts = multipliers_and_shifts(factor, 31 if wide else 15)
        given = x.quant.one_zero if x.quant is not None and x.dtype is d.I8 else 0
        most = np.exp2(shifts - 1.0) if wide else (2.0**31 - 1) / np.asarray(factor) - 1
        if not self._stays_below(x, given, most):
            return self._limited_rescale(x, given, most, factor, zero_point, out)
        return self.RESCALE(
            x,
            self.const(multipliers, d.I32 if wide else d.I16),
            self.const(shifts, d.I8),
            self.const([given], x.dtype),
            self.const([zero_point], out),
            scale32=wide, rounding_mode="SINGLE_ROUND", per_channel=len(factor) > 1, out=out,
        )  # fmt: skip

    def _stays_below(self, x: Value, given: int, most: Array) -> bool:
        """Whether no input makes a channel reach its limit, by its type or by interval analysis."""
        if max(given - x.dtype.range[0], x.dtype.range[1] - given) < most.min():
            return True
        return any(
            bool((_magnitudes(intervals.of(x), given) < most).all())
            for intervals in (self._rough, self._exact)
        )

    def _limited_rescale(
        self, x: Value, given: int, most: Array, factor: Sequence[float], zero_point: int,
        out: d.DType,
    ) -> Value:  # fmt: skip
        """RESCALE of a value that can be more than TOSA defines it for: limited before.

        The limits of a channel are far beyond those of its result, which saturates. int48 becomes
        int32 first, without bits that the greatest numbers of a channel leave none of in its
        result.
        """
        if x.dtype is d.I48:
            bits = np.frexp(_magnitudes(self._exact.of(x), 0).astype(np.float64))[1]
            spare = np.exp2(np.maximum(bits - 30, 0))
            x = self.rescale(x, (1 / spare).tolist(), 0, d.I32)
            return self.rescale(x, (np.asarray(factor) * spare).tolist(), zero_point, out)
        if x.dtype is not d.I32 and len(most) > 1:
            x, given = self.levels(x, given=given), 0
        limits = np.minimum(most, 2.0**31).astype(np.int64) - 1
        if x.dtype is not d.I32:
            limit, (least, greatest) = int(limits[0]), x.dtype.range
            low, high = max(given - limit, least), min(given + limit, greatest)
            kept = self.with_quant(self.CLAMP(x, min_val=low, max_val=high), x.quant)
            return self.rescale(kept, factor, zero_point, out)
        limits = limits.reshape((*(1,) * (x.type.rank - 1), -1) if x.type.rank else ())
        ends = [self.const(end, d.I32) for end in (-limits, limits)]
        kept = self.MINIMUM(self.MAXIMUM(x, ends[0]), ends[1])
        return self.rescale(self.with_quant(kept, x.quant), factor, zero_point, out)

    @contextmanager
    def wanting(self, wanted: tuple[Quant, d.DType] | None) -> Iterator[None]:
        """What is made inside is to become something else than the result is."""
        before, self.wanted = self.wanted, wanted
        try:
            yield
        finally:
            self.wanted = before

    def requantized(self, x: Value) -> Value:
        """The value as what is wanted of the result; as it is if nothing is."""
        return x if self.wanted is None else self.requantize(x, *self.wanted)

    def requantize(self, x: Value, quant: Quant, out: d.DType) -> Value:
        """The value in other parameters; nothing if it has them already."""
        if x.quant is None and x.is_const and x.dtype.is_float:
            return self._rounded(x, quant, out)
        if x.quant is None and x.dtype.is_float:
            return to_integers(self, x, quant, out)
        given = self._quant_of(x)
        if given == quant and x.dtype is out:
            return x
        if given.axis is not None:
            divisor = quant.one_scale
            factors = [s / divisor for s in _scales(given)]
            y = self.rescale(self.axis_last(x, given.axis), factors, quant.one_zero, out)
            return self.with_quant(self.axis_back(y, given.axis), quant)
        factor = given.one_scale / quant.one_scale
        return self.with_quant(self.rescale(x, [factor], quant.one_zero, out), quant)

    def _rounded(self, x: Value, quant: Quant, out: d.DType) -> Value:
        """Real numbers of a constant as integers, when they are made."""
        scale, zero = quant.one_scale, quant.one_zero

        def make(given: Array) -> Array:
            real = np.nan_to_num(given.astype(np.float64), posinf=np.inf, neginf=-np.inf)
            levels: Array = np.clip(np.round(real / scale) + zero, *out.range)
            return levels

        return self.remade(x, make, kind=out, quant=quant)

    def widened(self, x: Value, bits: int = 0, ratio: float = 1.0) -> Value:
        """int32 without a zero point, scaled up by ``ratio`` times 2^bits."""
        y = self.rescale(x, [ratio * 2.0**bits], 0, d.I32)
        return self.with_quant(y, Quant(self._quant_of(x).one_scale / ratio / 2.0**bits))

    def _quant_of(self, x: Value) -> Quant:
        if x.quant is None:
            raise Unsupported(f"{x.dtype} has no scale here: the value before it is not quantized")
        return x.quant

    def alike(self, a: Value, b: Value) -> tuple[Value, Value]:
        """Two operands in one type, for one operation of a device: int8 beside int16 as that."""
        if {a.dtype, b.dtype} != {d.I8, d.I16}:
            return a, b
        return self._as_int16(a), self._as_int16(b)

    def _as_int16(self, x: Value) -> Value:
        if x.dtype is d.I16 or x.is_const:
            return x
        made = self.levels(x, d.I16, self._quant_of(x).one_zero)
        return self.with_quant(made, Quant(self._quant_of(x).one_scale))

    def aligned(self, a: Value, b: Value, weight: float = 1.0) -> tuple[Value, Value]:
        """Two quantized operands of a sum in one scale, as int32; the second times ``weight``."""
        if d.I32 in (a.dtype, b.dtype):
            return self._aligned_accumulators(a, b, weight)
        a, b = self.alike(a, b)
        first, second = self._quant_of(a).one_scale, self._quant_of(b).one_scale * weight
        first, second = second if _is_zero(a) else first, first if _is_zero(b) else second
        bits = 0 if first == second else min(self._sum_bits.get(v.dtype, 0) for v in (a, b))
        largest = max(first, second)
        wide = [self.widened(v, bits, s / largest) for v, s in ((a, first), (b, second))]
        for value in wide:
            value.quant = Quant(largest / 2.0**bits)
        return wide[0], wide[1]

    def _aligned_accumulators(self, a: Value, b: Value, weight: float) -> tuple[Value, Value]:
        """The same where an operand is an accumulator, maybe with a scale for each channel.

        The scale is the finest in which no sum of what the types can hold overflows. An int32
        accumulator loses two bits or three of those that it has below a step of the result. A
        narrow operand leaves two more: RESCALE takes no value that has as many bits as its shift.
        """
        reach = sum(max(_scales(self._quant_of(v))) * factor * self._most(v)
                    * (2 if v.dtype in (d.I32, d.I48) else 8)
                    for v, factor in ((a, 1.0), (b, weight)))  # fmt: skip
        scale = reach / 2.0**31
        return (
            self.with_quant(self.requantize(a, Quant(scale), d.I32), Quant(scale)),
            self.with_quant(self.requantize(b, Quant(scale / weight), d.I32), Quant(scale)),
        )

    def _most(self, x: Value) -> float:
        """How far from 0 an operand of a sum can be; int48 is never as far as its type."""
        return self.magnitude(x, exact=True) + 1.0 if x.dtype is d.I48 else x.dtype.range[1] + 1.0

    def bounded(self, x: Value, low: float, high: float) -> Value:
        """The value limited to a range of real numbers; free where it has to be rescaled anyway."""
        if x.quant is None:
            return self._clamp(x, max(low, -math.inf), min(high, math.inf))
        x = self.requantized(x)
        quant, (least, most) = self._quant_of(x), x.dtype.range
        scale, zero = quant.one_scale, quant.one_zero
        bottom = least if low == -math.inf else max(least, round(low / scale) + zero)
        top = most if high == math.inf else min(most, round(high / scale) + zero)
        if (bottom, top) == (least, most):
            return x
        return self.with_quant(self._clamp(x, bottom, top), quant)

    def _clamp(self, x: Value, low: float, high: float) -> Value:
        if x.dtype is d.I32:  # TOSA has no CLAMP of int32
            above = x if low == -math.inf else self.MAXIMUM(x, self.number(math.ceil(low), x))
            if high == math.inf:
                return above
            return self.MINIMUM(above, self.number(math.floor(high), x))
        if x.dtype.is_int and x.quant is None:
            least, most = x.dtype.range
            low = math.ceil(low) if low > least else least
            high = math.floor(high) if high < most else most
        return self.CLAMP(x, min_val=low, max_val=high)

    def table(
        self, x: Value, function: Callable[[Tensor], Tensor], reach: float = math.inf
    ) -> Value:
        """A function of one value: exact in int8, between 513 nodes of one or more tables in int16.

        Beyond ``reach`` it changes no more than int16 shows, so no nodes are spent there if they
        are half of them: below, rounding to other steps would cost more than it brings.
        """
        given, (quant, out) = self._quant_of(x), self.wanted or (None, None)
        if x.dtype is d.I32 and quant is not None and out in (d.I8, d.I16):
            return of_octaves(self, x, function, quant, out)
        if quant is None or out is None or (x.dtype, out) not in _FUNCTIONS:
            raise Unsupported("a function of integers needs int8 or int16, and no more of them")
        if x.dtype is d.I8:
            entries = table8(function, given, quant)
            return self.with_quant(self.TABLE(x, self.const(entries.numpy(), d.I8)), quant)
        if given.one_scale * 2**15 > 2 * reach:
            given = Quant(reach / 2**15)
            x = self.requantize(x, given, d.I16)
        finer = 1 if out is d.I16 else 128  # int8 with any zero point fits int16 so
        fine = Quant(quant.one_scale / finer)
        nodes, factor, off = table16(function, given, fine)
        if off > FINE:
            with self.scratch() as trial:
                try:
                    sums = self._zones(x, zones16(function, given, fine))
                    made = self.rescale(sums, [1 / finer], quant.one_zero, out)
                    trial.commit()
                    return self.with_quant(made, quant)
                except Unsupported:
                    if off > LIMIT:
                        raise
        value = self.TABLE(x, self.const(nodes.numpy(), d.I16))  # with 7 more bits
        value = self.rescale(value, [2.0**-7], 0, d.I16)  # as devices have a table
        if factor != 1 or out is d.I8:
            value = self.rescale(value, [1 / factor / finer], quant.one_zero, out)
        return self.with_quant(value, quant)

    def _zones(self, x: Value, zones: Sequence[Zone]) -> Value:
        """The sum of tables, each of its own part of the inputs."""
        total, wide = None, self.levels(x)
        for zone in zones:
            near = x
            if zone.factor > 1:
                apart = self.SUB(wide, self.number(zone.middle, wide))
                near = self.rescale(apart, [float(zone.factor)], 0, d.I16)
            made = self.TABLE(near, self.const(zone.nodes.numpy(), d.I16))
            short = self.rescale(made, [2.0**-7], 0, d.I16)
            term = self.rescale(short, [float(zone.gain)], 0, d.I32)
            total = term if total is None else self.ADD(total, term)
        assert total is not None
        return total


def _magnitudes(bounds: Bounds, given: int) -> Array:
    """How far from a zero point the channels of a value can be, or all of it."""
    if not bounds.is_one and bounds.low.ndim > 1:
        bounds = bounds.over(*range(bounds.low.ndim - 1))
    found: Array = np.maximum(given - bounds.low, bounds.high - given).reshape(-1)
    return found


def _reshaped(quant: Quant | None, old: Sequence[int], new: Sequence[int]) -> Quant | None:
    """The same scales along the axis that has as many elements before it and as many itself."""
    if quant is None or quant.axis is None:
        return quant
    size, before = old[quant.axis], math.prod(old[: quant.axis])
    for axis, length in enumerate(new):
        if length == size and math.prod(new[:axis]) == before:
            return Quant(quant.scale, quant.zero_point, axis)
    raise Unsupported("an axis with a scale for each channel cannot be reshaped")


def _scales(quant: Quant) -> tuple[float, ...]:
    return quant.scale if isinstance(quant.scale, tuple) else (quant.scale,)


def _is_zero(x: Value) -> bool:
    """Whether a quantized value is a constant of zeros, to which every scale is right."""
    if not x.is_const or x.const is None or x.quant is None:
        return False
    return not (x.const.array != x.quant.one_zero).any()

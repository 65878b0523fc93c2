"""The Builder that rules use: TOSA operators, and the meanings that need several of them.

A quantized value is an integer Value with a Quant. An accumulator is an int32 or int48 value
whose zero point is 0; ``settle`` rescales it to what the next call wants. Rules never see which
call comes next: ``wanted`` says what the result must become, or None if it may stay as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import Unsupported
from tosaic.front.casts import to_integers
from tosaic.front.tables import table8, table16
from tosaic.ir.build import Builder
from tosaic.ir.graph import Quant, Value
from tosaic.spec import dtypes as d

# The larger operand of a sum is widened by this many bits: what Ethos-U fuses into one ADD.
SUM_BITS = {d.I8: 19, d.I16: 14}
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
}


class Lowering(Builder):
    """A Builder with the vocabulary of the rules."""

    wanted: tuple[Quant, d.DType] | None = None
    items: Mapping[int, tuple[Quant, d.DType]] = MappingProxyType(
        {}
    )  # the same for several results

    if TYPE_CHECKING:  # the operators that rules use have one result

        def __getattr__(self, name: str) -> Callable[..., Value]: ...

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
            if kind is d.BF16:
                return plain.view(torch.int16).numpy().view(kind.array)
            return np.asarray(plain.numpy(), dtype=kind.array)

        return self.const(make, kind, quant=quant, shape=tuple(source.shape))

    def number(self, value: float, like: Value) -> Value:
        """A constant of one element in the type and rank of another value."""
        return self.const(np.full((1,) * like.type.rank, value, dtype=like.dtype.array), like.dtype)

    def quantized_number(self, value: float, quant: Quant, kind: d.DType, rank: int) -> Value:
        """A constant of one element, rounded to the nearest of some parameters; saturates.

        What is no number becomes 0, as integers have nothing for it.
        """
        real = 0.0 if math.isnan(value) else value
        steps = float(np.clip(real / _scale(quant) + _zero(quant), *kind.range))
        return self.const(np.full((1,) * rank, round(steps)), kind, quant=quant)

    def marked(self, value: Value, quant: Quant | None) -> Value:
        """Say what integers mean."""
        value.quant = quant
        return value

    def permute(self, x: Value, perms: Sequence[int]) -> Value:
        """A transposition; a constant is turned itself, when it is made."""
        perms = tuple(perms)
        if perms == tuple(range(x.type.rank)):
            return x
        quant = x.quant
        if quant is not None and quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, perms.index(quant.axis))
        if x.const is not None and x.is_const:
            source, shape = x.const, tuple(x.shape[p] for p in perms)
            return self.const(
                lambda: source.array.transpose(perms), x.dtype, quant=quant, shape=shape
            )
        return self.marked(self.TRANSPOSE(x, perms=perms), quant)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Another shape for the same elements; an axis of scales must stay whole."""
        shape = tuple(shape)
        if shape == x.shape:
            return x
        quant = _reshaped(x.quant, x.shape, shape)
        if x.const is not None and x.is_const:
            source = x.const
            return self.const(
                lambda: source.array.reshape(shape), x.dtype, quant=quant, shape=shape
            )
        return self.marked(self.RESHAPE(x, self.shape(shape)), quant)

    def same_rank(self, *values: Value) -> list[Value]:
        """Leading ones, as PyTorch broadcasts and TOSA does not."""
        rank = max(v.type.rank for v in values)
        return [self.reshape(v, (1,) * (rank - v.type.rank) + v.shape) for v in values]

    def rescale(self, x: Value, factor: Sequence[float], zero_point: int, out: d.DType) -> Value:
        """RESCALE by real factors, one or one for each element of the last axis."""
        wide = x.dtype is not d.I48
        pairs = [multiplier_and_shift(f, 31 if wide else 15) for f in factor]
        given = x.quant.zero_point if x.quant is not None and x.dtype is d.I8 else 0
        value: Value = self.RESCALE(
            x,
            self.const([m for m, _ in pairs], d.I32 if wide else d.I16),
            self.const([s for _, s in pairs], d.I8),
            self.const([given], x.dtype),
            self.const([zero_point], out),
            scale32=wide, rounding_mode="SINGLE_ROUND", per_channel=len(factor) > 1, out=out,
        )  # fmt: skip
        return value

    def levels(self, x: Value, out: d.DType = d.I32, given: int = 0, zero: int = 0) -> Value:
        """x − given + zero in another type, whatever it means; what does not fit saturates."""
        value: Value = self.RESCALE(
            x, self.const([1 << 30], d.I32), self.const([30], d.I8), self.const([given], x.dtype),
            self.const([zero], out), scale32=True, rounding_mode="SINGLE_ROUND",
            per_channel=False, out=out,
        )  # fmt: skip
        return value

    def settle(self, x: Value, quant: Quant, out: d.DType) -> Value:
        """The value in other parameters; nothing if it has them already."""
        if x.quant is None and x.is_const and x.dtype.is_float:
            return self._rounded(x, quant, out)
        if x.quant is None and x.dtype.is_float:
            return to_integers(self, x, quant, out)
        given = self._meaning(x)
        if given == quant and x.dtype is out:
            return x
        if given.axis is not None:
            last = x.type.rank - 1
            order = [i for i in range(last + 1) if i != given.axis] + [given.axis]
            turned = self.permute(x, order)
            factors = [s / _scale(quant) for s in _scales(given)]
            y = self.rescale(turned, factors, _zero(quant), out)
            return self.marked(self.permute(y, np.argsort(order).tolist()), quant)
        factor = _scale(given) / _scale(quant)
        return self.marked(self.rescale(x, [factor], _zero(quant), out), quant)

    def _rounded(self, x: Value, quant: Quant, out: d.DType) -> Value:
        """Real numbers of a constant as integers, when they are made."""
        source, scale, zero = x.const, _scale(quant), _zero(quant)
        assert source is not None

        def make() -> np.ndarray[Any, Any]:
            real = np.nan_to_num(source.array.astype(np.float64), posinf=np.inf, neginf=-np.inf)
            levels: np.ndarray[Any, Any] = np.clip(np.round(real / scale) + zero, *out.range)
            return levels

        return self.const(make, out, quant=quant, shape=x.shape)

    def widened(self, x: Value, bits: int = 0, ratio: float = 1.0) -> Value:
        """int32 without a zero point, scaled up by ``ratio`` times 2^bits."""
        given = self._meaning(x)
        y = self.rescale(x, [ratio * 2.0**bits], 0, d.I32)
        return self.marked(y, Quant(_scale(given) / ratio / 2.0**bits))

    def _meaning(self, x: Value) -> Quant:
        if x.quant is None:
            raise Unsupported(f"{x.dtype} has no scale here: the value before it is not quantized")
        return x.quant

    def aligned(self, a: Value, b: Value, weight: float = 1.0) -> tuple[Value, Value]:
        """Two quantized operands of a sum in one scale, as int32; the second times ``weight``."""
        if d.I32 in (a.dtype, b.dtype):
            return self._aligned_accumulators(a, b, weight)
        first, second = _scale(self._meaning(a)), _scale(self._meaning(b)) * weight
        if first == second:
            return self.widened(a), self.widened(b)
        largest, bits = max(first, second), min(SUM_BITS.get(v.dtype, 0) for v in (a, b))
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
        reach = sum(max(_scales(self._meaning(v))) * factor * (v.dtype.range[1] + 1.0)
                    * (2 if v.dtype is d.I32 else 8)
                    for v, factor in ((a, 1.0), (b, weight)))  # fmt: skip
        scale = reach / 2.0**31
        return (
            self.marked(self.settle(a, Quant(scale), d.I32), Quant(scale)),
            self.marked(self.settle(b, Quant(scale / weight), d.I32), Quant(scale)),
        )

    def bounded(self, x: Value, low: float, high: float) -> Value:
        """The value limited to a range of real numbers; free where it has to be rescaled anyway."""
        if x.quant is None:
            return self._clamp(x, max(low, -math.inf), min(high, math.inf))
        if self.wanted is not None:
            x = self.settle(x, *self.wanted)
        quant, (least, most) = self._meaning(x), x.dtype.range
        scale, zero = _scale(quant), _zero(quant)
        bottom = least if low == -math.inf else max(least, round(low / scale) + zero)
        top = most if high == math.inf else min(most, round(high / scale) + zero)
        if (bottom, top) == (least, most):
            return x
        return self.marked(self._clamp(x, bottom, top), quant)

    def _clamp(self, x: Value, low: float, high: float) -> Value:
        if x.dtype is d.I32:  # TOSA has no CLAMP of int32
            above = x if low == -math.inf else self.MAXIMUM(x, self.number(math.ceil(low), x))
            if high == math.inf:
                return above
            return self.MINIMUM(above, self.number(math.floor(high), x))
        value: Value = self.CLAMP(x, min_val=low, max_val=high)
        return value

    def table(
        self, x: Value, function: Callable[[Tensor], Tensor], reach: float = math.inf
    ) -> Value:
        """A function of one value: exact in int8, between 513 nodes in int16.

        Beyond ``reach`` it changes no more than int16 shows, so no nodes are spent there if they
        are half of them: below, rounding to other steps would cost more than it brings.
        """
        given, (quant, out) = self._meaning(x), self.wanted or (None, None)
        if quant is None or out is None or (x.dtype, out) not in _FUNCTIONS:
            raise Unsupported("a function of integers needs int8 or int16, and no more of them")
        if x.dtype is d.I8:
            entries = table8(function, (_scale(given), _zero(given)), (_scale(quant), _zero(quant)))
            return self.marked(self.TABLE(x, self.const(entries.numpy(), d.I8)), quant)
        if _scale(given) * 2**15 > 2 * reach:
            given = Quant(reach / 2**15)
            x = self.settle(x, given, d.I16)
        finer = 1 if out is d.I16 else 128  # int8 with any zero point fits int16 so
        entries, factor = table16(
            function, (_scale(given), _zero(given)), (_scale(quant) / finer, 0)
        )
        value = self.TABLE(x, self.const(entries.numpy(), d.I16))  # with 7 more bits
        return self.marked(
            self.rescale(value, [1 / 128 / factor / finer], _zero(quant), out), quant
        )


def multiplier_and_shift(factor: float, bits: int) -> tuple[int, int]:
    """A real factor as multiplier / 2^shift, the multiplier with as many bits as there are."""
    if not 0 < factor < math.inf:
        raise Unsupported(f"values cannot be rescaled by {factor}")
    fraction, exponent = math.frexp(factor)
    multiplier, shift = round(fraction * (1 << bits)), bits - exponent
    if multiplier == 1 << bits:
        multiplier, shift = multiplier >> 1, shift - 1
    if shift > 62:
        multiplier, shift = multiplier >> (shift - 62), 62
    if shift < 2:
        raise Unsupported(f"values cannot be rescaled by {factor}, which is too large")
    return multiplier, shift


def _reshaped(quant: Quant | None, old: Sequence[int], new: Sequence[int]) -> Quant | None:
    """The same scales along the axis that has as many elements before it and as many itself."""
    if quant is None or quant.axis is None:
        return quant
    size, before = old[quant.axis], math.prod(old[: quant.axis])
    for axis, length in enumerate(new):
        if length == size and math.prod(new[:axis]) == before:
            return Quant(quant.scale, quant.zero_point, axis)
    raise Unsupported("an axis with a scale for each channel is not reshaped")


def _scale(quant: Quant) -> float:
    if isinstance(quant.scale, tuple):
        raise Unsupported("one scale is needed here, not one for each channel")
    return quant.scale


def _zero(quant: Quant) -> int:
    assert not isinstance(quant.zero_point, tuple)
    return quant.zero_point


def _scales(quant: Quant) -> tuple[float, ...]:
    return quant.scale if isinstance(quant.scale, tuple) else (quant.scale,)

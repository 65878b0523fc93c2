"""Fixed-point numbers: integers of a graph that stand for integers times a unit.

Operators of Python emit those of TOSA, and numbers beside a Fixed are real ones: ``u - 1.5`` is the
SUB of a constant in the unit of ``u``. Shifts follow from units: ``u.times(v, unit)`` is one MUL
that rounds once. What a value can be is known from interval analysis, so that nothing is bounded
twice: ``fitted`` drops as many bits as the largest number that there can be has too many, and
``proved`` adds what follows from more than the ranges of operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tosaic.ir.graph import Array, Quant, Value
from tosaic.ir.multipliers import multiplier_and_shift
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """real = value · unit. What is scaled by a power of two of its row has the unit 1."""

    b: Lowering
    value: Value
    unit: float = 1.0

    @classmethod
    def of(cls, b: Lowering, x: Value) -> Fixed:
        """A quantized value as int32 without its zero point."""
        wide = b.widened(x)
        assert wide.quant is not None
        return cls(b, wide, wide.quant.one_scale)

    def constant(self, real: float) -> Value:
        """A number in this unit, in the type and rank of the value."""
        return self.b.number(round(real / self.unit), self.value)

    def map(self, change: Callable[[Value], Value]) -> Fixed:
        """The same numbers, moved."""
        return Fixed(self.b, change(self.value), self.unit)

    def at(self, unit: float) -> Fixed:
        """The same integers in another unit: other numbers."""
        return Fixed(self.b, self.value, unit)

    def quantized(self) -> Value:
        """The integers with their unit as scale."""
        return self.b.with_quant(self.value, Quant(self.unit))

    def proved(self, low: float, high: float = math.inf) -> Fixed:
        """Say what the numbers lie within; the proof stands where it is said."""
        least, most = self.value.dtype.range
        ends = max(low / self.unit, least), min(high / self.unit, most)
        return self.map(lambda value: self.b.proved(value, *ends))

    @property
    def most(self) -> int:
        """The largest magnitude that an integer can have, by interval analysis."""
        return self.b.magnitude(self.value)

    def _other(self, other: Fixed | float) -> Value:
        if not isinstance(other, Fixed):
            return self.constant(other)
        assert math.isclose(self.unit, other.unit, rel_tol=1e-9), "a sum of different units"
        return other.value

    def _emit(self, name: str, *ins: Value, **attrs: Any) -> Fixed:
        return Fixed(self.b, self.b.op(name, *ins, **attrs), self.unit)

    def __add__(self, other: Fixed | float) -> Fixed:
        return self._emit("ADD", self.value, self._other(other))

    def __sub__(self, other: Fixed | float) -> Fixed:
        return self._emit("SUB", self.value, self._other(other))

    def __rsub__(self, other: float) -> Fixed:
        return self._emit("SUB", self.constant(other), self.value)

    def __neg__(self) -> Fixed:
        return 0 - self

    def __mul__(self, other: Fixed | int) -> Fixed:
        """An exact product; of int8 and int16 it is an int32."""
        if isinstance(other, Fixed):
            return self.times(other, self.unit * other.unit)
        return self.times(Fixed(self.b, self.b.number(other, self.value)), self.unit)

    def __lshift__(self, bits: Fixed | int) -> Fixed:
        count = bits.value if isinstance(bits, Fixed) else self.b.number(bits, self.value)
        return self._emit("LOGICAL_LEFT_SHIFT", self.value, count)

    def __rlshift__(self, number: int) -> Fixed:
        """A power of two, of a whole exponent."""
        return Fixed(self.b, self.b.number(number, self.value)) << self

    def __rshift__(self, bits: Fixed | int) -> Fixed:
        """Rounded to the nearest, halves up, which every target has."""
        count = bits.value if isinstance(bits, Fixed) else self.b.number(bits, self.value)
        return self._emit("ARITHMETIC_RIGHT_SHIFT", self.value, count, round=True)

    def times(self, other: Fixed, unit: float) -> Fixed:
        """A product in a unit that is a power of two of its own: rounded once."""
        exact, whole = self.unit * other.unit, 0
        if exact != unit:
            whole = round(math.log2(unit / exact))
            assert math.isclose(exact * 2.0**whole, unit, rel_tol=1e-9), "no shift has this unit"
        return Fixed(self.b, self.b.mul(self.value, other.value, whole), unit)

    def scaled(self, unit: float, factor: float = 1.0) -> Fixed:
        """int32 times a real factor in another unit; only the result has to fit."""
        multiplier, shift = multiplier_and_shift(factor * self.unit / unit, 31)
        number = self.b.number(multiplier, self.value)
        return Fixed(self.b, self.b.mul(self.value, number, shift), unit)

    def to(self, kind: d.DType, unit: float | None = None) -> Fixed:
        """In another type and unit; what does not fit saturates."""
        unit = self.unit if unit is None else unit
        return Fixed(self.b, self.b.rescale(self.value, [self.unit / unit], 0, kind), unit)

    def fitted(self, bits: int) -> tuple[Fixed, int]:
        """int32 of at most so many bits, and how many were dropped for that."""
        spare = max(self.most.bit_length() - bits, 0)
        if not spare and self.value.dtype is d.I32:
            return self, 0
        return self.to(d.I32, self.unit * 2.0**spare), spare

    def split(self, bits: int) -> tuple[Fixed, Fixed]:
        """The number without its last bits, rounded, and what that leaves of it."""
        count = Fixed(self.b, self.b.number(bits, self.value))
        upper = self >> count
        return upper, self - (upper << count)

    def split_down(self, bits: int) -> tuple[Fixed, Fixed]:
        """The number without its last bits, rounded down, and these; by a shift that rounds.

        It rounds half up, so that a number less a half is rounded down.
        """
        unit = self.unit
        upper = (self.at(1.0) - (1 << bits - 1) >> bits).at(unit)
        return upper, (self - (upper << bits)).proved(0, ((1 << bits) - 1) * unit)

    def maximum(self, other: Fixed | float) -> Fixed:
        return self._emit("MAXIMUM", self.value, self._other(other))

    def minimum(self, other: Fixed | float) -> Fixed:
        return self._emit("MINIMUM", self.value, self._other(other))

    def within(self, most: float) -> Fixed:
        """Limited to a magnitude, which may be beyond what the type holds."""
        limit = min(int(most / self.unit), self.value.dtype.range[1])
        return self.at(1.0).maximum(-limit).minimum(limit).at(self.unit)

    def abs(self) -> Fixed:
        return self._emit("ABS", self.value)

    def zeros(self) -> Fixed:
        """How many bits of 32 are 0 before the highest that is not."""
        return self._emit("CLZ", self.value).at(1.0)

    def sum(self, axis: int) -> Fixed:
        return self._emit("REDUCE_SUM", self.value, axis=axis)

    def table(self, entries: Array | Sequence[int], kind: d.DType) -> Fixed:
        """An entry for each int8, or between two of 513 for each int16, with 7 more bits."""
        made = self.b.TABLE(self.value, self.b.const(entries, kind))
        return Fixed(self.b, made, 1.0 if kind is d.I8 else 1 / 128)

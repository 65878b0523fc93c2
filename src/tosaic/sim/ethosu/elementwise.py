"""ELEMENTWISE: sums, products, comparisons, shifts and logic on one or two inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.arrays import Array, Ints
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.operation import Operand, Operation
from tosaic.sim.ethosu.output import Rows, finish_parts, part
from tosaic.sim.ethosu.registers import Elementwise
from tosaic.sim.ethosu.scaling import multiply, rescale, shift_right

Binary = Callable[[Ints, Ints], Ints]

_PLAIN_SHIFT = {1: 19, 2: 14}
"""U55: the operand that is not scaled is shifted left by so many bits, by bytes of an element."""


def _leading_zeros(a: Ints) -> Ints:
    """Leading zeros of 32 bits: a float64 holds the number, and its exponent the answer."""
    unsigned = (a & 0xFFFFFFFF).astype(np.float64)
    return 32 - np.frexp(unsigned)[1].astype(np.int64)


def _quotient(a: Ints, b: Ints) -> Ints:
    """Towards zero."""
    if not b.all():
        raise Unsupported("a division by zero")
    magnitude = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -magnitude, magnitude)


def _mask(truth: NDArray[np.bool_]) -> Ints:
    """Comparisons give all bits or none."""
    return -truth.astype(np.int64)


_BINARY: dict[Elementwise, Binary] = {
    Elementwise.MUL: multiply,
    Elementwise.ADD: lambda a, b: a + b,
    Elementwise.SUB: lambda a, b: a - b,
    Elementwise.MIN: np.minimum,
    Elementwise.MAX: np.maximum,
    Elementwise.DIV: _quotient,
    Elementwise.CMP_EQ: lambda a, b: _mask(a == b),
    Elementwise.CMP_NE: lambda a, b: _mask(a != b),
    Elementwise.CMP_GE: lambda a, b: _mask(a >= b),
    Elementwise.CMP_GT: lambda a, b: _mask(a > b),
    Elementwise.AND: lambda a, b: a & b,
    Elementwise.OR: lambda a, b: a | b,
    Elementwise.XOR: lambda a, b: a ^ b,
    Elementwise.AND_NOT: lambda a, b: a & ~b,
}
_COMPARISONS = (Elementwise.CMP_EQ, Elementwise.CMP_NE, Elementwise.CMP_GE, Elementwise.CMP_GT)
# 32 bits hold operands of 16 and less, and what these give.
_NARROW = (Elementwise.ADD, Elementwise.SUB, Elementwise.MIN, Elementwise.MAX, Elementwise.MUL)
_SHIFTS = (Elementwise.SHR, Elementwise.SHL, Elementwise.LSR)


class ElementwiseRun:
    """An elementwise operation of a program."""

    macs = 0

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        try:
            self.mode = Elementwise(operation.mode)
        except ValueError:
            raise Unsupported(f"the elementwise mode {operation.mode}") from None

    def __call__(self, machine: Machine) -> None:
        operation = self.operation
        operands = [o for o in (operation.ifm, operation.ifm2) if o is not None]
        loaded = [machine.load(operand) for operand in operands]

        def sums(rows: Rows) -> Ints:
            pairs = zip(operands, loaded, strict=True)
            given = [self._input(part(x, rows), o, i) for i, (o, x) in enumerate(pairs)]
            found = self._computed(*(reversed(given) if operation.swapped else given))
            if self.mode in _COMPARISONS:
                machine.condition = bool(found) if all(x.size == 1 for x in loaded) else None
            return found

        finish_parts(machine, operation.output, sums)

    def _computed(self, a: Ints, b: Ints | None = None) -> Ints:
        if b is None:
            return self._unary(a)
        return self._shift(a, b) if self.mode in _SHIFTS else _BINARY[self.mode](a, b)

    def _input(self, values: Array, operand: Operand, index: int) -> Ints:
        small = operand.dtype.itemsize <= 2 and self.mode in _NARROW
        values = values.astype(np.int32 if small else np.int64)
        if operand.zero_point:
            values -= operand.zero_point
        wide = self.operation.wide_operand
        if wide is not None and wide != index:
            return values << _PLAIN_SHIFT[operand.dtype.itemsize]
        scaling = operand.scaling
        if scaling.double:
            raise Unsupported(f"an input scaled by {scaling}")
        if small and (scaling.multiplier, scaling.shift) == (1, 0):
            return values
        return rescale(values, scaling.multiplier, scaling.shift, scaling.rounding)

    def _shift(self, a: Ints, b: Ints) -> Ints:
        bits = 8 * self.operation.ifm.dtype.itemsize
        if ((b < 0) | (b > 63)).any():
            raise Unsupported("a shift by less than 0 or more than 63 bits")
        if self.mode is Elementwise.SHL:
            # Only the low bits stay, and their sign.
            kept = np.where(b >= bits, 0, a << np.minimum(b, 31)) & (1 << bits) - 1
            return kept - (kept >> bits - 1 << bits)
        if self.mode is Elementwise.LSR:
            kept = (a & (1 << bits) - 1) >> b
            return kept - (kept >> bits - 1 << bits)
        return shift_right(a, b, self.operation.output.scaling.rounding)

    def _unary(self, a: Ints) -> Ints:
        if self.mode is Elementwise.ABS:
            return np.abs(a)
        if self.mode is Elementwise.CLZ:
            return _leading_zeros(a)
        if self.mode is Elementwise.NOT:
            return ~a
        return self._leaky(a)

    def _leaky(self, a: Ints) -> Ints:
        raise Unsupported(f"the elementwise operation {self.mode.name}")

"""ELEMENTWISE: sums, products, comparisons, shifts and logic on one or two inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.operation import Operand, Operation
from tosaic.sim.ethosu.output import finish
from tosaic.sim.ethosu.registers import Elementwise
from tosaic.sim.ethosu.scaling import rescale, shift_right

Ints = NDArray[np.int64]
Binary = Callable[[Ints, Ints], Ints]

_PLAIN_SHIFT = {1: 19, 2: 14}
"""U55: the operand that is not scaled is shifted left by so many bits, by bytes of an element."""


def _clz(a: Ints) -> Ints:
    """Leading zeros of 32 bits."""
    unsigned = (a & 0xFFFFFFFF).astype(np.uint64)
    bits = np.zeros(a.shape, np.int64)
    for step in (16, 8, 4, 2, 1):
        above = unsigned >> np.uint64(step)
        bits += np.where(above > 0, step, 0)
        unsigned = np.where(above > 0, above, unsigned)
    return np.where((a & 0xFFFFFFFF) == 0, 32, 31 - bits)


_BINARY: dict[Elementwise, Binary] = {
    Elementwise.MUL: lambda a, b: a * b,
    Elementwise.ADD: lambda a, b: a + b,
    Elementwise.SUB: lambda a, b: a - b,
    Elementwise.MIN: np.minimum,
    Elementwise.MAX: np.maximum,
    Elementwise.SHL: lambda a, b: a << b,
}


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
        operation, mode = self.operation, self.mode
        a = self._input(machine, operation.ifm, 0)
        if operation.ifm2 is None:
            finish(machine, operation.output, self._unary(a))
            return
        b = self._input(machine, operation.ifm2, 1)
        if operation.swapped:
            a, b = b, a
        if mode is Elementwise.SHR:
            found = shift_right(a, b, operation.output.scaling.rounding)
        elif mode in _BINARY:
            found = _BINARY[mode](a, b)
        else:
            raise Unsupported(f"the elementwise operation {mode.name}")
        result = np.broadcast_to(found, operation.output.shape)
        finish(machine, operation.output, result)

    def _input(self, machine: Machine, operand: Operand, index: int) -> Ints:
        values = machine.load(operand).astype(np.int64)
        if operand.zero_point:
            values = values - operand.zero_point
        wide = self.operation.wide_operand
        if wide is not None and wide != index:
            return values << _PLAIN_SHIFT[operand.dtype.itemsize]
        scaling = operand.scaling
        return rescale(values, scaling.multiplier, scaling.shift, scaling.rounding)

    def _unary(self, a: Ints) -> Ints:
        if self.mode is Elementwise.ABS:
            return np.abs(a)
        if self.mode is Elementwise.CLZ:
            return _clz(a)
        raise Unsupported(f"the elementwise operation {self.mode.name}")

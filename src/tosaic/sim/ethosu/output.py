"""The output stage: rounding, scale, zero point, clamp, table and write."""

from __future__ import annotations

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Array, Ints, value_range
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Block
from tosaic.sim.ethosu.operation import Lookup, Operation, Output
from tosaic.sim.ethosu.scales import Scales
from tosaic.sim.ethosu.scaling import rescale

_ALL = 1 << 18  # values from which the results of all 65,536 are cheaper


def finish(machine: Machine, output: Output, sums: Ints, scales: Scales | None = None) -> None:
    """Scale the sums of an operation and hand its result on."""
    rounding = output.scaling.rounding
    if scales is not None and output.per_channel:
        scaled = rescale(sums, scales.multiplier, scales.shift, rounding)
    else:
        scaled = rescale(sums, output.scaling.multiplier, output.scaling.shift, rounding)
    deliver(machine, output, scaled)


def deliver(machine: Machine, output: Output, scaled: Ints) -> None:
    """Zero point, limits, table and layout of what is scaled already."""
    value = scaled + output.zero_point if output.zero_point else scaled
    if output.limits is not None:
        value = np.clip(value, *output.limits, out=value if value is not scaled else None)
    place(machine, output, value)


def place(machine: Machine, output: Output, value: Array) -> None:
    """Table and layout of what is within its limits."""
    if value.shape != output.shape:
        raise InvalidInput(f"the operation gives {value.shape}, its output is {output.shape}")
    if output.lookup is not None:
        value = _look_up(machine, output.lookup, value)
    result = value.astype(output.dtype, copy=False)
    if output.chain is not None:
        machine.chains[output.chain] = result
        return
    if output.reverse is not None:
        result = np.flip(result, output.reverse)
    if output.transpose != (0, 1, 2):
        result = result.transpose(output.transpose)
    if output.map is not None:
        output.map.store(machine.memory, result)


def table_block(lookup: Lookup) -> Block:
    entries = 256 if lookup.index.itemsize == 1 else 512
    size = entries * lookup.entry.itemsize if lookup.index.itemsize == 1 else 2048
    return Block(INTERNAL, lookup.start, (size,), (1,), 1)


def _look_up(machine: Machine, lookup: Lookup, value: Array) -> Ints:
    value = value.astype(np.int64, copy=False)
    raw = machine.memory.view(table_block(lookup), np.dtype("u1"))
    if lookup.index.itemsize == 1:
        table = np.ascontiguousarray(raw).view(lookup.entry)
        lowest, _ = value_range(lookup.index)
        result: Ints = table[(value - lowest) & 0xFF].astype(np.int64)
        return result
    # 512 pieces of 128 values: the value at the start of a piece, and the rise to its end.
    pieces = np.ascontiguousarray(raw).view(np.int16).reshape(512, 2).astype(np.int64)
    lowest, highest = value_range(np.dtype(np.int16))
    if value.size > _ALL and lowest <= value.min() and value.max() <= highest:
        # From 0 on, then from the lowest: a negative index counts from the end.
        every = np.roll(np.arange(lowest, highest + 1), lowest)
        return _interpolate(lookup, pieces, every).take(value)
    return _interpolate(lookup, pieces, value)


def _interpolate(lookup: Lookup, pieces: Ints, value: Ints) -> Ints:
    start, rise = pieces[(value >> 7) + 256].transpose(-1, *range(value.ndim))
    exact: Ints = (start << 7) + rise * (value & 127)
    return (exact + 64) >> 7 if lookup.entry.itemsize == 2 else exact


def hand_on(
    machine: Machine, operation: Operation, sums: Ints, scales: Scales | None = None
) -> None:
    """Add what the sums start from, then finish the operation or keep them for the next."""
    if operation.start == "ifm2":
        operand = operation.ifm2
        assert operand is not None
        first = machine.load(operand).astype(np.int64) - operand.zero_point
        if first.shape != sums.shape:
            raise InvalidInput(f"sums of shape {sums.shape} start from IFM2 of {first.shape}")
        sums = sums + first
    elif operation.start == "keep":
        kept = machine.sums
        if kept is None or kept.shape != sums.shape:
            raise InvalidInput("the operation goes on with sums that none before it has kept")
        sums = sums + kept
    machine.sums = sums.astype(np.int64) if not operation.emit else None
    if operation.emit:
        finish(machine, operation.output, sums, scales)

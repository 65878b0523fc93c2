"""The output stage: rounding, scale, zero point, clamp, table and write."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Array, Ints, value_range
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Block
from tosaic.sim.ethosu.operation import Lookup, Operation, Output
from tosaic.sim.ethosu.scales import Scales
from tosaic.sim.ethosu.scaling import limited, rescale

_ALL = 1 << 18  # values from which the results of all 65,536 are cheaper
_BLOCK = 1 << 16  # values of a part, whose sums and products the caches hold

Rows = tuple[slice, ...]
Table = Callable[[Array], Array]


def parts_of(shape: tuple[int, int, int]) -> Iterator[Rows]:
    """A map in parts of whole rows or columns, each of which stays in the caches."""
    axis, size = int(shape[1] > shape[0]), math.prod(shape)
    step = max(1, _BLOCK * shape[axis] // size) if size > 2 * _BLOCK else max(1, shape[axis])
    for start in range(0, max(1, shape[axis]), step):
        yield (*(slice(None),) * axis, slice(start, start + step))


def part(values: Array, rows: Rows) -> Array:
    """What an operand that is broadcast gives to a part."""
    axis = len(rows) - 1
    return values if values.shape[axis] == 1 else values[rows]


def finish(machine: Machine, output: Output, sums: Ints, scales: Scales | None = None) -> None:
    """Scale the sums of an operation and hand its result on."""
    if sums.shape != output.shape:
        raise InvalidInput(f"the operation gives {sums.shape}, its output is {output.shape}")
    finish_parts(machine, output, lambda rows: sums[rows], scales)


def finish_parts(
    machine: Machine, output: Output, sums_of: Callable[[Rows], Ints], scales: Scales | None = None
) -> None:
    """The same for sums that are made part by part, and may have one number for many results."""
    table, whole = _table(machine, output), np.empty(output.shape, output.dtype)
    for rows in parts_of(output.shape):
        value = _limited(output, sums_of(rows), scales)
        whole[rows] = value if table is None else table(value)
    _lay(machine, output, whole)


def _limited(output: Output, sums: Ints, scales: Scales | None) -> Ints:
    """Rounding, scale, zero point and limits."""
    rounding = output.scaling.rounding
    if scales is not None and output.per_channel:
        scaled = rescale(sums, scales.multiplier, scales.shift, rounding)
    else:
        scaled = rescale(sums, output.scaling.multiplier, output.scaling.shift, rounding)
    value = scaled + output.zero_point if output.zero_point else scaled
    if output.limits is not None:
        value = limited(value if value is not sums else sums.copy(), *output.limits)
    return value


def place(machine: Machine, output: Output, value: Array) -> None:
    """Table and layout of what is within its limits."""
    if value.shape != output.shape:
        raise InvalidInput(f"the operation gives {value.shape}, its output is {output.shape}")
    table = _table(machine, output)
    _lay(machine, output, value if table is None else table(value))


def _lay(machine: Machine, output: Output, value: Array) -> None:
    """Write a result where it belongs, in its layout."""
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


def _table(machine: Machine, output: Output) -> Table | None:
    """The lookup of an output as a function of its values, read from memory once."""
    lookup = output.lookup
    if lookup is None:
        return None
    raw = machine.memory.view(table_block(lookup), np.dtype("u1"))
    if lookup.index.itemsize == 1:
        table = np.ascontiguousarray(raw).view(lookup.entry).astype(output.dtype)
        # By the bits of the value: from 0 on, then from the lowest.
        lowest, _ = value_range(lookup.index)
        table = np.roll(table, lowest)
        return lambda value: table.take(value.astype(np.uint8))
    # 512 pieces of 128 values: the value at the start of a piece, and the rise to its end.
    pieces = np.ascontiguousarray(raw).view(np.int16).reshape(512, 2).astype(np.int64)
    lowest, highest = value_range(np.dtype(np.int16))
    within = output.limits is not None and lowest <= output.limits[0] <= output.limits[1] <= highest
    if not within or math.prod(output.shape) <= _ALL:
        return lambda value: _interpolate(lookup, pieces, value.astype(np.int64, copy=False))
    # From 0 on, then from the lowest, by the bits of the value.
    every = np.roll(np.arange(lowest, highest + 1), lowest)
    results = _interpolate(lookup, pieces, every).astype(output.dtype)
    return lambda value: results.take(value.astype(np.uint16))


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

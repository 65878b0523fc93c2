"""Operations of U85 from their registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.arrays import DType, value_range
from tosaic.sim.ethosu.fields import NO_SCALES, Registers
from tosaic.sim.ethosu.operation import (
    Coded,
    Lookup,
    Operand,
    Operation,
    Output,
    Scaling,
    Shape,
    Steps,
)
from tosaic.sim.ethosu.registers import UNARY, Pooling, Rounding
from tosaic.sim.ethosu.stream import Config

_ROUNDING = tuple(Rounding)
_TILES, _CHAINED, _NONE = 0, 2, 3
"""Where a tensor is: in memory in two by two tiles, in a chaining buffer, nowhere."""
_MICROBLOCKS = (1, 2, 4, 4, 8, 16)
_TRANSPOSE = {0: (0, 1, 2), 1: (1, 0, 2), 2: (0, 2, 1), 3: (1, 2, 0), 6: (2, 0, 1), 7: (2, 1, 0)}
"""Which axes of height, width and depth the axes in memory are."""
_SCALAR = 8
_TABLES = {
    1: ("u1", "u1"), 4: ("i1", "i1"), 5: ("i1", "i2"), 7: ("i1", "i4"), 8: ("i2", "i2"),
    9: ("i2", "i4"),
}  # fmt: skip


def decode(kind: str, mode: int, registers: Registers, config: Config) -> Operation:
    r = registers
    output = _output(r)
    if kind == "ELEMENTWISE":
        return _elementwise(mode, r, output)
    if kind == "RESIZE":
        return _resize(mode, r, output)
    window = r.window()
    shape, upscale = r.ifm_shape(window, r.size("IFM_DEPTH"))
    start = ("reset", "keep", "ifm2")[min(r.bits("ACC_FORMAT", 4, 2), 2)]
    wide = r.bits("ACC_FORMAT", 0, 2)
    if wide > 1:
        raise Unsupported(f"ACC_FORMAT {r['ACC_FORMAT']:#x}")
    # With a pooling of nothing the first input is not read: sums come from the second.
    idle = kind == "POOL" and mode == Pooling.NONE
    ifm = Operand(np.dtype("i1"), 0, shape, scalar=0) if idle else _operand(r, "IFM", shape)
    operation = Operation(
        kind, mode, ifm, output, window=window, upscale=upscale,
        accumulator=48 if wide else 32, start=start, emit=not r.bits("ACC_FORMAT", 6),
    )  # fmt: skip
    if start == "ifm2":
        operation = replace(operation, ifm2=_operand(r, "IFM2", output.shape))
    if kind == "POOL":
        if mode not in tuple(Pooling):
            raise Unsupported(f"U85 has no pooling mode {mode}")
        scales = r.streams("SCALE", 1, NO_SCALES) if output.per_channel else ()
        return replace(operation, scales=scales, divide=mode == Pooling.AVERAGE)
    if mode & 1:
        return _dynamic(r, operation)
    return replace(operation, coded=_coded(r, config), scales=r.streams("SCALE", 1, NO_SCALES))


def _dynamic(r: Registers, operation: Operation) -> Operation:
    """A convolution whose weights are the second input: a row for each output channel."""
    shape = (1, operation.output.shape[2], operation.ifm.shape[2])
    ifm2 = _operand(r, "IFM2", shape)
    return replace(operation, ifm2=ifm2, dynamic_weights=True)


def _storage(r: Registers, name: str) -> int:
    storage = r.bits(name, 14, 2)
    if storage not in (_TILES, _CHAINED, _NONE):
        raise Unsupported(f"{name} {r[name]:#x}: three tiles in a column")
    return storage


def _operand(r: Registers, prefix: str, shape: Shape) -> Operand:
    name = f"{prefix}_PRECISION"
    dtype = r.dtype(name, 2)
    zero_point = r.zero_point(prefix, dtype)
    operand = Operand(dtype, zero_point, shape)
    storage = _storage(r, name)
    if storage == _CHAINED:
        return replace(operand, chain=r[f"{prefix}_REGION"] & 0xFF)
    if storage == _NONE:
        raise Unsupported(f"{name} {r[name]:#x}: an input that is nowhere")
    return replace(operand, map=r.tensor(prefix, shape, dtype, zero_point))


def _scaling(r: Registers, name: str, roundings: int) -> Scaling:
    value = r[name]
    shift, double = value >> 32 & 0x3F, value >> 40 & 0x1F
    code = value >> 45 & 7
    if code >= roundings:
        raise Unsupported(f"{name} {value:#x}: its rounding")
    multiplier = value & 0xFFFFFFFF
    return Scaling(multiplier - (multiplier >> 31 << 32), shift, _ROUNDING[code], double)


def _output(r: Registers) -> Output:
    shape = r.ofm_shape()
    word = r["OFM_PRECISION"]
    dtype = r.dtype("OFM_PRECISION", 1)
    zero_point = r.zero_point("OFM", dtype)
    turn, reverse = word >> 11 & 7, word >> 9 & 3
    if turn not in _TRANSPOSE:
        raise Unsupported(f"OFM_PRECISION {word:#x}: its transposition")
    lookup = _lookup(r)
    output = Output(
        dtype, zero_point, shape, _scaling(r, "OFM_SCALE", len(_ROUNDING)),
        not word >> 8 & 1, _limits(r, dtype, lookup), lookup, transpose=_TRANSPOSE[turn],
        reverse=reverse - 1 if reverse else None,
    )  # fmt: skip
    storage = _storage(r, "OFM_PRECISION")
    if storage == _CHAINED:
        return replace(output, chain=r["OFM_REGION"] & 0xFF)
    if storage == _NONE:
        return output
    placed = tuple(shape[axis] for axis in output.transpose)
    stored = r.tensor("OFM", (placed[0], placed[1], placed[2]), dtype, zero_point)
    return replace(output, map=stored)


def _limits(r: Registers, dtype: DType, lookup: Lookup | None) -> tuple[int, int] | None:
    """The lowest and highest result, or index of a table; clipping may be switched off."""
    kind = lookup.index if lookup is not None else dtype
    lowest, highest = value_range(kind)
    if r.bits("ACTIVATION", 12, 4):
        return (lowest, highest) if lookup is not None else None
    bottom, top = (
        r.signed(name) if kind.kind == "i" else r[name] & 0xFFFF
        for name in ("ACTIVATION_MIN", "ACTIVATION_MAX")
    )
    return max(lowest, bottom), min(highest, top)


def _lookup(r: Registers) -> Lookup | None:
    function = r.bits("ACTIVATION", 0, 5)
    if not function:
        return None
    if function not in _TABLES:
        raise Unsupported(f"ACTIVATION {r['ACTIVATION']:#x}: function {function}")
    index, entry = (np.dtype(name) for name in _TABLES[function])
    size = 256 * entry.itemsize if index.itemsize == 1 else 2048
    return Lookup(r.bits("ACTIVATION", 5, 3) * size, index, entry)


def _coded(r: Registers, config: Config) -> Coded:
    word = r["WEIGHT_FORMAT"]
    fast, sparse = bool(word & 1), bool(word >> 4 & 1)
    cores = 1 if fast else config.cores
    weights = r.streams("WEIGHT", cores, "the convolution has no weights")
    micro = r.bits("ACC_FORMAT", 8, 3)
    if micro >= len(_MICROBLOCKS):
        raise Unsupported(f"ACC_FORMAT {r['ACC_FORMAT']:#x}: its microblock")
    return Coded(weights, fast, sparse, r.size("OFM_BLK_DEPTH"), _MICROBLOCKS[micro])


def _elementwise(mode: int, r: Registers, output: Output) -> Operation:
    ifm = replace(_input(r, "IFM", output.shape), scaling=_scaling(r, "IFM_SCALE", 2))
    ifm2 = None
    if mode not in UNARY:
        ifm2 = replace(_input(r, "IFM2", output.shape), scaling=_scaling(r, "IFM2_SCALE", 2))
    return Operation("ELEMENTWISE", mode, ifm, output, ifm2)


def _input(r: Registers, prefix: str, shape: Shape) -> Operand:
    """An input of an elementwise operation: broadcast along some axes, or one number."""
    broadcast = r[f"{prefix}_BROADCAST"] & 0xF
    if broadcast == _SCALAR:
        dtype = r.dtype(f"{prefix}_PRECISION", 2)
        value = r["OP_SCALAR"] & 0xFFFFFFFF
        if dtype.kind == "i":
            value -= value >> 31 << 32
        return Operand(dtype, r.zero_point(prefix, dtype), (1, 1, 1), scalar=value)
    sizes = tuple(1 if broadcast >> axis & 1 else n for axis, n in enumerate(shape))
    return _operand(r, prefix, (sizes[0], sizes[1], sizes[2]))


def _resize(mode: int, r: Registers, output: Output) -> Operation:
    """The input's size comes in the registers of the kernel."""
    shape = (r.size("KERNEL_HEIGHT"), r.size("KERNEL_WIDTH"), r.size("IFM_DEPTH"))
    axes = []
    for axis in "YX":
        scale = r[f"RESIZE_{axis}_SCALE_N_M1"] + 1
        offset = r[f"RESIZE_{axis}_OFFSET"] & 0xFFF
        word = r[f"RESIZE_{axis}"]
        whole, part = word >> 32 & 0xF, word & 0x7FF
        axes.append(Steps(scale, whole * scale + part, offset - (offset >> 11 << 12)))
    return Operation("RESIZE", mode, _operand(r, "IFM", shape), output, resize=(axes[0], axes[1]))

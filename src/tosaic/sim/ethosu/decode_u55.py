"""Operations of U55 and U65 from their registers."""

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
)
from tosaic.sim.ethosu.registers import UNARY, Elementwise, Pooling, Rounding, Upscale
from tosaic.sim.ethosu.stream import Config

_ROUNDING = (Rounding.DOUBLE_SYMMETRIC, Rounding.TRUNCATE_TO_ZERO, Rounding.NATURAL)
_TABLES, _TABLE = 16, 256
"""The first activation that is a table, and the size of a table."""
_TABLE_SPACE = 2048
"""Tables lie in the last 2 KB of the shared buffer."""


def decode(kind: str, mode: int, registers: Registers, config: Config) -> Operation:
    r = registers
    if kind == "ELEMENTWISE":
        return _elementwise(mode, r, config)
    window = r.window()
    shape, upscale = r.ifm_shape(window, r.size("IFM_DEPTH"))
    output = _output(r, config)
    coded = _coded(r, config) if kind in ("CONV", "DEPTHWISE") else None
    has_scales = coded is not None or output.per_channel
    scales = r.streams("SCALE", config.cores, NO_SCALES) if has_scales else ()
    if kind == "POOL" and mode > Pooling.REDUCE_SUM:
        raise Unsupported(f"{config.product} has no pooling mode {mode}")
    bits = r.bits("ACC_FORMAT", 0, 2)
    if bits > 1:
        raise Unsupported(f"ACC_FORMAT {r['ACC_FORMAT']:#x}: sums in floating point")
    return Operation(
        kind, mode, _operand(r, "IFM", shape), output, window=window, coded=coded, scales=scales,
        # An average over padding cannot have one scale for all windows: the NPU divides.
        divide=kind == "POOL" and mode == Pooling.AVERAGE and any(window.pad),
        upscale=upscale, accumulator=40 if bits else 32,
    )  # fmt: skip


def _operand(r: Registers, prefix: str, shape: Shape) -> Operand:
    dtype = r.dtype(f"{prefix}_PRECISION", 2)
    if dtype.itemsize > 4:
        raise Unsupported(f"{prefix}_PRECISION {r[prefix + '_PRECISION']:#x}: elements of 64 bits")
    zero_point = r.zero_point(prefix, dtype)
    return Operand(dtype, zero_point, shape, r.tensor(prefix, shape, dtype, zero_point))


def _output(r: Registers, config: Config) -> Output:
    shape = r.ofm_shape()
    dtype = r.dtype("OFM_PRECISION", 1)
    if dtype.itemsize > 4:
        raise Unsupported(f"OFM_PRECISION {r['OFM_PRECISION']:#x}: elements of 64 bits")
    code = r.bits("OFM_PRECISION", 14, 2)
    if code >= len(_ROUNDING):
        raise Unsupported(f"OFM_PRECISION {r['OFM_PRECISION']:#x}: its rounding")
    per_channel = not r.bits("OFM_PRECISION", 8)
    scale = r["OFM_SCALE"] if not per_channel else r.get("OFM_SCALE", 0)
    multiplier, shift = scale & 0xFFFFFFFF, scale >> 32 & 0x3F
    zero_point = r.zero_point("OFM", dtype)
    lookup = _lookup(r, config, dtype)
    return Output(
        dtype, zero_point, shape, Scaling(multiplier, shift, _ROUNDING[code]), per_channel,
        _limits(r, dtype), lookup, r.tensor("OFM", shape, dtype, zero_point),
    )  # fmt: skip


def _limits(r: Registers, dtype: DType) -> tuple[int, int] | None:
    """The lowest and highest result before a table is looked up."""
    clip = r.bits("ACTIVATION", 12, 4)
    ranges: dict[int, DType] = {2: np.dtype("u1"), 3: np.dtype("i1"), 5: np.dtype("i2")}
    if clip and clip not in ranges:
        raise Unsupported(f"ACTIVATION {r['ACTIVATION']:#x}: its clipping")
    lowest, highest = value_range(ranges[clip] if clip else dtype)
    if dtype.itemsize == 4 and not clip:
        return None
    low, high = (
        r.signed(name) if lowest < 0 else r[name] & 0xFFFF
        for name in ("ACTIVATION_MIN", "ACTIVATION_MAX")
    )
    return max(low, lowest), min(high, highest)


def _lookup(r: Registers, config: Config, dtype: DType) -> Lookup | None:
    function = r.bits("ACTIVATION", 0, 12)
    if not function:
        return None
    index = function - _TABLES
    if not 0 <= index < 8:
        raise Unsupported(f"ACTIVATION {r['ACTIVATION']:#x}: function {function}")
    start = config.shram - _TABLE_SPACE + index * _TABLE
    entry = dtype if dtype.itemsize != 2 else np.dtype("i2")
    kind = np.dtype("i2") if dtype.itemsize == 2 else np.dtype(f"{dtype.kind}1")
    return Lookup(start, kind, entry)


def _coded(r: Registers, config: Config) -> Coded:
    found = r.streams("WEIGHT", config.cores, "the convolution has no weights")
    return Coded(found, fast=False, sparse=False, block=r.size("OFM_BLK_DEPTH"), microblock=0)


def _elementwise(mode: int, r: Registers, config: Config) -> Operation:
    if mode > Elementwise.SHL:
        raise Unsupported(f"{config.product} has no elementwise mode {mode}")
    shape = r.ofm_shape()
    ifm = _operand(r, "IFM", shape)
    output = _output(r, config)
    ifm2, swapped, wide = None, False, None
    if mode not in UNARY:
        broadcast = r["IFM2_BROADCAST"]
        swapped = bool(broadcast >> 6 & 1)
        dtype = r.dtype("IFM2_PRECISION", 2)
        zero_point = r.zero_point("IFM2", dtype)
        if broadcast >> 7 & 1:
            value = r.signed("IFM2_SCALAR") if dtype.kind == "i" else r["IFM2_SCALAR"]
            ifm2 = Operand(dtype, zero_point, (1, 1, 1), scalar=value)
        else:
            sizes = tuple(1 if broadcast >> i & 1 else n for i, n in enumerate(shape))
            ifm2 = _operand(r, "IFM2", (sizes[0], sizes[1], sizes[2]))
    if mode in (Elementwise.ADD, Elementwise.SUB) and ifm.dtype.itemsize < 4:
        assert ifm2 is not None
        ifm, ifm2, wide = _sum_scales(r, ifm, ifm2)
    upscale = Upscale.NONE
    return Operation(
        "ELEMENTWISE", mode, ifm, output, ifm2, swapped=swapped, wide_operand=wide, upscale=upscale
    )


def _sum_scales(r: Registers, ifm: Operand, ifm2: Operand) -> tuple[Operand, Operand, int | None]:
    """The operands of a sum with their scales: both of 16 bits, or one of 32 bits."""
    mode = r.bits("IFM_PRECISION", 8, 2)
    code = r.bits("IFM_PRECISION", 14, 2)
    if mode > 2 or code >= len(_ROUNDING):
        raise Unsupported(f"IFM_PRECISION {r['IFM_PRECISION']:#x}: its scaling")
    first, second = r["OPA_SCALE"], r["OPB_SCALE"]
    if mode:
        scaling = Scaling(first & 0xFFFFFFFF, first >> 32 & 0x3F, _ROUNDING[code])
        # Operands count in the order in which they are used.
        wide = mode - 1 if not r.bits("IFM2_BROADCAST", 6) else 2 - mode
        if wide == 0:
            return replace(ifm, scaling=scaling), ifm2, wide
        return ifm, replace(ifm2, scaling=scaling), wide
    if r.bits("IFM2_BROADCAST", 6):
        first, second = second, first
    return (
        replace(ifm, scaling=Scaling(first & 0xFFFF)),
        replace(ifm2, scaling=Scaling(second & 0xFFFF)),
        None,
    )

"""Convolutions: those with constant weights as one kernel with what follows them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.ir.graph import Array, Op, Value
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm.forms import lower
from tosaic.targets.cortexm.layers import Call, Conv, Requant
from tosaic.targets.cortexm.lowering import Lowerer, kernel
from tosaic.targets.cortexm.operators import one


@dataclass(frozen=True, slots=True)
class Tail:
    """RESCALE, CLAMP and TABLE behind an accumulator, and the value that they make."""

    ops: tuple[Op, ...]
    requant: Requant
    result: Value


def tail_of(lowerer: Lowerer, value: Value, channels: int) -> Tail | None:
    """What follows an accumulator that nothing else reads; None if no RESCALE does."""
    ops: list[Op] = []
    op, value = _next(lowerer, value, ops)
    if op is None or op.name != "RESCALE" or not _is_plain(op):
        return None
    multiplier, shift = (_array(v) for v in op.ins[1:3])
    if len(multiplier) > 1 and value.shape[-1] != channels:
        return None
    ops.append(op)
    value = op.outs[0]
    zp = int(_array(op.ins[4])[0])
    low, high = value.dtype.range
    made = len(ops), value
    op, after = _next(lowerer, value, ops)
    if op is not None and op.name == "CLAMP":
        low, high = max(low, op.attrs["min_val"]), min(high, op.attrs["max_val"])
        ops.append(op)
        made = len(ops), op.outs[0]
        op, after = _next(lowerer, op.outs[0], ops)
    lut = None
    if op is not None and op.name == "TABLE" and after.dtype is d.I8 and op.ins[1].const:
        lut = _array(op.ins[1])
        ops.append(op)
        made = len(ops), op.outs[0]
    count, result = made
    requant = Requant(
        np.broadcast_to(multiplier, (channels,)).astype(np.int64),
        np.broadcast_to(shift, (channels,)).astype(np.int64), zp, low, high, lut,
    )  # fmt: skip
    return Tail(tuple(ops[:count]), requant, result)


def _next(lowerer: Lowerer, value: Value, ops: list[Op]) -> tuple[Op | None, Value]:
    """The only operator that reads a value, behind shapes that keep its channels."""
    op = lowerer.only_user(value)
    while op is not None and op.name == "RESHAPE" and op.outs[0].shape[-1:] == value.shape[-1:]:
        ops.append(op)
        value = op.outs[0]
        op = lowerer.only_user(value)
    return op, value


def _is_plain(op: Op) -> bool:
    return (
        op.attrs["rounding_mode"] == "SINGLE_ROUND" and not op.attrs["input_unsigned"]
        and not op.attrs["output_unsigned"] and all(v.const is not None for v in op.ins[1:])
        and not _array(op.ins[3])[0]
    )  # fmt: skip


def _array(value: Value) -> Array:
    assert value.const is not None
    return value.const.array.reshape(-1)


@kernel("CONV2D", "DEPTHWISE_CONV2D")
def convolution(lowerer: Lowerer, op: Op) -> None:
    out = op.outs[0]
    call = None
    if all(v.const is not None for v in op.ins[1:5]) and op.ins[0].dtype in (d.I8, d.I16):
        tail = tail_of(lowerer, out, out.shape[-1])
        layer = conv_layer(op, tail)
        call = lower(layer, lowerer.core)
    if call is None:
        any_convolution(lowerer, op)
        return
    result = tail.result if tail else out
    ops = (op, *tail.ops) if tail else (op,)
    lowerer.done.update(ops)
    rows = (0, layer.oh)
    lowerer.call(call, (lowerer.view(op.ins[0]),), result, ops, layer.kind, rows, layer=layer)


def conv_layer(op: Op, tail: Tail | None) -> Conv:
    n, ih, iw, ic = op.ins[0].shape
    _, oh, ow, oc = op.outs[0].shape
    weight = op.ins[1].const.array  # type: ignore[union-attr]
    is_depthwise = op.name == "DEPTHWISE_CONV2D"
    kh, kw = weight.shape[:2] if is_depthwise else weight.shape[1:3]
    result = tail.result if tail else op.outs[0]
    (sy, sx), (dy, dx) = op.attrs["stride"], op.attrs["dilation"]
    return Conv(
        "depthwise" if is_depthwise else "conv", n, ih, iw, ic, oh, ow, oc, kh, kw,
        sy, sx, dy, dx, op.attrs["pad"][0], op.attrs["pad"][2],
        weight, np.broadcast_to(_array(op.ins[2]), (oc,)), int(_array(op.ins[3])[0]),
        int(_array(op.ins[4])[0]), op.ins[0].dtype.bits, result.dtype.bits,
        tail.requant if tail else None, ih,
    )  # fmt: skip


def any_convolution(lowerer: Lowerer, op: Op) -> None:
    """A convolution of any kind, to its accumulator."""
    x, weight, bias, out = *op.ins[:3], op.outs[0]
    pointers = [lowerer.view(v) for v in (x, weight, bias)]
    lowerer.done.add(op)
    kind = _KINDS.index(op.name) if op.name in _KINDS else 0
    window = weight.shape[:2] if kind == 1 else weight.shape[1:-1]
    pads = op.attrs["out_pad" if kind == 2 else "pad"]
    stride, dilation = op.attrs["stride"], op.attrs.get("dilation", (1, 1))
    ins, outs = x.shape[1:], out.shape[1:]
    if len(window) == 2:  # the first of three axes has one place
        ins, outs, window = (1, *ins), (1, *outs), (1, *window)
        stride, dilation, pads = (1, *stride), (1, *dilation), (0, 0, *pads)
    zps = one(op, "input_zp"), one(op, "weight_zp")
    literals = (kind, x.dtype.bits, x.shape[0], *ins, *outs, *window, *stride, *dilation,
                *pads[::2], *zps, bias.type.size)  # fmt: skip
    call = Call("tk_conv_any", "conv_any.h", literals)
    lowerer.call(call, pointers, out, (op,), ("conv", "depthwise", "transpose_conv")[kind])


_KINDS = ("CONV2D", "DEPTHWISE_CONV2D", "TRANSPOSE_CONV2D")


@kernel("CONV3D", "TRANSPOSE_CONV2D")
def unfused(lowerer: Lowerer, op: Op) -> None:
    any_convolution(lowerer, op)

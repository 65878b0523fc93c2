"""Block-scaled operators: blocks of the last axis share a scale, a power of two (TOSA 1.1, MX)."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp.device import placed
from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import specialise
from tosaic.ir.graph import Array, Op
from tosaic.spec import dtypes as d
from tosaic.spec.table import ENUMS

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_BIAS, _NAN = 127, 255  # of a scale
# Elements that are held by their bits, and the exponent of the largest number of each type.
_SMALL = {
    d.F6E2M3: ml_dtypes.float6_e2m3fn,
    d.F6E3M2: ml_dtypes.float6_e3m2fn,
    d.F4E2M1: ml_dtypes.float4_e2m1fn,
}
_MANTISSA = {d.F8E4M3: 3, d.F8E5M2: 2, d.F6E2M3: 3, d.F6E3M2: 2, d.F4E2M1: 1, d.MXI8: 6}
_TOP = {d.F8E4M3: 8, d.F8E5M2: 15, d.F6E2M3: 2, d.F6E3M2: 4, d.F4E2M1: 2, d.MXI8: 0}
_LARGEST = {
    d.F8E4M3: 448.0, d.F8E5M2: 57344.0, d.F6E2M3: 7.5, d.F6E3M2: 28.0, d.F4E2M1: 6.0,
    d.MXI8: 127 / 64,
}  # fmt: skip


def _values(kind: d.DType) -> Callable[[Tensor], Tensor]:
    """Real numbers of the elements of a type."""
    if kind is d.MXI8:
        return lambda x: x.double() / 64
    if kind not in _SMALL:
        return lambda x: x.double()
    codes = np.arange(1 << kind.bits, dtype=np.uint8).view(_SMALL[kind])
    table = placed(torch.from_numpy(codes.astype(np.float64)))
    return lambda x: table[_code(x)]


def _code(x: Tensor) -> Tensor:
    """The bits of elements that are held in int8, as whole numbers from 0 on."""
    return x.view(torch.uint8).long()


def _scales(held: Tensor, size: int) -> Tensor:
    """2^(code − 127) for each element of a block; the last code is no number."""
    codes = _code(held)
    real = torch.exp2(codes.double() - _BIAS)
    real = torch.where(codes == _NAN, torch.nan, real)
    return real.repeat_interleave(size, -1)


def _block(op: Op) -> int:
    return int(ENUMS["block_size"][op.attrs["block_size"]])


def _reals(op: Op, index: int = 0) -> Callable[[Tensor, Tensor], Tensor]:
    """What data and scales stand for, exactly, as float64."""
    values, size = _values(op.ins[index].dtype), _block(op)
    return lambda data, scale: values(data) * _scales(scale, size)


@kernel("CAST_FROM_BLOCK_SCALED")
def cast_from(op: Op, context: Context) -> Run:
    reals, target = _reals(op), TORCH[op.outs[0].dtype]
    return lambda data, scale: reals(data, scale).to(target)


@kernel("CAST_TO_BLOCK_SCALED")
def cast_to(op: Op, context: Context) -> Run:
    return _to_blocks(op.outs[0].dtype, _block(op))


def _to_blocks(kind: d.DType, size: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The least scale in which the largest of a block rounds to a number of the type."""
    rounded = _rounding(kind)
    most_bits = _LARGEST[kind] / 2 ** _TOP[kind] * (1 << _MANTISSA[kind])

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        blocks = x.double().reshape(*x.shape[:-1], -1, size)
        most = blocks.abs().amax(-1)
        fraction, exponent = torch.frexp(most)
        carries = (fraction * (2 << _MANTISSA[kind])).round() > most_bits
        exponent = exponent - 1 - _TOP[kind] + carries.int()
        code = torch.where(most == 0, 0, (exponent + _BIAS).clamp(0, _NAN - 1))
        code = torch.where(most.isfinite(), code, _NAN)
        return _in_scales(blocks, code, rounded).reshape(x.shape), _held(code)

    return run


def _in_scales(blocks: Tensor, code: Tensor, rounded: Callable[[Tensor], Tensor]) -> Tensor:
    return rounded((blocks * torch.exp2(_BIAS - code.double())[..., None]).flatten(-2))


def _held(code: Tensor) -> Tensor:
    return code.to(torch.uint8).view(torch.int8)


def nearest_blocks(x: Tensor, kind: d.DType) -> tuple[Tensor, Tensor]:
    """Data and scales of constants: of three scales a block has that of the least square error.

    What a block-scaled type holds already keeps its numbers.
    """
    blocks = x.double().reshape(*x.shape[:-1], -1, d.BLOCK)
    least = _code(_to_blocks(kind, d.BLOCK)(x)[1])
    values, rounded = _values(kind), _rounding(kind)
    best, error = least, torch.full(least.shape, torch.inf, dtype=torch.float64)
    for offset in (0, -1, 1):
        code = torch.where(least == _NAN, _NAN, (least + offset).clamp(0, _NAN - 1))
        real = values(_in_scales(blocks, code, rounded)) * _scales(_held(code), d.BLOCK)
        own = (real.reshape(blocks.shape) - blocks).square().sum(-1)
        best, error = torch.where(own < error, code, best), torch.minimum(own, error)
    return _in_scales(blocks, best, rounded).reshape(x.shape), _held(best)


def block_constant(values: Array, kind: d.DType) -> tuple[Array, Array]:
    """Data and scales of real numbers in whole blocks, as a file has them."""
    data, scale = nearest_blocks(torch.from_numpy(values.astype(np.float64)), kind)
    bits = data.view(torch.int8).numpy().view(np.uint8)
    return bits.view(kind.array), scale.numpy().view(np.uint8)


def block_rounded(x: Tensor, kind: d.DType, constant: bool = False) -> Tensor:
    """Real numbers as a block-scaled type has them, in float64; the last block may be shorter."""
    whole = F.pad(x.double(), (0, -x.shape[-1] % d.BLOCK))
    data, scale = nearest_blocks(whole, kind) if constant else _to_blocks(kind, d.BLOCK)(whole)
    return (_values(kind)(data) * _scales(scale, d.BLOCK))[..., : x.shape[-1]]


def _rounding(kind: d.DType) -> Callable[[Tensor], Tensor]:
    """Real numbers as elements of a type: rounded to the nearest, ties to even, saturated."""
    most = _LARGEST[kind]
    if kind is d.MXI8:
        return lambda x: (x * 64).round().nan_to_num(0.0).clamp(-127, 127).to(torch.int8)
    if kind not in _SMALL:
        return lambda x: x.clamp(-most, most).float().to(TORCH[kind])

    def run(x: Tensor) -> Tensor:
        near = x.clamp(-most, most).nan_to_num(0.0).cpu().numpy().astype(_SMALL[kind])
        return placed(torch.from_numpy(near.view(np.int8).copy()))

    return run


@kernel("MATMUL_T_BLOCK_SCALED")
def matmul_t(op: Op, context: Context) -> Run:
    left, right = _reals(op), _reals(op, 2)
    batches = op.outs[0].shape[0]

    def run(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
        turned = right(b, b_scale).mT.expand(batches, -1, -1)
        return torch.bmm(left(a, a_scale).expand(batches, -1, -1), turned).float()

    return run


@kernel("CONV2D_BLOCK_SCALED")
def conv2d(op: Op, context: Context) -> Run:
    given, weights = _reals(op), _reals(op, 2)

    def make(pad: Tensor, stride: Tensor, dilation: Tensor) -> Run:
        top, bottom, left, right = pad.tolist()

        def run(x: Tensor, x_scale: Tensor, w: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
            image = F.pad(given(x, x_scale).movedim(-1, 1), (left, right, top, bottom))
            kernels = weights(w, w_scale).movedim(-1, 1)
            added = bias.double().expand(kernels.shape[0])
            made = F.conv2d(
                image, kernels, added, tuple(stride.tolist()), 0, tuple(dilation.tolist())
            )
            return made.movedim(1, -1).contiguous().float()

        return run

    return specialise(op, "pad stride dilation", make)


@kernel("RESHAPE_BLOCK_SCALED")
def reshape(op: Op, context: Context) -> Run:
    """Data, and scales where there are some."""
    shapes = [value.shape for value in op.outs]

    def run(*ins: Tensor) -> tuple[Tensor, ...] | Tensor:
        made = tuple(x.reshape(shape) for x, shape in zip(ins, shapes))
        return made if len(made) > 1 else made[0]

    return run


@kernel("ROW_GATHER_BLOCK_SCALED")
def row_gather(op: Op, context: Context) -> Run:
    """So many rows from each index on, of data and of scales."""
    pairs = len(op.outs)

    def run(*ins: Tensor) -> tuple[Tensor, ...] | Tensor:
        indices, count = ins[pairs], int(ins[pairs + 1])
        rows = (indices.long()[..., None] + torch.arange(count)).flatten(1)
        made = tuple(_rows(x, rows) for x in ins[:pairs])
        return made if pairs > 1 else made[0]

    return run


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < values.shape[1]:
        raise Unpredictable("a row is beyond the values")
    batch = torch.arange(values.shape[0])[:, None]
    held = values.view(torch.int8) if values.dtype in _FLOAT8 else values
    return held[batch, rows].view(values.dtype)

"""Operators that work element by element: arithmetic, logic, comparison, selection, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp import cuda
from tosaic.interp.kernel import TORCH, Context, Run, kernel
from tosaic.interp.operands import in_float32, narrow, require, specialise, within
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d

Binary = Callable[[Tensor, Tensor], Tensor]

_PLAIN: Mapping[str, Callable[..., Tensor]] = {
    "BITWISE_AND": torch.bitwise_and,
    "BITWISE_OR": torch.bitwise_or,
    "BITWISE_XOR": torch.bitwise_xor,
    "BITWISE_NOT": torch.bitwise_not,
    "LOGICAL_AND": torch.logical_and,
    "LOGICAL_OR": torch.logical_or,
    "LOGICAL_XOR": torch.logical_xor,
    "LOGICAL_NOT": torch.logical_not,
    "EQUAL": torch.eq,
    "GREATER": torch.gt,
    "GREATER_EQUAL": torch.ge,
    "SELECT": torch.where,
    "CEIL": torch.ceil,
    "FLOOR": torch.floor,
}
_ROUNDED: Mapping[str, Callable[..., Tensor]] = {
    "COS": torch.cos,
    "ERF": torch.erf,
    "EXP": torch.exp,
    "LOG": torch.log,
    "RECIPROCAL": torch.reciprocal,
    "RSQRT": torch.rsqrt,
    "SIGMOID": torch.sigmoid,
    "SIN": torch.sin,
    "TANH": torch.tanh,
}


@kernel(*_PLAIN)
def plain(op: Op, context: Context) -> Run:
    """Torch's own operation, the same in every type."""
    return _PLAIN[op.name]


@kernel(*_ROUNDED)
def rounded(op: Op, context: Context) -> Run:
    return in_float32(op, _ROUNDED[op.name])


@kernel("ADD", "SUB")
def add(op: Op, context: Context) -> Run:
    compute, is_sum = (torch.add, True) if op.name == "ADD" else (torch.sub, False)
    if op.outs[0].dtype.is_float:
        return compute
    if context.bounds.holds(op):
        return compute
    low, high = op.outs[0].dtype.range

    def run(a: Tensor, b: Tensor) -> Tensor:
        total = compute(a, b)
        (a_low, a_high), (b_low, b_high) = _ends(a), _ends(b)
        least, most = (b_low, b_high) if is_sum else (-b_high, -b_low)
        if a_low + least < low or a_high + most > high:
            # Where it wrapped, it has not the sign that those of a and b ask for.
            turned = (b ^ total) if is_sum else (a ^ b)
            what = "the sum overflows" if is_sum else "the difference overflows"
            require(((a ^ total) & turned).amin() >= 0, what)
        return total

    return run


def _ends(x: Tensor) -> tuple[int, int]:
    low, high = torch.aminmax(x)
    return int(low), int(high)


@kernel("MUL")
def mul(op: Op, context: Context) -> Run:
    """Without a shift the low bits of the product are the result; with one it must fit."""
    kind, wide = op.ins[0].dtype, TORCH[op.outs[0].dtype]
    a, b = (context.bounds.of(v) for v in op.ins[:2]) if kind.is_int else ((0, 0), (0, 0))
    peak = max(map(abs, a)) * max(map(abs, b))

    def make(shift: Tensor) -> Run:
        bits = int(shift)
        if kind.is_float:
            return torch.mul
        if bits == 0:
            return torch.mul if kind is d.I32 else lambda a, b: a.to(wide) * b.to(wide)
        require(0 <= bits <= 63, f"shift {bits} is outside of 0 to 63")
        fits = kind is d.I32 and peak + (1 << bits - 1) < 1 << 31  # the product before the shift
        half = 1 << bits - 1
        if fits:
            return lambda a, b: (a * b).add_(half).bitwise_right_shift_(bits)

        def run(a: Tensor, b: Tensor) -> Tensor:
            product = a.to(torch.int64) * b.to(torch.int64)
            return narrow(product.add_(half).bitwise_right_shift_(bits), d.I32, "the product")

        return run

    return specialise(op, "shift", make)


@kernel("INTDIV")
def intdiv(op: Op, context: Context) -> Run:
    lowest = op.outs[0].dtype.range[0]

    def run(a: Tensor, b: Tensor) -> Tensor:
        require(b.all(), "the divisor is 0")
        require(not ((a == lowest) & (b == -1)).any(), "the quotient overflows")
        return torch.div(a, b, rounding_mode="trunc")

    return run


def _shift(op: Op, compute: Binary) -> Run:
    """A shift by a number of bits that must be below the width of the type."""
    last = op.outs[0].dtype.bits - 1

    def run(a: Tensor, b: Tensor) -> Tensor:
        require(within(b, 0, last), f"the shift is outside of 0 to {last}")
        return compute(a, b)

    return run


@kernel("ARITHMETIC_RIGHT_SHIFT")
def arithmetic_right_shift(op: Op, context: Context) -> Run:
    if not op.attrs["round"]:
        return _shift(op, torch.bitwise_right_shift)

    def compute(a: Tensor, b: Tensor) -> Tensor:
        last_lost = (a >> (b - 1).clamp_(min=0)) & (b > 0).to(a.dtype)
        return (a >> b) + last_lost

    return _shift(op, compute)


@kernel("LOGICAL_LEFT_SHIFT")
def logical_left_shift(op: Op, context: Context) -> Run:
    return _shift(op, torch.bitwise_left_shift)


@kernel("LOGICAL_RIGHT_SHIFT")
def logical_right_shift(op: Op, context: Context) -> Run:
    bits = op.outs[0].dtype.bits

    def compute(a: Tensor, b: Tensor) -> Tensor:
        kept = (torch.ones_like(b) << (bits - b)) - 1  # all ones where b is 0: 1 << bits is 0
        return (a >> b) & kept

    return _shift(op, compute)


@kernel("MAXIMUM")
def maximum(op: Op, context: Context) -> Run:
    return torch.fmax if op.attrs["nan_mode"] == "IGNORE" else torch.maximum


@kernel("MINIMUM")
def minimum(op: Op, context: Context) -> Run:
    return torch.fmin if op.attrs["nan_mode"] == "IGNORE" else torch.minimum


@kernel("POW")
def pow_(op: Op, context: Context) -> Run:
    power = in_float32(op, torch.pow)

    def run(a: Tensor, b: Tensor) -> Tensor:
        require((a >= 0).all(), "the base is negative or NaN")
        require((a.isfinite().all() & b.isfinite().all()), "base or exponent is not finite")
        require(((a > 0) | (b > 0)).all(), "the base is 0 and the exponent is not positive")
        result: Tensor = power(a, b)
        return result

    return run


@kernel("ABS")
def abs_(op: Op, context: Context) -> Run:
    return torch.abs if op.outs[0].dtype.is_float else partial(_signed, torch.abs)


def _signed(compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A change of sign, which the lowest integer has no room for."""
    lowest = torch.iinfo(x.dtype).min
    require(int(x.amin()) > lowest, f"{lowest} has no negative")
    return compute(x)


@kernel("NEGATE")
def negate(op: Op, context: Context) -> Run:
    kind = op.outs[0].dtype

    def make(input_zp: Tensor, output_zp: Tensor) -> Run:
        if kind.is_float:
            return torch.neg
        if kind not in (d.I8, d.I16):
            return partial(_signed, torch.neg)
        total, (low, high) = int(input_zp) + int(output_zp), kind.range
        return lambda x: (total - x.to(torch.int32)).clamp_(low, high).to(x.dtype)

    return specialise(op, "input1_zp output_zp", make)


@kernel("CLZ")
def clz(op: Op, context: Context) -> Run:
    if op.outs[0].dtype is d.I32:
        return lambda x: _leading_zeros(x).to(torch.int32)

    def run(x: Tensor) -> Tensor:
        high, low = _leading_zeros(x >> 32), _leading_zeros(x)
        return torch.where(high < 32, high, 32 + low).to(torch.int64)

    return run


def _leading_zeros(x: Tensor) -> Tensor:
    """Zeros above the first one of the low 32 bits: a float64 holds them all, and the exponent."""
    return 32 - torch.frexp((x.to(torch.int64) & 0xFFFFFFFF).double()).exponent


@kernel("CLAMP")
def clamp(op: Op, context: Context) -> Run:
    low, high = op.attrs["min_val"], op.attrs["max_val"]
    if op.outs[0].dtype.is_float and op.attrs["nan_mode"] == "IGNORE":
        return lambda x: torch.where(x.isnan(), low, x).clamp_(low, high)
    return lambda x: x.clamp(low, high)


@kernel("TABLE")
def table(op: Op, context: Context) -> Run:
    return specialise(op, "table", _lookup if op.ins[0].dtype is d.I8 else _interpolate)


def _lookup(entries: Tensor) -> Run:
    """One entry for each int8; turned so that the bits of the input are its place."""
    turned = entries.roll(-128)

    def run(x: Tensor) -> Tensor:
        found = cuda.lookup(turned, [x]) if x.is_cuda else None
        return _entry(turned, x.view(torch.uint8).to(torch.int32)) if found is None else found

    return run


def _entry(entries: Tensor, place: Tensor) -> Tensor:
    """``entries[place]``; index_select is four times as fast here."""
    return entries.index_select(0, place.flatten()).view(place.shape)


def _interpolate(entries: Tensor) -> Run:
    """512 segments of 128 steps: the high 9 bits choose one, the low 7 a place in it."""
    wide = entries.to(torch.int32)
    start, slope = wide[:-1] << 7, wide.diff()
    steep = (slope < d.I16.range[0]) | (slope > d.I16.range[1])
    any_steep = bool(steep.any())

    def run(x: Tensor) -> Tensor:
        place = x.to(torch.int32) + 32768
        segment = place >> 7
        if any_steep and bool(_entry(steep, segment).any()):
            raise Unpredictable("neighbouring table entries are further apart than an int16")
        return _entry(start, segment) + _entry(slope, segment) * (place & 127)

    return run

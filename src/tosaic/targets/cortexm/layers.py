"""Layers: what one call of a kernel computes, and the call itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tosaic.ir.graph import Array


@dataclass(frozen=True, slots=True, eq=False)
class Requant:
    """RESCALE, CLAMP and TABLE of an accumulator; one multiplier, or one for each channel.

    The result is clamp(((acc · multiplier + 2^(shift − 1)) >> shift) + zp, lo, hi), then the entry
    of ``lut`` if there is one.
    """

    multiplier: Array
    shift: Array
    zp: int
    lo: int
    hi: int
    lut: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Conv:
    """CONV2D or DEPTHWISE_CONV2D with constant weights, and what follows its accumulator.

    ``weight`` is [oc, kh, kw, ic], or [kh, kw, ic, m] if depthwise; ``bits`` are those of the
    input, ``out_bits`` those of the result. ``rows`` is how many rows the buffer of the input has.
    """

    kind: Literal["conv", "depthwise"]
    n: int
    ih: int
    iw: int
    ic: int
    oh: int
    ow: int
    oc: int
    kh: int
    kw: int
    sy: int
    sx: int
    dy: int
    dx: int
    pt: int
    pl: int
    weight: Array
    bias: Array
    x_zp: int
    w_zp: int
    bits: int
    out_bits: int
    requant: Requant | None
    rows: int

    @property
    def geometry(self) -> tuple[int, ...]:
        """The literals from the batch to the rows of the buffer, in the order of every kernel."""
        return (
            self.n, self.ih, self.iw, self.ic, self.oh, self.ow, self.oc, self.kh, self.kw,
            self.sy, self.sx, self.dy, self.dx, self.pt, self.pl, self.rows,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class MatMul:
    """MATMUL of [n, h, c] by [batches, c, width], or [batches, width, c] if transposed.

    Its RESCALE has one multiplier; without one the result is the accumulator.
    """

    n: int
    h: int
    c: int
    width: int
    batches: int
    is_transposed: bool
    a_zp: int
    b_zp: int
    bits: int
    out_bits: int
    requant: Requant | None


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """MAX_POOL2D or AVG_POOL2D; ``rows`` is how many the buffer of the input has.

    ``bits`` are 32 for floats; with ``ignores_nan`` a NaN loses to every number.
    """

    kind: Literal["max", "avg"]
    n: int
    ih: int
    iw: int
    c: int
    oh: int
    ow: int
    kh: int
    kw: int
    sy: int
    sx: int
    pt: int
    pl: int
    rows: int
    bits: int
    x_zp: int
    y_zp: int
    ignores_nan: bool = False

    @property
    def geometry(self) -> tuple[int, ...]:
        return (
            self.n, self.ih, self.iw, self.c, self.oh, self.ow, self.kh, self.kw, self.sy, self.sx,
            self.pt, self.pl, self.rows,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """The sum of two int8 tensors of one shape, each rescaled to int32, rescaled to int8.

    ``a`` and ``b`` are what each int8 from -128 on becomes before the sum.
    """

    size: int
    a: Array
    b: Array
    requant: Requant


Layer = Conv | MatMul | Pool | Add


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a kernel: function, literals, packed constants, and bytes of scratch memory."""

    function: str
    include: str
    literals: tuple[int, ...]
    blob: bytes = b""
    lut: bytes = b""
    scratch: int = 0
    streams: bool = False
    align: int = 4
    slack: int = 0

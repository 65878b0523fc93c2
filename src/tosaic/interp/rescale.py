"""RESCALE, in every mode: exact integer arithmetic, and proved faster ways to the same values."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp import cuda
from tosaic.interp.affine import Affine, Steps, find_steps, fit_float32, fit_float64
from tosaic.interp.exact import FLOAT32_EXACT, FLOAT64_EXACT, Interval
from tosaic.interp.onednn import OFFSET, to_carrier

Rounding = Literal["SINGLE_ROUND", "INEXACT_ROUND", "DOUBLE_ROUND"]

INT32 = (-(1 << 31), (1 << 31) - 1)
# Elements of a block and of a row of repeated coefficients: a block's float64 copy fits in L2.
BLOCK = 3 << 15
ROW = 1 << 12
# Channels whose steps are found at one time.
CHANNELS = 64
# Values of a channel from which a search of coefficients pays: it takes about 100 µs a channel,
# and saves 1 to 2 ns a value.
PAYS = 1 << 16


def dtype_range(dtype: torch.dtype, unsigned: bool = False) -> tuple[int, int]:
    """The values of a TOSA integer type; int64 stands for int48."""
    bits = dtype_bits(dtype)
    return (0, (1 << bits) - 1) if unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)


def dtype_bits(dtype: torch.dtype) -> int:
    return 48 if dtype is torch.int64 else torch.iinfo(dtype).bits


class Rescale:
    """RESCALE prepared once, with a CLAMP behind it merged in.

    Calls take integer tensors, or float tensors that hold integers (a convolution's exact
    accumulators); channels are the last dimension. `interval` says what values can come.
    Unsigned inputs and outputs are held in the signed type of the same width.
    """

    def __init__(
        self,
        multiplier: Tensor,
        shift: Tensor,
        *,
        input: torch.dtype,
        output: torch.dtype,
        scale32: bool = True,
        input_zp: int = 0,
        output_zp: int = 0,
        rounding: Rounding = "SINGLE_ROUND",
        input_unsigned: bool = False,
        output_unsigned: bool = False,
        clamp: tuple[int, int] | None = None,
        interval: Interval | None = None,
    ) -> None:
        self.multiplier = multiplier.reshape(-1).to(torch.int64)
        self.shift = shift.reshape(-1).to(torch.int64)
        self.input, self.output, self.rounding = input, output, rounding
        # Only the 32-bit scale limits the value by the shift.
        self.limited = scale32 and rounding != "INEXACT_ROUND"
        self.input_unsigned, self.output_unsigned = input_unsigned, output_unsigned
        # A zero point comes in the bits of its tensor's signed type.
        self.input_zp = input_zp % (1 << dtype_bits(input)) if input_unsigned else input_zp
        self.output_zp = output_zp % (1 << dtype_bits(output)) if output_unsigned else output_zp
        low, high = dtype_range(output, output_unsigned)
        self.levels = (max(low, clamp[0]), min(high, clamp[1])) if clamp else (low, high)
        whole = dtype_range(input, input_unsigned)
        self.interval = interval or Interval(torch.tensor([whole[0]]), torch.tensor([whole[1]]))
        self._check_parameters()
        self.ends = self.levels  # the least and the greatest result
        self.predictable = self._is_predictable()
        self._prepared = self._fitted = False
        self._seen = 0
        self._table: Tensor | None = None
        self._float64: Affine | None = None
        self._float32: Affine | None = None
        self._rows: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        if dtype_bits(input) == 8 and len(self.multiplier) == 1 and self.predictable:
            self._table = self.exact(torch.arange(256).to(torch.uint8).view(torch.int8))

    def prepare(self, float32: bool = True, fits: bool = True) -> None:
        """Look for float coefficients now, rather than at the first call.

        Without ``fits`` only those that need no search.
        """
        if not self._prepared or (fits and not self._fitted):
            self._prepared, self._fitted = True, fits
            if self._table is None and self.predictable:
                self._prepare_float(float32, fits)

    def select(self, index: Tensor, interval: Interval) -> Rescale:
        """This RESCALE for some of the channels of `interval` only."""
        channels = len(interval.low)
        part = copy(self)
        part.multiplier = self.multiplier.expand(channels)[index]
        part.shift = self.shift.expand(channels)[index]
        part.interval = Interval(interval.low[index], interval.high[index])
        part._prepared, part._fitted, part._rows = False, False, {}
        part._float32 = part._float64 = None
        return part

    @property
    def slope(self) -> Tensor:
        """The factor of each channel, exact in float64: multipliers have 31 bits at most."""
        return self.multiplier.double() * torch.exp2(-self.shift.double())

    @property
    def _half(self) -> Tensor:
        return torch.ones_like(self.shift) << (self.shift - 1)

    def _check_parameters(self) -> None:
        if self.rounding == "INEXACT_ROUND":
            return
        if bool((self.multiplier < 0).any()):
            raise Unpredictable(f"the multiplier {int(self.multiplier.min())} is negative")
        if bool(((self.shift < 2) | (self.shift > 62)).any()):
            wrong = self.shift[(self.shift < 2) | (self.shift > 62)]
            raise Unpredictable(f"the shift {int(wrong[0])} is outside of 2 to 62")

    def _is_predictable(self) -> bool:
        """Can no input of the interval leave what TOSA defines?"""
        low, high = self.interval.low - self.input_zp, self.interval.high - self.input_zp
        results = torch.stack([self._scaled(low), self._scaled(high)])
        least, most = self.levels
        low_end, high_end = (int(end) + self.output_zp for end in torch.aminmax(results))
        self.ends = min(max(low_end, least), most), min(max(high_end, least), most)
        fits = bool(((results >= INT32[0]) & (results <= INT32[1])).all())
        if not self.limited:
            return fits
        limit = torch.ones_like(self.shift) << (self.shift - 1)
        return fits and bool(((low >= -limit) & (high < limit)).all())

    def _scaled(self, value: Tensor) -> Tensor:
        """`value` (int64, zero point gone) times multiplier / 2^shift, rounded."""
        multiplier, shift = self.multiplier, self.shift
        if self.rounding == "INEXACT_ROUND":
            # TOSA leaves the rounding open here; these are the reference model's float32 values.
            return (value.float() * self.slope.float()).round().to(torch.int64)
        half = self._half
        if self.rounding == "DOUBLE_ROUND":
            nudge = torch.where(value >= 0, 1 << 30, -(1 << 30))
            half = half + torch.where(shift > 31, nudge, 0)
        return (value * multiplier + half) >> shift

    def exact(self, v: Tensor) -> Tensor:
        """The definition: integer arithmetic, with a run-time check where it can fail."""
        plain = self.rounding == "SINGLE_ROUND" and not self.input_unsigned and v.dim() > 0
        if plain and self.predictable:
            return self._in_blocks(v)
        value = v.to(torch.int64)
        if self.input_unsigned:
            value = value & ((1 << dtype_bits(self.input)) - 1)
        value = value - self.input_zp
        result = self._scaled(value)
        if not self.predictable:
            self._check(value, result)
        return (result + self.output_zp).clamp(*self.levels).to(self.output)

    def _in_blocks(self, v: Tensor) -> Tensor:
        """The same without checks, in place, some rows at a time: int64 stays in the caches."""
        width = v.shape[-1]
        step = max(1, BLOCK * torch.get_num_threads() // max(1, width))
        out = torch.empty(v.shape, dtype=self.output, device=v.device)
        if not v.numel():
            return out
        half, flat = self._half, (v.reshape(-1, width), out.view(-1, width))
        for rows, result in zip(*(torch.split(t, step) for t in flat)):
            value = rows.to(torch.int64, copy=True)
            if self.input_zp:
                value.sub_(self.input_zp)
            value.mul_(self.multiplier).add_(half).bitwise_right_shift_(self.shift)
            if self.output_zp:
                value.add_(self.output_zp)
            result.copy_(value.clamp_(*self.levels))
        return out

    def _check(self, value: Tensor, result: Tensor) -> None:
        if self.limited:
            limit = torch.ones_like(self.shift) << (self.shift - 1)
            if bool(((value < -limit) | (value >= limit)).any()):
                raise Unpredictable("a value is too large for its shift")
        if bool(((result < INT32[0]) | (result > INT32[1])).any()):
            raise Unpredictable("a result lies outside int32 before it narrows")

    def steps(self, interval: Interval) -> Steps | None:
        """The step function for each channel of `interval`, or None if it is too long to list."""
        channels = len(interval.low)
        listable = self.levels[1] - self.levels[0] < 256 and self.rounding != "INEXACT_ROUND"
        if not (listable and self.predictable) or self.input_zp or self.input_unsigned:
            return None

        def result(value: Tensor) -> Tensor:
            return self._scaled(value.T).T + self.output_zp

        slope = self.slope.expand(channels)
        return find_steps(result, slope, self.output_zp, self.levels, interval)

    def _prepare_float(self, float32: bool, fits: bool) -> None:
        if self.input_zp or self.input_unsigned or self.interval.peak >= FLOAT64_EXACT:
            return
        interval = self.interval
        if len(self.multiplier) == 1:
            interval = Interval(interval.low.min().reshape(1), interval.high.max().reshape(1))
        elif len(interval.low) == 1:
            count = len(self.multiplier)
            interval = Interval(interval.low.expand(count), interval.high.expand(count))
        affine: Affine | None = self._float64_by_distance(interval)
        if fits and affine is not None and not affine.proved.all():
            affine = self.fit(fit_float64, interval)
            if affine is not None:
                affine = replace(affine, offset=affine.offset - self.output_zp)
        if affine is not None and affine.proved.all():
            self._float64 = affine
        if float32 and fits and dtype_bits(self.output) == 8 and interval.peak <= FLOAT32_EXACT:
            narrow = self.fit(fit_float32, interval)
            self._float32 = narrow if narrow is not None and narrow.proved.all() else None

    def fit(
        self,
        how: Callable[[Steps], Affine],
        interval: Interval,
        lift: int = 0,
        bias: Tensor | None = None,
        spare: int = 0,
    ) -> Affine | None:
        """Coefficients for each channel of `interval`, as a function of the value without `bias`.

        A few channels at a time, as their steps take kilobytes each; given up when more than
        `spare` of them cannot be proved.
        """
        found = []
        for index in torch.split(torch.arange(len(interval.low)), CHANNELS):
            part = self.select(index, interval)
            steps = part.steps(part.interval)
            if steps is None or not len(steps.level):
                return None
            steps = replace(steps, level=steps.level + lift)
            found.append(how(steps if bias is None else steps.shifted(-bias[index])))
            spare -= int((~found[-1].proved).sum())
            if spare < 0:
                return None
        return Affine(
            torch.cat([a.slope for a in found]),
            torch.cat([a.offset for a in found]),
            torch.cat([a.proved for a in found]),
        )

    def _float64_by_distance(self, interval: Interval) -> Affine:
        """Coefficients from the distance between results: multiples of 2^-shift before rounding.

        Half that distance added keeps float64's error off the steps.
        """
        odd = self.multiplier & -self.multiplier
        distance = torch.where(odd > 0, odd, 1).double() * torch.exp2(-self.shift.double())
        # The half that rounding adds is a multiple of the distance only up to one half.
        distance = distance.clamp(max=0.5)
        # Without the zero point: small numbers err least. What lies beyond the levels is clamped.
        low, high = (level - self.output_zp for level in self.levels)
        peak = self.slope * torch.maximum(interval.low.abs(), interval.high.abs()) + 1
        peak = peak.clamp(max=float(max(abs(low), abs(high) + 1)))
        # The product, the offset and their sum are each rounded by 2^-53 of what they are.
        proved = (peak + 2) * 2.0**-52 < distance / 2
        single = self.rounding == "SINGLE_ROUND"
        if self.rounding == "DOUBLE_ROUND":
            single = bool((self.shift <= 31).all())
        return Affine(self.slope, distance / 2, proved & single)

    def __call__(self, v: Tensor, carrier: torch.dtype | None = None) -> Tensor:
        """The result, in `carrier`: the output's type, or uint8 for int8 with 128 added."""
        carrier = carrier or self.output
        if v.is_cuda:
            found = cuda.rescaled(self, v)
            return self.exact(v) if found is None else found
        if self._table is not None:
            result = self._table[v.view(torch.uint8).to(torch.int32)]
            return to_carrier(result) if carrier is torch.uint8 else result
        self._seen += v.numel() // len(self.multiplier)
        self.prepare(v.dtype is torch.float32, fits=self._fitted or self._seen >= PAYS)
        if v.dtype is torch.float32 and self._float32 is not None:
            return self._blocks(v, torch.float32, carrier)
        if self._float64 is not None:
            return self._blocks(v, torch.float64, carrier)
        return to_carrier(self.exact(v)) if carrier is torch.uint8 else self.exact(v)

    def _coefficients(self, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Slope and offset for `count` elements, repeated to rows that are long but fit in L1."""
        if (count, dtype) not in self._rows:
            affine = self._float32 if dtype is torch.float32 else self._float64
            assert affine is not None
            slope, offset = affine.slope, affine.offset
            if dtype is torch.float64:
                offset = offset + 0.5  # a floor rounds half up then
            positions = count // len(slope)
            most = max(1, ROW // len(slope))
            times = next(t for t in range(most, 0, -1) if positions % t == 0)
            if times * len(slope) * 4 < ROW < count:
                times = most
            self._rows[count, dtype] = (
                slope.to(dtype).repeat(times),
                offset.to(dtype).repeat(times),
            )
        return self._rows[count, dtype]

    def _blocks(self, v: Tensor, dtype: torch.dtype, carrier: torch.dtype) -> Tensor:
        slope, offset = self._coefficients(v.numel(), dtype)
        width = len(slope)
        flat = v.reshape(-1)
        out = torch.empty(v.shape, dtype=carrier)
        result = out.view(-1)
        rows = len(flat) // width
        step = max(1, BLOCK * torch.get_num_threads() // width)
        run = self._block32 if dtype is torch.float32 else self._block64
        for start in range(0, rows, step):
            part = slice(start * width, min(start + step, rows) * width)
            run(flat[part].view(-1, width), slope, offset, result[part].view(-1, width))
        if rest := len(flat) - rows * width:
            part = slice(rows * width, None)
            run(flat[part], slope[:rest], offset[:rest], result[part])
        return out

    def _block32(self, v: Tensor, slope: Tensor, offset: Tensor, out: Tensor) -> None:
        # Separate operations, as in the proof: a fused one would round once.
        space = torch.mul(v, slope).add_(offset).round_().clamp_(*self.levels)
        if out.dtype is torch.uint8:
            space = space.add_(OFFSET)
        elif self.output_unsigned:
            out = out.view(torch.uint8)
        out.copy_(space)

    def _block64(self, v: Tensor, slope: Tensor, offset: Tensor, out: Tensor) -> None:
        space = v.double()
        torch.addcmul(offset, space, slope, out=space)
        space.floor_().clamp_(*(level - self.output_zp for level in self.levels))
        added = self.output_zp + (OFFSET if out.dtype is torch.uint8 else 0)
        if added:
            space.add_(added)
        out.copy_(space.to(torch.int32) if self.output_unsigned else space)

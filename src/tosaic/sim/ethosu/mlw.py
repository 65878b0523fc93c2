"""Compressed weights: the entropy code of all Ethos-U ("SWD") and U85's fast format ("FWD").

A stream is a run of slices. A slice has a header, maybe a new palette, and values in Golomb-Rice
code: 12 unary digits at a time with their remainders one chunk later, and, if the header says so,
runs of zeros coded beside them in the same way. Every length comes from the stream and is checked:
a corrupt stream raises InvalidInput, where the decoder of Vela's wheel ends the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput

Weights = NDArray[np.int16]

_ZERO_RUNS_OFF, _END = 6, 7
_UNCOMPRESSED = 7
_CHUNK = 12
_ONES = [n.bit_count() for n in range(1 << _CHUNK)]
_FAST_HEADER = 32
_FAST_TABLE = 14
"""Where the 16 entries of 9 bits stand in the header of the fast format, in bytes."""


class _Bits:
    """Reads little-endian bit fields; past the end is an error."""

    __slots__ = ("data", "position", "size")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = 8 * len(data)
        self.position = 0

    def take(self, count: int) -> int:
        at = self.position
        self.position = at + count
        if self.position > self.size:
            raise InvalidInput("the compressed weights end within a value")
        found = int.from_bytes(self.data[at >> 3 : (at + count + 7) >> 3], "little")
        return found >> (at & 7) & (1 << count) - 1

    def fields(self, count: int, width: int) -> NDArray[np.int64]:
        """Many fields of one width."""
        at = self.position
        self.position = at + count * width
        if self.position > self.size:
            raise InvalidInput("the compressed weights end within a value")
        raw = np.frombuffer(self.data, np.uint8)[at >> 3 : (self.position + 7) >> 3]
        digits = np.unpackbits(raw, bitorder="little")[at & 7 :][: count * width]
        places = np.int64(1) << np.arange(width, dtype=np.int64)
        result: NDArray[np.int64] = digits.reshape(count, width) @ places
        return result


@dataclass(slots=True)
class _Palette:
    """How a code becomes a weight: the first codes are entries, the rest are shifted."""

    entries: list[int] = field(default_factory=list)
    offset: int = 0
    bits: int = 0
    with_zero_runs: bool = False

    def weights(self, codes: NDArray[np.int64]) -> Weights:
        size = len(self.entries)
        value = codes - size + self.offset
        if size:
            table = np.array(self.entries, np.int64)
            value = np.where(codes < size, table[np.minimum(codes, size - 1)], value)
        magnitude = value >> 1
        if len(value) and int(magnitude.max()) > 255:
            raise InvalidInput("the compressed weights hold a value beyond 9 bits")
        return np.where(value & 1, -magnitude, magnitude).astype(np.int16)


def decode(data: bytes, limit: int) -> Weights:
    """The weights of a standard stream; more than ``limit`` of them is an error."""
    bits = _Bits(data)
    palette: _Palette | None = None
    found: list[Weights] = []
    total = 0
    while bits.position + 3 <= bits.size:
        zero_divisor = bits.take(3)
        if zero_divisor == _END:
            bits.position = (bits.position + 7) & ~7
            palette = None
            continue
        if zero_divisor > 3 and zero_divisor != _ZERO_RUNS_OFF:
            raise InvalidInput(f"the compressed weights have a slice of kind {zero_divisor}")
        part, palette = _slice(bits, zero_divisor, palette, limit - total)
        found.append(part)
        total += len(part)
    return np.concatenate(found) if found else np.empty(0, np.int16)


def _slice(
    bits: _Bits, zero_divisor: int, palette: _Palette | None, limit: int
) -> tuple[Weights, _Palette]:
    runs = zero_divisor != _ZERO_RUNS_OFF
    count = bits.take(15) + 1
    divisor, truncated, fresh = bits.take(3), bits.take(1), bits.take(1)
    if fresh:
        palette = _read_palette(bits, runs)
    elif palette is None or palette.with_zero_runs != runs:
        raise InvalidInput("a slice of the compressed weights lacks its palette")
    if count > limit:
        raise InvalidInput("the compressed weights hold more values than the operation takes")
    width = 0
    if divisor == _UNCOMPRESSED:
        size = len(palette.entries)
        width = max(size - 1, 0).bit_length() if size else palette.bits
    elif divisor > 5:
        raise InvalidInput(f"the compressed weights have a slice of divisor {divisor}")
    coder = _Chunks(bits, divisor if divisor != _UNCOMPRESSED else width, count)
    coder.uncompressed, coder.truncated = divisor == _UNCOMPRESSED, bool(truncated)
    if runs:
        codes, zeros = coder.with_runs(zero_divisor, count + fresh, limit)
    else:
        codes, zeros = coder.alone(), None
    values = palette.weights(codes)
    return _spread(values, zeros, bool(fresh), limit), palette


def _read_palette(bits: _Bits, runs: bool) -> _Palette:
    offset, size = bits.take(5), bits.take(5)
    width = bits.take(3) + 2
    entries = [bits.take(width) for _ in range(size + 1 if size else 0)]
    return _Palette(entries, offset, width, runs)


def _spread(
    values: Weights, zeros: NDArray[np.int64] | None, leading: bool, limit: int
) -> Weights:
    """Values with their runs of zeros after them, and before the first if there is one more."""
    if zeros is None:
        return values
    if len(values) + int(zeros.sum()) > limit:
        raise InvalidInput("the compressed weights hold more values than the operation takes")
    first, after = (int(zeros[0]), zeros[1:]) if leading else (0, zeros)
    places = first + np.arange(len(values)) + np.cumsum(after) - after
    result = np.zeros(first + len(values) + int(after.sum()), np.int16)
    result[places] = values
    return result


class _Chunks:
    """The values of one slice: quotients in chunks of unary digits, remainders one chunk later."""

    def __init__(self, bits: _Bits, divisor: int, count: int) -> None:
        self.bits, self.divisor, self.count = bits, divisor, count
        self.uncompressed = self.truncated = False
        self.quotients: list[int] = []
        self.remainders: list[int] = []
        self.carry = 0

    def alone(self) -> NDArray[np.int64]:
        """All values of a slice without runs of zeros."""
        if self.uncompressed:
            return self.bits.fields(self.count, self.divisor)
        pending = 0
        while len(self.quotients) < self.count:
            before = len(self.quotients)
            self._unary(self.bits.take(_CHUNK))
            self._remainders(pending)
            pending = min(len(self.quotients), self.count) - before
        self._remainders(pending)
        return self._values(self.count)

    def with_runs(
        self, divisor: int, runs: int, limit: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All values and the runs of zeros coded beside them.

        The side that is ahead waits: weights while they lead by 8, runs while they lead.
        """
        bits, zeros = self.bits, _Chunks(self.bits, divisor, runs)
        digits = _CHUNK if divisor < 3 else 8
        weights_due = zeros_due = 0
        weights = self.count
        while True:
            lead = len(self.quotients) - len(zeros.quotients)
            take_weights = lead < 8 and len(self.quotients) < weights
            take_zeros = lead >= 0 and len(zeros.quotients) < runs
            first = bits.take(_CHUNK) if take_weights and not self.uncompressed else 0
            before_zeros, before = len(zeros.quotients), len(self.quotients)
            if take_zeros:
                zeros._plain_unary(bits.take(digits), digits)
            if take_weights:
                self._unary(first)
            self._remainders(weights_due)
            zeros._remainders(zeros_due)
            weights_due = max(min(len(self.quotients), weights) - before, 0)
            zeros_due = max(min(len(zeros.quotients), runs) - before_zeros, 0)
            if not take_weights and not take_zeros:
                return self._values(weights), zeros._values(runs)

    def _unary(self, first: int) -> None:
        """Quotients of a chunk: each digit is 0, 1 or 2, and 2 goes on unless truncated."""
        symbols = 8 if self.uncompressed and self.divisor > 5 else _CHUNK
        second = self.bits.take(_ONES[first])
        total = self.carry
        for _ in range(symbols):
            code = first & 1
            if code:
                code += second & 1
                second >>= 1
            first >>= 1
            total += code
            if code < 2 or self.truncated:
                self.quotients.append(total)
                total = 0
        self.carry = total

    def _plain_unary(self, field: int, digits: int) -> None:
        total = self.carry
        for _ in range(digits):
            if field & 1:
                total += 1
            else:
                self.quotients.append(total)
                total = 0
            field >>= 1
        self.carry = total

    def _remainders(self, count: int) -> None:
        if count and self.divisor:
            field, width = self.bits.take(count * self.divisor), self.divisor
            mask = (1 << width) - 1
            self.remainders.extend(field >> width * i & mask for i in range(count))
        else:
            self.remainders.extend([0] * count)

    def _values(self, count: int) -> NDArray[np.int64]:
        quotients = np.array(self.quotients[:count], np.int64)
        return (quotients << self.divisor) + np.array(self.remainders[:count], np.int64)


def decode_fast(data: bytes, limit: int) -> Weights:
    """The weights of U85's fast format: a header, then bytes, or indices of 4 or 2 bits."""
    if len(data) < _FAST_HEADER:
        raise InvalidInput("the weights in fast format end within their header")
    kind = data[0]
    body = np.frombuffer(data, np.uint8)[_FAST_HEADER:]
    if kind == 1:
        return body[:limit].view(np.int8).astype(np.int16)
    if kind not in (0, 2):
        raise InvalidInput(f"the weights in fast format are of the unknown kind {kind}")
    packed = int.from_bytes(data[_FAST_TABLE:_FAST_HEADER], "little")
    codes = np.array([packed >> 9 * i & 0x1FF for i in range(16)])
    table = np.where(codes & 1, -(codes >> 1), codes >> 1).astype(np.int16)
    width = 2 if kind == 2 else 4
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    index = body[:, None] >> shifts & (1 << width) - 1
    return table[index.reshape(-1)[:limit]]

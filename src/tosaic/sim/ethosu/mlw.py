"""Compressed weights: the entropy code of all Ethos-U ("SWD") and U85's fast format ("FWD").

A stream is a run of slices. A slice has a header, maybe a new palette, and values in Golomb-Rice
code: 12 unary digits at a time with their remainders one chunk later, and, if the header says so,
runs of zeros coded beside them in the same way. Every length comes from the stream and is checked:
a corrupt stream raises InvalidInput, where the decoder of Vela's wheel ends the process.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput

Weights = NDArray[np.int16]
Ints = NDArray[np.signedinteger[Any]]

_ZERO_RUNS_OFF, _END = 6, 7
_UNCOMPRESSED = 7
_CHUNK = 12
_ONES = bytes(n.bit_count() for n in range(1 << _CHUNK))
_WORD = struct.Struct("<I").unpack_from
_CUT = "the compressed weights end within a value"
_FAST_HEADER = 32
_FAST_ZERO = 13
"""Where the zero point of plain bytes stands in the header of the fast format."""
_FAST_TABLE = 14
"""Where the 16 entries of 9 bits stand in the header of the fast format, in bytes."""


class _Bits:
    """Reads little-endian bit fields; past the end is an error.

    A field is taken from the 32 bits that start at its first byte, so it has at most 25.
    """

    __slots__ = ("data", "position", "size", "words")

    def __init__(self, data: bytes) -> None:
        self.data = data + bytes(8)
        self.words: NDArray[np.uint32] = np.ndarray(len(data) + 4, "<u4", self.data, strides=(1,))
        self.size = 8 * len(data)
        self.position = 0

    def take(self, count: int) -> int:
        at = self.position
        self.advance(count)
        return self.window(at) & (1 << count) - 1

    def window(self, at: int) -> int:
        """The bits from a place on, 25 of them at least; nothing but zeros lies past the end."""
        if at > self.size:
            raise InvalidInput(_CUT)
        return int(_WORD(self.data, at >> 3)[0]) >> (at & 7)

    def advance(self, count: int) -> None:
        self.position += count
        if self.position > self.size:
            raise InvalidInput(_CUT)

    def fields(self, places: Ints, width: int) -> Ints:
        """Fields of one width at many places."""
        found: Ints = (self.words[places >> 3] >> (places & 7).astype(np.uint32)).astype(np.int32)
        found &= (1 << width) - 1
        return found

    def row(self, at: int, count: int, width: int) -> Ints:
        """Fields of one width, one behind the other: every eighth starts at the same bit."""
        found = np.empty((-(-count // 8), 8), np.int32)
        for phase in range(8):
            byte, shift = divmod(at + phase * width, 8)
            places = slice(byte, byte + len(found) * width, width) if width else [0] * len(found)
            part = self.words[places]
            found[: len(part), phase] = part >> np.uint32(shift) & (1 << width) - 1
        return found.reshape(-1)[:count]


@dataclass(slots=True)
class _Palette:
    """How a code becomes a weight: the first codes are entries, the rest are shifted."""

    entries: list[int] = field(default_factory=list)
    offset: int = 0
    bits: int = 0
    with_zero_runs: bool = False

    def weights(self, codes: Ints) -> Weights:
        """The weights that codes stand for, by a table of all codes up to the largest."""
        size = len(self.entries)
        largest = int(codes.max()) if len(codes) else -1
        every = np.arange(largest + 1)
        value = every - size + self.offset
        value[:size] = self.entries[: largest + 1]
        magnitude = value >> 1
        table = np.where(value & 1, -magnitude, magnitude)
        if largest >= 0 and int(magnitude.max()) > 255 and int(np.abs(table[codes]).max()) > 255:
            raise InvalidInput("the compressed weights hold a value beyond 9 bits")
        return table.astype(np.int16)[codes]


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
    plain = divisor == _UNCOMPRESSED
    if not runs and plain:
        return palette.weights(_plain(bits, count, width)), palette
    if not runs:
        return palette.weights(_golomb(bits, count, divisor, bool(truncated))), palette
    weights = _Coded(count, width if plain else divisor, 0 if plain else _CHUNK)
    zeros = _Coded(count + fresh, zero_divisor, _CHUNK if zero_divisor < 3 else 8)
    _scan(bits, weights, zeros, bool(truncated))
    values = palette.weights(weights.values(bits, weights.codes(bits, bool(truncated))))
    return _spread(values, zeros.values(bits, zeros.unary(bits)), bool(fresh), limit), palette


def _read_palette(bits: _Bits, runs: bool) -> _Palette:
    offset, size = bits.take(5), bits.take(5)
    width = bits.take(3) + 2
    entries = [bits.take(width) for _ in range(size + 1 if size else 0)]
    return _Palette(entries, offset, width, runs)


def _spread(values: Weights, zeros: Ints, leading: bool, limit: int) -> Weights:
    """Values with their runs of zeros after them, and before the first if there is one more."""
    if len(values) + int(zeros.sum()) > limit:
        raise InvalidInput("the compressed weights hold more values than the operation takes")
    first, after = (int(zeros[0]), zeros[1:]) if leading else (0, zeros)
    places = first + np.arange(len(values)) + np.cumsum(after) - after
    result = np.zeros(first + len(values) + int(after.sum()), np.int16)
    result[places] = values
    return result


@dataclass(slots=True)
class _Coded:
    """Where the parts of one kind of values lie: found first, then read all at once."""

    count: int
    divisor: int
    """Bits of a remainder."""
    digits: int
    """Unary digits of a chunk; 0 for values without quotients."""
    found: int = 0
    due: int = 0
    """Remainders of the last chunk, which follow the digits of the next."""
    first: list[int] = field(default_factory=list)
    second: list[int] = field(default_factory=list)
    remainders: list[int] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)

    def note(self, symbols: int) -> None:
        """A chunk has so many values more; those beyond the count have no remainder."""
        self.due = max(min(self.found + symbols, self.count) - self.found, 0)
        self.found += symbols

    def settle(self, bits: _Bits) -> None:
        """The remainders of the chunk before stand here."""
        if self.due:
            self.remainders.append(bits.position)
            self.shares.append(self.due)
            bits.advance(self.due * self.divisor)
            self.due = 0

    def codes(self, bits: _Bits, truncated: bool) -> Ints:
        """Quotients: a digit is 0, 1 or 2, and unless truncated a 2 goes on."""
        if not self.digits:
            return np.zeros(self.count, np.int32)
        first, second = (
            bits.fields(np.array(p, np.int64), _CHUNK) for p in (self.first, self.second)
        )
        return _quotients(_ternary(first, second), self.count, truncated)

    def unary(self, bits: _Bits) -> Ints:
        """Quotients: as many ones as stand before a zero."""
        digits = _digits(bits.fields(np.array(self.first, np.int64), self.digits), self.digits)
        return _segments(digits, digits == 0)[: self.count]

    def values(self, bits: _Bits, quotients: Ints) -> Ints:
        starts, shares = np.array(self.remainders, np.int64), np.array(self.shares, np.int64)
        return _with_remainders(bits, quotients, starts, shares, self.divisor)


def _digits(fields: Ints, count: int) -> Ints:
    return fields[:, None] >> np.arange(count) & 1


def _segments(digits: NDArray[np.integer[Any]], last: NDArray[np.bool_]) -> Ints:
    """Sums of the digits up to each that is the last of its value."""
    totals = np.cumsum(digits.reshape(-1), dtype=np.int32)[np.flatnonzero(last)]
    return np.diff(totals, prepend=np.int32(0))


def _ternary(low: Ints, high: Ints) -> NDArray[np.uint8]:
    """The digits 0, 1 and 2 of chunks, a row each: ones of the low bits have a high bit each."""
    digits = np.empty((_CHUNK, len(low)), np.uint8)
    rank = np.zeros_like(low)
    for place in range(_CHUNK):
        bit = low >> place & 1
        digits[place] = bit + (bit & high >> rank)
        rank += bit
    return np.ascontiguousarray(digits.T)


def _quotients(digits: NDArray[np.uint8], count: int, truncated: bool) -> Ints:
    """The quotients that rows of digits spell: unless truncated a 2 goes on."""
    last = digits.reshape(-1) < 2
    if truncated or last.all():
        return digits.reshape(-1)[:count].astype(np.int32)
    return _segments(digits, last)[:count]


def _with_remainders(
    bits: _Bits, quotients: Ints, starts: Ints, shares: Ints, divisor: int
) -> Ints:
    """Values from their quotients and the remainders, so many from each start on."""
    if not divisor:
        return quotients
    before = np.cumsum(shares) - shares
    places = np.repeat(starts - before * divisor, shares)
    places += np.arange(0, len(places) * divisor, divisor)
    return (quotients << divisor) + bits.fields(places, divisor)


def _plain(bits: _Bits, count: int, width: int) -> Ints:
    """Values of a slice that has them as they are, one behind the other."""
    at = bits.position
    bits.advance(count * width)
    return bits.row(at, count, width)


def _golomb(bits: _Bits, count: int, divisor: int, truncated: bool) -> Ints:
    """Values of a slice without runs of zeros: the loop finds where chunks start, and no more."""
    data, word, ones, end = bits.data, _WORD, _ONES, bits.size
    found: list[int] = []
    note = found.append
    at, left, due = bits.position, count, 0
    while left > 0:
        if at > end:
            raise InvalidInput(_CUT)
        note(at)
        window = word(data, at >> 3)[0] >> (at & 7)
        low = ones[window & 0xFFF]
        at += _CHUNK + low + due * divisor
        due = _CHUNK if truncated else _CHUNK - ones[window >> _CHUNK & (1 << low) - 1]
        left -= due
    bits.position = at
    bits.advance((due + left) * divisor)
    starts = np.array(found, np.int64)
    windows = bits.fields(starts, 2 * _CHUNK)
    digits = _ternary(windows & 0xFFF, windows >> _CHUNK)
    shares = np.full(len(starts), _CHUNK)
    if not truncated:
        shares -= (digits == 2).sum(1)
    shares[-1] += left
    # The remainders of a chunk stand behind the digits of the next.
    follow = np.append(starts[1:] + _CHUNK + (digits[1:] > 0).sum(1), at)
    return _with_remainders(bits, _quotients(digits, count, truncated), follow, shares, divisor)


def _scan(bits: _Bits, weights: _Coded, zeros: _Coded, truncated: bool) -> None:
    """Go through the chunks of a slice and note where everything stands.

    The side that is ahead waits: weights while they lead by 8, runs of zeros while they lead.
    """
    while True:
        lead = weights.found - zeros.found
        take = lead < 8 and weights.found < weights.count
        take_zeros = lead >= 0 and zeros.found < zeros.count
        ones = symbols = 0
        if take and weights.digits:
            at = bits.position
            ones = _ONES[bits.window(at) & 0xFFF]
            weights.first.append(at)
            bits.advance(_CHUNK)
        if take_zeros:
            at = bits.position
            zeros.first.append(at)
            bits.advance(zeros.digits)
            skipped = _ONES[bits.window(at) & (1 << zeros.digits) - 1]
        if take and weights.digits:
            at = bits.position
            twos = bits.window(at) & (1 << ones) - 1
            weights.second.append(at)
            bits.advance(ones)
            symbols = _CHUNK if truncated else _CHUNK - _ONES[twos]
        elif take:
            symbols = 8 if weights.divisor > 5 else _CHUNK
        weights.settle(bits)
        zeros.settle(bits)
        if take:
            weights.note(symbols)
        if take_zeros:
            zeros.note(zeros.digits - skipped)
        if not take and not take_zeros:
            return


def decode_fast(data: bytes, limit: int) -> Weights:
    """The weights of U85's fast format: a header, then bytes, or indices of 4 or 2 bits."""
    if len(data) < _FAST_HEADER:
        raise InvalidInput("the weights in fast format end within their header")
    kind = data[0]
    body = np.frombuffer(data, np.uint8)[_FAST_HEADER:]
    if kind == 1:
        zero_point = data[_FAST_ZERO] - (data[_FAST_ZERO] >> 7 << 8)
        return body[:limit].view(np.int8).astype(np.int16) - np.int16(zero_point)
    if kind not in (0, 2):
        raise InvalidInput(f"the weights in fast format are of the unknown kind {kind}")
    packed = int.from_bytes(data[_FAST_TABLE:_FAST_HEADER], "little")
    codes = np.array([packed >> 9 * i & 0x1FF for i in range(16)])
    table = np.where(codes & 1, -(codes >> 1), codes >> 1).astype(np.int16)
    width = 2 if kind == 2 else 4
    shifts = np.arange(0, 8, width, dtype=np.uint8)
    index = body[:, None] >> shifts & (1 << width) - 1
    weights: Weights = table[index.reshape(-1)[:limit]]
    return weights

"""The magnitude of a complex number, √(a² + b²), as precise where it is small as where it is large.

Both parts are shifted by the zeros before the highest bit of the larger one, so that 15 bits of it
are left, squared and added; a table gives the root, and the shift is taken back. Without tables of
int16 the sum is shifted instead, and a table of int8 has the root of its 8 highest bits.
"""

from __future__ import annotations

import numpy as np

from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import plus, times
from tosaic.spec.dtypes import I8, I16, I32

_SAMPLES = (Sample(((2, 3, 4), (2, 3, 4)), steps=2, steps16=2), Sample(((40,), (40,)), steps=2))
_MIDDLE, _SPAN = (2.0**31 + 2.0**28) / 2, 2.0**31 - 2.0**28  # of sums of two squares
_LARGEST = 2.0**30.5


@rule("aten.hypot.default", samples=_SAMPLES)
def hypot(b: Lowering, self: Value, other: Value) -> Value:
    if self.quant is None:
        one, two = b.same_rank(self, other)
        return b.RECIPROCAL(b.RSQRT(plus(b, times(b, one, one), times(b, two, two))))
    one, two = b.same_rank(self, other)
    unit, parts = _aligned(b, one, two)
    if not b.env.has("int16"):
        return _by_bytes(unit, parts)
    larger = parts[0].maximum(parts[1]).maximum(1)
    zeros = larger.zeros()  # 2 at least
    short = [(p << zeros - 1).proved(0, 2.0**31 - 1).to(I16, 2.0**16) for p in parts]
    squares = [(s.at(1.0) * s.at(1.0)).proved(0, 32767.0**2) for s in short]
    total = (squares[0] + squares[1]).proved(0, 2 * 32767.0**2)
    index = (total - _MIDDLE).to(I16, _SPAN / 65535)
    sums = _MIDDLE + np.arange(-256, 257) * 128 * _SPAN / 65535
    root = index.table(np.round(np.sqrt(np.maximum(sums, 2.0**27)) / 2), I16)  # times 64
    # The root is at most 2^15.5 times 64, and the larger part has the highest bit 2^(31 - zeros).
    root = root.at(1.0).proved(0, 23170 * 128)
    made = ((root << 9) >> zeros - 2).proved(0, _LARGEST)
    return made.at(unit).quantized()


def _by_bytes(unit: float, parts: list[Fixed]) -> Value:
    """The root of a sum of squares of 14 bits each, by the 8 highest bits of the sum."""
    short = [(part >> 16).proved(0, 2.0**14) for part in parts]
    total = (short[0] * short[0] + short[1] * short[1]).maximum(1).proved(1, 2.0**29)
    half = ((total.zeros() - 2) >> 1).proved(0, 15)  # of an even shift, to 2^29 at least
    low, high = 2.0**29, 2.0**31
    whole = (total << half << half).proved(low, high - 1)
    step, middle = (high - low) / 255, (low + high) / 2
    roots = np.sqrt(middle + np.arange(-128, 128) * step)
    first, last = float(np.sqrt(low)), float(np.sqrt(high))
    fine, centre = (last - first) / 255, (first + last) / 2
    entries = np.clip(np.round((roots - centre) / fine), -128, 127)
    found = (whole - middle).to(I8, step).table(entries, I8).to(I32)
    root = found * round(fine * 2.0**15) + round(centre * 2.0**15)
    return (root >> half).proved(0, _LARGEST).at(2 * unit).quantized()


def _aligned(b: Lowering, one: Value, two: Value) -> tuple[float, list[Fixed]]:
    """Magnitudes of both operands below 2^30 in one unit."""
    first, second = Fixed.of(b, one), Fixed.of(b, two)
    unit = max(first.unit * _reach(one), second.unit * _reach(two)) / 2.0**30
    found = []
    for part in (first, second):
        limited = part.at(1.0).maximum(-(2**30 - 1)).minimum(2**30 - 1).at(part.unit)
        scaled = limited if part.unit == unit else limited.scaled(unit)
        found.append(scaled.at(1.0).abs().minimum(2**30 - 1))
    return unit, found


def _reach(x: Value) -> float:
    """How many steps from zero a value can be: of int32 2^30 are used."""
    return {8: 256.0, 16: 32768.0}.get(x.dtype.bits, 2.0**30)

"""The magnitude of a complex number, √(a² + b²), as precise where it is small as where it is large.

Both parts are shifted by the zeros before the highest bit of the larger one, so that 15 bits of it
are left, squared and added; a table gives the root, and the shift is taken back.
"""

from __future__ import annotations

import numpy as np

from tosaic.errors import Unsupported
from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.lowering.fixed_point import Fixed
from tosaic.rules._operands import plus, times
from tosaic.spec.dtypes import I16

_SAMPLES = (Sample(((2, 3, 4), (2, 3, 4)), steps=2, steps16=2), Sample(((40,), (40,)), steps=2))
_MIDDLE, _SPAN = (2.0**31 + 2.0**28) / 2, 2.0**31 - 2.0**28  # of sums of two squares
_LARGEST = 2.0**30.5


@rule("aten.hypot.default", samples=_SAMPLES, integers=(I16,), why="its root is a table of int16")
def hypot(b: Lowering, self: Value, other: Value) -> Value:
    if self.quant is None:
        one, two = b.same_rank(self, other)
        return b.RECIPROCAL(b.RSQRT(plus(b, times(b, one, one), times(b, two, two))))
    if not b.env.has("int16"):
        raise Unsupported("a magnitude of integers needs tables of int16")
    one, two = b.same_rank(self, other)
    unit, parts = _aligned(b, one, two)
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

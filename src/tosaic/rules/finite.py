"""isnan, isinf and isfinite; integers are always finite."""

from __future__ import annotations

import math

import numpy as np

from tosaic.front.registry import shared
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d


def _all(b: Lowering, x: Value, answer: bool) -> Value:
    return b.const(lambda: np.full(x.shape, answer), d.BOOL, shape=x.shape)


@shared("aten.isnan.default")
def isnan(b: Lowering, self: Value) -> Value:
    """What is not equal to itself."""
    return b.LOGICAL_NOT(b.EQUAL(self, self)) if self.dtype.is_float else _all(b, self, False)


@shared("aten.isinf.default")
def isinf(b: Lowering, self: Value) -> Value:
    if not self.dtype.is_float:
        return _all(b, self, False)
    return b.EQUAL(b.ABS(self), b.number(math.inf, self))


@shared("aten.isfinite.default")
def isfinite(b: Lowering, self: Value) -> Value:
    """Comparisons with what is no number are false."""
    if not self.dtype.is_float:
        return _all(b, self, True)
    return b.GREATER(b.number(math.inf, self), b.ABS(self))

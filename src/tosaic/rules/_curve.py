"""Functions of one value: operators of TOSA in float, a table in integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tosaic.front.registry import Sample, rule
from tosaic.ir.graph import Value
from tosaic.lowering.builder import Lowering
from tosaic.rules._operands import plus, times

Real = Callable[..., Value]


def curves(low: float, high: float, steps16: int = 2) -> tuple[Sample, ...]:
    """Lines between int16 entries and the rounding after them: 2 steps where f is smooth."""
    shapes = ((2, 3, 5),), ((40,),)
    return tuple(Sample(s, domain=(low, high), steps16=steps16) for s in shapes)


def polynomial(b: Lowering, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's scheme; the constant comes first."""
    total = b.number(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = plus(b, times(b, total, x), coefficient)
    return total


def near_zero(b: Lowering, x: Value, near: Value, far: Value) -> Value:
    """``near`` up to 1/16: a series, where ``far`` has lost the digits of a small x to 1 + x."""
    return b.SELECT(b.GREATER(b.ABS(x), b.number(1 / 16, x)), far, near)


def curve(
    name: str, samples: Sequence[Sample], reach: float = math.inf, **options: Any
) -> Callable[[Real], Real]:
    """A rule whose integer form is a table of the operator; what is decorated is its float form."""
    packet = getattr(torch.ops.aten, name)

    def register(real: Real) -> Real:
        @rule(f"aten.{name}.default", samples=samples, **options)
        def lower(b: Lowering, self: Value, *rest: Any, **named: Any) -> Value:
            if self.quant is None:
                return real(b, self, *rest, **named)
            return b.table(self, lambda x: packet.default(x, *rest, **named), reach)

        return lower

    return register

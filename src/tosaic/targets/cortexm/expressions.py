"""Expressions: what a loop computes of one element, as a tree over loads from views.

All leaves of an expression have the strides of the loop's axes, so a transposition, a slice or a
broadcast of the result is one of its leaves. ``low`` and ``high`` bound what an integer can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tosaic.targets.cortexm.views import View

INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """An element of a view, widened to a type of C that it is computed in."""

    view: View
    ctype: str
    low: int = INT32[0]
    high: int = INT32[1]


@dataclass(frozen=True, slots=True, eq=False)
class Ref:
    """The first element of a table, whatever the place in the loop."""

    view: View
    ctype: str = "pointer"
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Imm:
    """A number."""

    value: int | float
    ctype: str = "int32_t"

    @property
    def low(self) -> int:
        return int(self.value) if self.ctype != "float" else INT32[0]

    @property
    def high(self) -> int:
        return self.low if self.ctype != "float" else INT32[1]


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """C with a hole for each operand, such as ``{0} + {1}``."""

    code: str
    args: tuple[Expr, ...]
    ctype: str = "int32_t"
    low: int = INT32[0]
    high: int = INT32[1]
    cost: int = 1


Expr = Load | Ref | Imm | Apply


def map_views(expr: Expr, change: Callable[[View], View | None]) -> Expr | None:
    """The expression with every load's view changed; None if that is not possible for one."""
    done: dict[int, Expr | None] = {}

    def walk(e: Expr) -> Expr | None:
        if id(e) not in done:
            done[id(e)] = step(e)
        return done[id(e)]

    def step(e: Expr) -> Expr | None:
        if isinstance(e, Load):
            view = change(e.view)
            return None if view is None else Load(view, e.ctype, e.low, e.high)
        if not isinstance(e, Apply):
            return e
        args = [walk(a) for a in e.args]
        if any(a is None for a in args):
            return None
        return Apply(e.code, tuple(a for a in args if a), e.ctype, e.low, e.high, e.cost)

    return walk(expr)


def nodes(expr: Expr) -> Iterator[Expr]:
    """Every node once, operands before what reads them."""
    seen: set[int] = set()

    def walk(e: Expr) -> Iterator[Expr]:
        if id(e) in seen:
            return
        seen.add(id(e))
        if isinstance(e, Apply):
            for a in e.args:
                yield from walk(a)
        yield e

    yield from walk(expr)


def cost(expr: Expr) -> int:
    """How much an element costs beside its loads."""
    return sum(e.cost for e in nodes(expr) if isinstance(e, Apply))


def within(expr: Expr, low: int, high: int) -> bool:
    return low <= expr.low and expr.high <= high

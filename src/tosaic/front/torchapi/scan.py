"""A recurrence as one call: a function of one step, called for each element along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import HigherOrderOperator


class Scan(HigherOrderOperator):
    """``step`` takes what is carried, an element of each sequence and what it only reads.

    It gives the next carried values, then its results; the call gives the last carried values and
    the results of all steps, stacked. ``axes`` are those of the sequences, then of the results;
    ``back`` begins with the last element. With ``block`` an element is so many places of an axis.
    """

    def __init__(self) -> None:
        super().__init__("tosaic_scan")  # type: ignore[no-untyped-call]

    def __call__(
        self, step: Callable[..., Sequence[Tensor]], carried: Sequence[Tensor],
        xs: Sequence[Tensor], read: Sequence[Tensor], count: int, axes: Sequence[int],
        back: bool = False, block: int = 0,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        state, made = tuple(carried), list[tuple[Tensor, ...]]()
        for index in reversed(range(count)) if back else range(count):
            elements = (
                x.narrow(axis, index * block, block) if block else x.select(axis, index)
                for x, axis in zip(xs, axes)
            )
            results = tuple(step(*state, *elements, *read))
            state = results[: len(state)]
            made.append(results[len(state) :])
        kinds = zip(*(reversed(made) if back else made))
        join = torch.cat if block else torch.stack
        return (*state, *(join(kind, axis) for kind, axis in zip(kinds, axes[len(xs) :])))


SCAN: Any = Scan()


@dataclass(frozen=True, slots=True)
class ScanCall:
    """The arguments of such a call in a graph."""

    step: fx.Node
    carried: tuple[fx.Node, ...]
    xs: tuple[fx.Node, ...]
    read: tuple[fx.Node, ...]
    count: int
    axes: tuple[int, ...]
    back: bool
    block: int

    @property
    def operands(self) -> list[fx.Node]:
        """All that the step is given, whole sequences for their elements."""
        return [*self.carried, *self.xs, *self.read]

    @property
    def lines(self) -> list[tuple[fx.Node, int]]:
        """The sequences with their axes."""
        return list(zip(self.xs, self.axes))

    def axis_of(self, place: int) -> int:
        """The axis of a result by its place among all."""
        return self.axes[len(self.xs) + place - len(self.carried)]

    @property
    def order(self) -> range:
        """The elements in the order of the steps."""
        return range(self.count)[:: -1 if self.back else 1]


def scan_of(node: fx.Node) -> ScanCall:
    arguments: Any = node.args
    return ScanCall(*arguments)


def is_scan(node: fx.Node) -> bool:
    return node.target is SCAN

"""A target as data: TOSA environment, constraints, costs and the device's compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tosaic.ir.build import Constraint
from tosaic.ir.graph import Array, Graph, Op
from tosaic.rewrite import Cost
from tosaic.rewrite.candidates import Judge
from tosaic.spec.env import Env


class Emit(Protocol):
    """Compiles one graph for a device, and checks the result before anybody gets it.

    ``given`` is an input of the graph that calibration saw. What comes back has the graph's
    ``model`` to run it with, and ``checks``, sentences on what was checked. ToolFailed says what
    does not compile, or compiles wrongly, and cannot be worked around; nothing of that is tried
    without ``mends``.
    """

    def __call__(
        self, graph: Graph, given: Sequence[Array] | None = None, mends: bool = True
    ) -> Any: ...


@dataclass(frozen=True)
class Target:
    """A device or specification to compile for, under the name a user gives.

    ``emit`` compiles one graph for the device; None where TOSA itself is the result. ``start``
    begins what ``emit`` will need, such as a process, and returns at once. ``sums_ride``
    says that an int32 accumulator costs a sum no more than int8 does. ``cost`` estimates what an
    operator takes there, ``judge`` says what small graphs take: among equal forms the best is
    chosen by it. ``steps_at_once`` of a
    recurrent layer are multiplied by its weights in one call, at least: fewer calls fetch weights
    less often, and their results take more memory. Where there are floats
    beside integers, graphs quantize and dequantize at their boundary, unless
    ``preserve_io_quantization``. ``check`` compares float graphs with PyTorch on the example.
    """

    name: str
    env: Env
    constraints: tuple[Constraint, ...] = ()
    emit: Emit | None = None
    start: Callable[[], None] | None = None
    sums_ride: bool = True
    steps_at_once: int = 8
    cost: Cost | None = None
    judge: Judge | None = None
    preserve_io_quantization: bool = False
    check: bool = True

    @property
    def has_casts(self) -> bool:
        """Whether what a graph takes and gives as real numbers becomes integers within it."""
        return {"INT", "FP"} <= self.env.profiles and not self.preserve_io_quantization

    def refuses(self, op: Op) -> str | None:
        """Why an operator that TOSA allows does not run there; None if it does."""
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                return reason
        return None

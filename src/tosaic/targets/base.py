"""What a target is: a TOSA environment, what it refuses beyond TOSA's own rules, its compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tosaic.ir.build import Constraint
from tosaic.ir.graph import Graph, Op
from tosaic.spec.env import Env


@dataclass(frozen=True)
class Target:
    """A device or specification to compile for, under the name a user gives.

    ``emit`` compiles one graph for the device; None where TOSA itself is the result.
    """

    name: str
    env: Env
    constraints: tuple[Constraint, ...] = ()
    emit: Callable[[Graph], Any] | None = None

    def refuses(self, op: Op) -> str | None:
        """Why an operator that TOSA allows does not run there; None if it does."""
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                return reason
        return None

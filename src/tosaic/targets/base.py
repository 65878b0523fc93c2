"""What a target is: a TOSA environment, and what it refuses beyond TOSA's own rules."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.ir.build import Constraint
from tosaic.ir.graph import Op
from tosaic.spec.env import Env


@dataclass(frozen=True)
class Target:
    """A device or specification to compile for, under the name a user gives."""

    name: str
    env: Env
    constraints: tuple[Constraint, ...] = ()

    def refuses(self, op: Op) -> str | None:
        """Why an operator that TOSA allows does not run there; None if it does."""
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                return reason
        return None

"""State of one run: memory, chaining buffers, accumulators, branch condition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Array, Ints
from tosaic.sim.ethosu.memory import Memory
from tosaic.sim.ethosu.operation import Operand


@dataclass(slots=True)
class Machine:
    """What operations read and write."""

    memory: Memory
    chains: dict[int, Array] = field(default_factory=dict)
    sums: Ints | None = None
    """Accumulators that the last operation kept."""
    condition: bool | None = None
    """What the last comparison of two numbers found."""

    def load(self, operand: Operand) -> Array:
        """The values of an input, without its zero point or scaling."""
        if operand.map is not None:
            return operand.map.load(self.memory)
        if operand.chain is not None:
            found = self.chains.get(operand.chain)
            if found is None:
                raise InvalidInput(f"nothing was left in chaining buffer {operand.chain}")
            return found
        return np.full((1, 1, 1), operand.scalar, np.int64)

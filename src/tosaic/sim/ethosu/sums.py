"""Accumulators: where sums start, and whether they go on to the output."""

from __future__ import annotations

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.arrays import Ints
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.output import finish
from tosaic.sim.ethosu.scales import Scales


def hand_on(
    machine: Machine, operation: Operation, sums: Ints, scales: Scales | None = None
) -> None:
    """Add what the sums start from, then finish the operation or keep them for the next."""
    if operation.start == "ifm2":
        operand = operation.ifm2
        assert operand is not None
        first = machine.load(operand).astype(np.int64) - operand.zero_point
        if first.shape != sums.shape:
            raise InvalidInput(f"sums of shape {sums.shape} start from IFM2 of {first.shape}")
        sums = sums + first
    elif operation.start == "keep":
        kept = machine.sums
        if kept is None or kept.shape != sums.shape:
            raise InvalidInput("the operation goes on with sums that none before it has kept")
        sums = sums + kept
    machine.sums = sums if not operation.emit else None
    if operation.emit:
        finish(machine, operation.output, sums, scales)

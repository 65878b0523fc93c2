"""Faults put into compiled streams, and which of the checks finds each.

``python -m npu.check_faults`` prints the table. The network has what streams are made of: layers
whose weights are brought by DMA, a depthwise one, sums and products, a pool, a table, parts of a
whole. A fault is one change of a register, a byte or a command; all must be found by what runs
when a program is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tosaic
from npu.edit import commands, edited
from tosaic.errors import ToolFailed, TosaicError
from tosaic.pipeline import execution
from tosaic.sim.ethosu.stream import Command
from tosaic.targets.ethosu.check import check_stream, compare, expected_of
from tosaic.targets.ethosu.dataflow import Misread, check_dataflow
from tosaic.targets.ethosu.delegate import Delegate, origins
from tosaic.targets.ethosu.vela import VelaResult

MACHINES = {"u55": "ethos-u55-128", "u65": "ethos-u65-512", "u85": "ethos-u85-256"}
CHECKS = ("dataflow", "simulator", "arithmetic")
_NOTHING = 0x13  # the word of NPU_OP_PMU_MASK, which does nothing here


class Net(nn.Module):
    """Two ways through layers, summed, pooled, gated by a table, and joined."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 24, 3, 2, 1)
        self.depth = nn.Conv2d(24, 24, 3, 1, 1, groups=24)
        self.point = nn.Conv2d(24, 40, 1)
        self.skip = nn.Conv2d(24, 40, 1)
        self.gate = nn.Conv2d(40, 40, 1)
        self.last = nn.Linear(80, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = self.point(torch.relu(self.depth(x))) - self.skip(x)
        y = nn.functional.max_pool2d(y, 2)
        z = y * torch.sigmoid(self.gate(y))
        both = torch.cat([z, torch.nn.functional.avg_pool2d(y, 3, 1, 1)], 1)
        return self.last(both.mean((2, 3)))


@dataclass(frozen=True)
class Compiled:
    """The network on a machine, with what calibration gives its stream."""

    machine: str
    made: Delegate
    given: list[np.ndarray]

    @property
    def result(self) -> VelaResult:
        return self.made.result

    def operations(self, kind: str) -> list[Command]:
        return [c for c in commands(self.result) if c.name == kind]

    def setting(self, name: str, before: Command) -> Command:
        """The command that sets what an operation finds in a register."""
        found = [c for c in commands(self.result) if c.name == name and c.index < before.index]
        return found[-1]

    def broken(self, result: VelaResult) -> Delegate:
        other = replace(self.made, result=result, checks=[])
        other.__dict__["model"] = self.made.model
        return other


@cache
def compiled(machine: str) -> Compiled:
    made = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 3, 24, 24, generator=made) for _ in range(4)]
    return compile_net(Net(), inputs, machine)


def compile_net(net: nn.Module, inputs: list[Tensor], machine: str) -> Compiled:
    data = [(x,) for x in inputs]
    art = tosaic.compile(net.eval(), data[0], target=MACHINES[machine], calibration=data)
    assert not art.report.refused, art.report
    values = execution.start(art.program, data)
    assert values is not None
    for piece in art.partition.pieces:
        if piece.graph is not None:
            given = execution.try_operands(piece, values)
            assert given is not None
            return Compiled(machine, art.delegates[0], given)
        execution.try_call(piece, values)
    raise AssertionError


@dataclass(frozen=True)
class Fault:
    """A change of a stream: what it is, where, and how."""

    what: str
    machine: str
    change: Callable[[Compiled], VelaResult]

    def __str__(self) -> str:
        return f"{self.machine}: {self.what}"


Change = Callable[[int], int]


def register(
    what: str, kind: str, name: str, change: Change, nth: int = 0, machines: str = "u55 u65 u85"
) -> Iterator[Fault]:
    """Another value in the register of the nth operation of a kind."""

    def apply(given: Compiled) -> VelaResult:
        command = given.setting(name, given.operations(kind)[nth])
        value = change(command.value)
        assert value != command.value
        return edited(given.result, command, value=value)

    for machine in machines.split():
        yield Fault(what, machine, apply)


def taken(
    what: str, kind: str, name: str, other: tuple[str, str], nth: tuple[int, int],
    machines: str = "u55 u65 u85",
) -> Iterator[Fault]:  # fmt: skip
    """The value of another operation's register instead of an operation's own."""

    def apply(given: Compiled) -> VelaResult:
        command = given.setting(name, given.operations(kind)[nth[0]])
        source = given.setting(other[1], given.operations(other[0])[nth[1]])
        assert source.value != command.value
        return edited(given.result, command, value=source.value)

    for machine in machines.split():
        yield Fault(what, machine, apply)


def dropped(what: str, kind: str, nth: int, machines: str) -> Iterator[Fault]:
    """A command that is not there."""

    def apply(given: Compiled) -> VelaResult:
        return edited(given.result, given.operations(kind)[nth], word=_NOTHING)

    for machine in machines.split():
        yield Fault(what, machine, apply)


def exchanged(what: str, kind: str, one: str, two: str, machines: str) -> Iterator[Fault]:
    """Two registers of an operation with each other's values."""

    def apply(given: Compiled) -> VelaResult:
        operation = given.operations(kind)[0]
        first, second = (given.setting(name, operation) for name in (one, two))
        assert first.value != second.value
        once = edited(given.result, first, value=second.value)
        return edited(once, second, value=first.value)

    for machine in machines.split():
        yield Fault(what, machine, apply)


def constant(what: str, base: str, offset: int, bits: int, machines: str) -> Iterator[Fault]:
    """Flipped bits of a byte of what a convolution reads from the constants."""

    def apply(given: Compiled) -> VelaResult:
        weights = bytearray(given.result.weights)
        weights[_place(given, base) + offset] ^= bits
        return replace(given.result, weights=bytes(weights))

    for machine in machines.split():
        yield Fault(what, machine, apply)


def _place(given: Compiled, base: str) -> int:
    """Where in the constants the first convolution's weights or scales lie, also behind a DMA."""
    convolution = given.operations("CONV")[0]
    address = given.setting(base, convolution).value
    region = given.setting(base.replace("BASE", "REGION"), convolution).value
    if region == given.result.weights_region:
        return address
    transfer = given.operations("DMA_START")[0]
    source, target = (given.setting(n, transfer).value for n in ("DMA0_SRC", "DMA0_DST"))
    return source + address - target


def mode(what: str, kind: str, other: int, nth: int, machines: str) -> Iterator[Fault]:
    """Another mode of the nth operation of a kind."""

    def apply(given: Compiled) -> VelaResult:
        command = given.operations(kind)[nth]
        assert command.param != other
        return edited(given.result, command, value=other)

    for machine in machines.split():
        yield Fault(what, machine, apply)


def table(what: str, change: Change, machines: str) -> Iterator[Fault]:
    """Another table for the operation that looks its results up in one."""

    def apply(given: Compiled) -> VelaResult:
        looks = [c for c in commands(given.result) if c.name == "ACTIVATION" and c.param & 0x1F]
        return edited(given.result, looks[0], value=change(looks[0].value))

    for machine in machines.split():
        yield Fault(what, machine, apply)


OLD = "u55 u65"
FAULTS: tuple[Fault, ...] = tuple(
    fault
    for made in (
        register("an input in another region", "CONV", "IFM_REGION", lambda v: 0, 1),
        register("a result in another region", "CONV", "OFM_REGION", lambda v: 0, 1),
        taken("a stale input: the address of the network's input", "DEPTHWISE", "IFM_BASE0",
              ("CONV", "IFM_BASE0"), (0, 0)),
        taken("a stale operand of the difference", "ELEMENTWISE", "IFM2_BASE0",
              ("DEPTHWISE", "IFM_BASE0"), (0, 0), OLD),
        taken("a product of what was summed", "ELEMENTWISE", "IFM_BASE0",
              ("ELEMENTWISE", "IFM_BASE0"), (1, 0), "u55 u85"),
        register("a result 32 bytes further", "CONV", "OFM_BASE0", lambda v: v + 32, 1, "u55 u85"),
        taken("the weights of another layer", "CONV", "WEIGHT_BASE", ("CONV", "SCALE_BASE"),
              (0, 0), "u55 u85"),
        register("scales of the wrong place", "CONV", "SCALE_BASE", lambda v: v + 16, 0),
        register("weights that end early", "CONV", "WEIGHT_LENGTH", lambda v: v - 16, 0, "u65 u85"),
        constant("a weight", "WEIGHT_BASE", 40, 0x10, "u55 u65 u85"),
        constant("a bias", "SCALE_BASE", 1, 0x04, "u55 u65 u85"),
        constant("a channel's multiplier", "SCALE_BASE", 7, 0x20, "u55 u85"),
        constant("a channel's shift", "SCALE_BASE", 9, 0x01, OLD),
        constant("a channel's shift", "SCALE_BASE", 8, 0x01, "u85"),
        register("an input's zero point", "CONV", "IFM_ZERO_POINT", lambda v: v + 1 & 0xFFFF, 1),
        register("a result's zero point", "CONV", "OFM_ZERO_POINT", lambda v: v + 1 & 0xFFFF, 0),
        register("the scale of a difference", "ELEMENTWISE", "OFM_SCALE", lambda v: v ^ 1 << 25),
        exchanged("the scales of two operands", "ELEMENTWISE", "OPA_SCALE", "OPB_SCALE", "u55"),
        exchanged("the scales of two operands", "ELEMENTWISE", "IFM_SCALE", "IFM2_SCALE", "u85"),
        exchanged("the operands of a difference", "ELEMENTWISE", "IFM_BASE0", "IFM2_BASE0", "u55"),
        exchanged("the zero points of two operands", "ELEMENTWISE", "IFM_ZERO_POINT",
                  "IFM2_ZERO_POINT", "u65"),
        register("the rows of an input", "DEPTHWISE", "IFM_STRIDE_Y", lambda v: v + 16, 0),
        register("the rows of a result", "DEPTHWISE", "OFM_STRIDE_Y", lambda v: v + 16, 0, "u55"),
        register("the format of an input", "DEPTHWISE", "IFM_PRECISION", lambda v: v ^ 1 << 6),
        register("the format of a result", "DEPTHWISE", "OFM_PRECISION", lambda v: v ^ 1 << 6),
        register("the sign of an input", "CONV", "IFM_PRECISION", lambda v: v ^ 1, 1, "u85"),
        register("the stride of a layer", "CONV", "KERNEL_STRIDE", lambda v: v ^ 1, 0, "u55 u85"),
        register("the height of a kernel", "DEPTHWISE", "KERNEL_HEIGHT_M1", lambda v: v - 1, 0,
                 "u65"),
        register("padding at the top", "CONV", "IFM_PAD_TOP", lambda v: v ^ 1, 0, "u55 u85"),
        register("a row less", "CONV", "OFM_HEIGHT_M1", lambda v: v - 1, 1, "u55 u85"),
        register("fewer input channels", "CONV", "IFM_DEPTH_M1", lambda v: v - 1, 1, "u65"),
        register("the rounding of a layer", "CONV", "OFM_PRECISION",
                 lambda v: v & ~(3 << 14) | 1 << 14, 3, OLD),
        register("the rounding of a layer", "CONV", "OFM_SCALE", lambda v: v ^ 4 << 45, 1, "u85"),
        register("the lowest result", "CONV", "ACTIVATION_MIN", lambda v: v + 9 & 0xFFFF, 0),
        register("the highest result", "CONV", "ACTIVATION_MAX", lambda v: v - 90 & 0xFFFF, 0,
                 "u55"),
        table("another table", lambda v: v - 1, OLD),
        table("another table", lambda v: v + (1 << 5), "u85"),
        table("no table", lambda v: 0, "u55 u85"),
        register("a DMA from elsewhere", "DMA_START", "DMA0_SRC", lambda v: v + 16, 0),
        register("a DMA to elsewhere", "DMA_START", "DMA0_DST", lambda v: v + 16, 1, OLD),
        register("a short DMA", "DMA_START", "DMA0_LEN", lambda v: v - 16, 0),
        dropped("a lost wait for DMA", "DMA_WAIT", 0, "u55 u65 u85"),
        dropped("a lost wait for an operation", "KERNEL_WAIT", 0, "u55 u65"),
        dropped("a lost layer", "CONV", 1, "u55 u85"),
        dropped("a lost sum", "ELEMENTWISE", 0, "u65"),
        dropped("a lost DMA", "DMA_START", 0, "u55 u85"),
        mode("a pool of another kind", "POOL", 1, 1, "u55"),
        mode("a pool of another kind", "POOL", 1, 0, "u65 u85"),
        mode("a sum for a difference", "ELEMENTWISE", 1, 0, "u55 u65 u85"),
    )
    for fault in made
)  # fmt: skip


def finders(given: Compiled, broken: Delegate) -> tuple[str, ...]:
    """The checks that find a fault, each by itself."""
    found = []
    known = origins(broken.graph, broken.result.database)
    try:
        check_dataflow(broken.graph, broken.simulation, known)
    except (Misread, TosaicError):
        found.append("dataflow")
    try:
        broken.simulation.run(*given.given)
    except TosaicError:
        found.append("simulator")
        return tuple(found)
    try:
        compare(broken, given.given, broken.model.run(*given.given))
    except ToolFailed:
        found.append("arithmetic")
    return tuple(found)


def is_found(given: Compiled, broken: Delegate) -> str:
    """What compiling says of a stream; nothing if it lets it pass."""
    try:
        list(check_stream(broken, expected_of(broken.model, broken.graph, given.given)))
    except ToolFailed as failure:
        return failure.reason
    return ""


def main() -> int:
    print(f"{'fault':<58}{'dataflow':>10}{'simulator':>11}{'arithmetic':>12}")
    missed, counts = 0, dict.fromkeys(CHECKS, 0)
    for fault in FAULTS:
        given = compiled(fault.machine)
        broken = given.broken(fault.change(given))
        found = finders(given, broken)
        missed += not is_found(given, broken)
        marks: list[Any] = ["x" if check in found else "" for check in CHECKS]
        for check in found:
            counts[check] += 1
        print(f"{fault!s:<58}{marks[0]:>10}{marks[1]:>11}{marks[2]:>12}")
    told = ", ".join(f"{check} {count}" for check, count in counts.items())
    print(f"{len(FAULTS)} faults, {missed} not found ({told})")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

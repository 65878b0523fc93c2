"""A stream as a program: each operation decoded once, in the order that it runs.

A step is a place in the stream with the registers as they are there. Streams without branches are
a chain of steps; a branch has two successors, found when they are first taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tosaic.errors import InvalidInput, TosaicError, Unsupported
from tosaic.sim.ethosu import decode_u55, decode_u85, dma
from tosaic.sim.ethosu.convolution import ConvolutionRun, ProductRun, Store
from tosaic.sim.ethosu.dma import Transfer
from tosaic.sim.ethosu.elementwise import ElementwiseRun
from tosaic.sim.ethosu.fields import Registers
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import Access, Memory, Span
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.output import table_block
from tosaic.sim.ethosu.pooling import PoolingRun
from tosaic.sim.ethosu.resize import ResizeRun
from tosaic.sim.ethosu.stream import Command, Stream

_STREAM_ALIGNMENT = 16
_BLOCKS = ("CONV", "DEPTHWISE", "POOL", "ELEMENTWISE", "RESIZE")

_LOOPS = 50_000
"""How many operations more than it has commands a stream may run before it seems not to end."""
_MOST_MACS, _MOST_VALUES = 1 << 36, 1 << 27
"""More multiplications or results of one operation are taken for a corrupt size."""

Run = ConvolutionRun | ProductRun | PoolingRun | ElementwiseRun | ResizeRun


@dataclass(eq=False, slots=True)
class Step:
    """A command that does something, ready to run."""

    command: Command
    operation: Operation | None = None
    transfer: Transfer | None = None
    run: Callable[[Machine], None] | None = None
    macs: int = 0
    next: Step | None = field(default=None, repr=False)
    values: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    """The registers at a branch."""
    landings: dict[bool, Step] = field(default_factory=dict, repr=False)
    """Where a branch led, if it was taken or not."""


@dataclass(eq=False)
class Program:
    """The steps of a stream."""

    stream: Stream
    store: Store
    origins: Mapping[int, str] = field(default_factory=dict)
    first: Step | None = None
    _landings: dict[tuple[object, ...], Step] = field(default_factory=dict)
    """Steps behind branches, by their place and the registers there."""

    def place(self, command: Command) -> str:
        """Which command, where, and from which operator."""
        origin = self.origins.get(command.offset)
        return f"{command.place}, of {origin}" if origin else command.place

    def start(self) -> Step:
        if self.first is None:
            self.first = self._chain(0, Registers())
        return self.first

    @property
    def is_straight(self) -> bool:
        """Does every run take the same steps on the same addresses?"""
        return all(c.name != "BRANCH" for c in self.stream.commands) and not any(
            step.transfer is not None and step.transfer.index is not None for step in self.steps()
        )

    def steps(self) -> Iterator[Step]:
        """All steps from the start up to a branch or the end."""
        step: Step | None = self.start()
        while step is not None:
            yield step
            step = step.next

    def _chain(self, position: int, values: Registers) -> Step:
        """The next step from a position on, and all that follow it up to a branch."""
        key = (position, *sorted(values.items()))
        if key in self._landings:
            return self._landings[key]
        first: Step | None = None
        last: Step | None = None
        commands = self.stream.commands
        while True:
            if position >= len(commands):
                raise InvalidInput("the command stream runs past its end: it has no NPU_OP_STOP")
            command = commands[position]
            position += 1
            if not command.is_operation:
                values[command.name] = command.value
                continue
            step = self._decode(command, values)
            if last is not None:
                last.next = step
            first, last = first or step, step
            if command.name in ("STOP", "BRANCH"):
                self._landings[key] = first
                return first

    def follow(self, step: Step, condition: bool | None) -> Step:
        """The step behind a branch."""
        command = step.command
        kind = command.param & 0xF
        if kind > 1:
            raise Unsupported(f"a branch of kind {kind}")
        if kind and condition is None:
            raise InvalidInput("nothing decides the branch: no two numbers were compared")
        taken = not kind or bool(condition)
        if taken not in step.landings:
            step.landings[taken] = self._land(step, taken)
        return step.landings[taken]

    def _land(self, step: Step, taken: bool) -> Step:
        command = step.command
        if not taken:
            return self._chain(command.index + 1, Registers(step.values))
        target = self.stream.by_offset.get(command.payload or 0)
        if target is None:
            raise InvalidInput(f"the branch goes to {command.payload:#x}, where no command starts")
        return self._chain(target, Registers(step.values))

    def _decode(self, command: Command, values: Registers) -> Step:
        name, config = command.name, self.stream.config
        try:
            if name == "DMA_START":
                transfer = dma.decode(values, config)
                return Step(command, transfer=transfer, run=transfer)
            if name in _BLOCKS:
                decode = decode_u85.decode if config.is_u85 else decode_u55.decode
                operation = decode(name, command.param, values, config)
                _check_size(operation)
                run = self._prepare(operation)
                if run.macs > _MOST_MACS:
                    raise InvalidInput(f"the operation takes {run.macs} multiplications")
                return Step(command, operation, run=run, macs=run.macs)
        except TosaicError as error:
            raise type(error)(error.reason, error.where or self.place(command)) from None
        return Step(command, values=tuple(values.items()) if name == "BRANCH" else ())

    def _prepare(self, operation: Operation) -> Run:
        if operation.dynamic_weights:
            return ProductRun(operation)
        if operation.kind in ("CONV", "DEPTHWISE"):
            return ConvolutionRun(operation, self.store)
        if operation.kind == "POOL":
            return PoolingRun(operation, self.stream.config)
        if operation.kind == "ELEMENTWISE":
            return ElementwiseRun(operation)
        return ResizeRun(operation)


def _check_size(operation: Operation) -> None:
    """Sizes that no memory holds: of what is not in memory, and of windows."""
    height, width, depth = operation.output.shape
    values = height * width * depth
    window = operation.window
    covered = values * window.size[0] * window.size[1] if window is not None else values
    if values > _MOST_VALUES or covered > _MOST_MACS:
        raise InvalidInput(f"the operation makes {height}x{width}x{depth} values")


def execute(
    program: Program, machine: Machine, after: Callable[[Step], bool] | None = None
) -> None:
    """Run to the end; ``after`` may stop it behind a step."""
    step: Step | None = program.start()
    count, limit = 0, len(program.stream.commands) + _LOOPS
    while step is not None and step.command.name != "STOP":
        here = step.command
        try:
            if machine.memory.watching:
                watch(step, machine.memory)
            if step.run is not None:
                step.run(machine)
            if after is not None and after(step):
                return
            count += 1
            if count > limit:
                raise InvalidInput(f"the stream does not end within {limit} operations")
            is_branch = step.command.name == "BRANCH"
            step = program.follow(step, machine.condition) if is_branch else step.next
        except TosaicError as error:
            raise type(error)(error.reason, error.where or program.place(here)) from None


def watch(step: Step, memory: Memory) -> None:
    """What the sanitizer sees of a step before it runs."""
    name, param = step.command.name, step.command.param
    if name == "DMA_WAIT":
        _complete(memory.transfers, param & 0xF)
    elif name == "KERNEL_WAIT":
        _complete(memory.kernels, param & 0xF)
    elif step.transfer is not None:
        transfer = step.transfer
        if transfer.index is not None:
            memory.read(transfer.index, "the DMA's list of places")
        memory.copy(transfer.source, transfer.target)
    elif step.operation is not None:
        _watch_operation(step.operation, memory)


def _watch_operation(operation: Operation, memory: Memory) -> None:
    reads: list[Span] = []
    for operand in operation.inputs:
        if operand.map is not None:
            operand.map.note_read(memory)
            reads += operand.map.spans
    output = operation.output
    weights = operation.coded.weights if operation.coded is not None else ()
    streams = [(block, "the weights") for block in weights]
    streams += [(block, "the scales") for block in operation.scales]
    if output.lookup is not None:
        streams.append((table_block(output.lookup), "the lookup table"))
    for block, what in streams:
        block.align(_STREAM_ALIGNMENT, what)
        memory.read(block, what)
        reads.append(block.span)
    if output.map is not None:
        output.map.note_write(memory)
    writes = output.map.spans if output.map is not None else ()
    memory.kernels.append(Access(tuple(reads), writes))


def _complete(under_way: deque[Any], left: int) -> None:
    while len(under_way) > left:
        under_way.popleft()

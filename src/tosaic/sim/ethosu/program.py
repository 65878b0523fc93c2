"""A stream as a program: each operation decoded once, in the order that it runs.

A step is a place in the stream with the registers as they are there. Streams without branches are
a chain of steps; a branch has two successors, found when they are first taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tosaic.errors import InvalidInput, TosaicError, Unsupported
from tosaic.sim.ethosu import decode_u55, decode_u85, dma
from tosaic.sim.ethosu.convolution import ConvolutionRun, Store
from tosaic.sim.ethosu.dma import Transfer
from tosaic.sim.ethosu.elementwise import ElementwiseRun
from tosaic.sim.ethosu.fields import Registers
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Block, Memory, Span
from tosaic.sim.ethosu.operation import Operand, Operation
from tosaic.sim.ethosu.output import table_block
from tosaic.sim.ethosu.pooling import PoolingRun
from tosaic.sim.ethosu.stream import Command, Stream

_BLOCKS = ("CONV", "DEPTHWISE", "POOL", "ELEMENTWISE", "RESIZE")

Run = ConvolutionRun | PoolingRun | ElementwiseRun


@dataclass(eq=False, slots=True)
class Step:
    """A command that does something, ready to run."""

    command: Command
    operation: Operation | None = None
    transfer: Transfer | None = None
    run: Callable[[Machine], None] | None = None
    macs: int = 0
    next: Step | None = None
    taken: Step | None = None
    """Where a branch goes."""

    @property
    def place(self) -> str:
        return self.command.place


@dataclass(eq=False)
class Program:
    """The steps of a stream."""

    stream: Stream
    store: Store
    steps: dict[tuple[int, tuple[tuple[str, int], ...]], Step] = field(default_factory=dict)
    first: Step | None = None

    def start(self) -> Step:
        if self.first is None:
            self.first = self._step(0, {})
        return self.first

    def _step(self, position: int, values: dict[str, int]) -> Step:
        """The next step from a position on, and all that follow it up to a branch."""
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
            if command.name == "STOP":
                return first

    def _decode(self, command: Command, values: dict[str, int]) -> Step:
        name, config = command.name, self.stream.config
        try:
            if name == "DMA_START":
                transfer = dma.decode(Registers(values), config)
                return Step(command, transfer=transfer, run=transfer)
            if name in _BLOCKS:
                decode = decode_u85.decode if config.is_u85 else decode_u55.decode
                operation = decode(name, command.param, Registers(values), config)
                run = self._prepare(operation)
                return Step(command, operation, run=run, macs=run.macs)
        except TosaicError as error:
            raise type(error)(error.reason, error.where or command.place) from None
        if name == "PMU_MASK" or name in ("IRQ",):
            return Step(command)
        return Step(command)

    def _prepare(self, operation: Operation) -> Run:
        if operation.kind in ("CONV", "DEPTHWISE"):
            return ConvolutionRun(operation, self.store)
        if operation.kind == "POOL":
            return PoolingRun(operation, self.stream.config)
        if operation.kind == "ELEMENTWISE":
            return ElementwiseRun(operation)
        raise Unsupported(f"the operation {operation.kind}")


def execute(
    program: Program, machine: Machine, after: Callable[[Step], bool] | None = None
) -> None:
    """Run to the end; ``after`` may stop it behind a step."""
    step: Step | None = program.start()
    while step is not None and step.command.name != "STOP":
        try:
            watch(step, machine.memory)
            if step.run is not None:
                step.run(machine)
        except TosaicError as error:
            raise type(error)(error.reason, error.where or step.place) from None
        if after is not None and after(step):
            return
        step = step.next


def watch(step: Step, memory: Memory) -> None:
    """What the sanitizer sees of a step before it runs."""
    name, param = step.command.name, step.command.param
    if name == "DMA_WAIT":
        _complete(memory.transfers, param & 0xF)
    elif name == "KERNEL_WAIT":
        _complete(memory.kernels, param & 0xF)
    elif step.transfer is not None:
        transfer = step.transfer
        memory.read(transfer.source, "the DMA's source")
        for spans in memory.kernels:
            for span in spans:
                if span.overlaps(transfer.source.span):
                    memory.fault(f"the DMA reads {span} before the operation that writes it ends")
        memory.transfers.append(memory.write([transfer.target], "the DMA's target"))
    elif step.operation is not None:
        _watch_operation(step.operation, memory)


def _watch_operation(operation: Operation, memory: Memory) -> None:
    for operand in operation.inputs:
        if operand.map is not None:
            operand.map.note_read(memory)
    if operation.coded is not None:
        for block in operation.coded.weights:
            memory.read(block, "the weights")
    for block in operation.scales:
        memory.read(block, "the scales")
    output = operation.output
    if output.lookup is not None:
        memory.read(table_block(output.lookup), "the lookup table")
    if output.map is not None:
        memory.kernels.append(output.map.note_write(memory))


def _complete(under_way: object, left: int) -> None:
    from collections import deque

    assert isinstance(under_way, deque)
    while len(under_way) > left:
        under_way.popleft()

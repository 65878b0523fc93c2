"""Runs what Vela emitted: a command stream over its weights and scratch memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput
from tosaic.runtime.memory import reused_memory
from tosaic.sim.ethosu import mlw
from tosaic.sim.ethosu.arrays import Array, DType, value_range
from tosaic.sim.ethosu.convolution import ConvolutionRun, Decoder, Store
from tosaic.sim.ethosu.dma import Transfer
from tosaic.sim.ethosu.image import Image, image, size_of
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Memory, Region, Span
from tosaic.sim.ethosu.program import Program, Step, execute
from tosaic.sim.ethosu.stream import Config, decode
from tosaic.sim.ethosu.trace import Trace, disassemble, record
from tosaic.sim.ethosu.velabin import Boundary

_TYPES: dict[int, DType] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
OUTSTANDING = {"U55": (1, 2), "U65": (2, 2), "U85": (2, 2)}
"""How many DMA commands and how many other operations an NPU has under way at most: a further one
waits for the oldest, and Vela counts on it."""
TABLES = 2048
"""Bytes of U85's memory for lookup tables."""
_COPIES = 16
"""Copies before a command among which those of its weights are looked for."""


class Simulation:
    """An Ethos-U that runs one command stream; weights are decoded once."""

    def __init__(self, given: Image, decode_weights: Decoder = mlw.decode) -> None:
        self.image = given
        self.stream = decode(given.command_stream)
        self.program = Program(
            self.stream, Store(self.stream.config, decode_weights), given.origins
        )
        self.sizes = given.sizes
        self._weights = Region(len(given.weights), given.weights)
        self._seen = False
        for what, side in (("input", given.inputs), ("output", given.outputs)):
            for i, boundary in enumerate(side):
                self._check(boundary, f"{what} {i}")

    @property
    def config(self) -> Config:
        """The NPU that the stream was compiled for."""
        return self.stream.config

    @property
    def inputs(self) -> tuple[Boundary, ...]:
        return self.image.inputs

    @property
    def outputs(self) -> tuple[Boundary, ...]:
        return self.image.outputs

    def _check(self, boundary: Boundary, what: str) -> None:
        size = self.sizes.get(boundary.region, 0)
        if boundary.element_size not in _TYPES:
            raise InvalidInput(f"{what} has elements of {boundary.element_size} bytes")
        if min((boundary.address, *boundary.shape)) < 0:
            raise InvalidInput(f"{what} has the shape {boundary.shape} at {boundary.address}")
        if boundary.address + size_of(boundary) > size:
            raise InvalidInput(f"{what} lies outside of region {boundary.region}")

    def _machine(self, arrays: Sequence[Any]) -> Machine:
        if len(arrays) != len(self.inputs):
            raise InvalidInput(
                f"the stream takes {len(self.inputs)} inputs, not {len(arrays)}; Vela leaves out"
                " inputs that nothing uses"
            )
        regions = {number: Region(size) for number, size in self.sizes.items()}
        regions[self.image.weights_region] = self._weights
        regions[INTERNAL] = Region(TABLES if self.config.is_u85 else self.config.shram)
        for i, (array, boundary) in enumerate(zip(arrays, self.inputs)):
            data = _raw(array, boundary, f"input {i}")
            place = slice(boundary.address, boundary.address + len(data))
            regions[boundary.region].data[place] = data
            regions[boundary.region].written[place] = True
        # A stream without branches touches the same bytes in every run: once seen is enough.
        memory = Memory(regions, watching=not self._seen)
        transfers, kernels = OUTSTANDING[self.config.product]
        memory.transfers, memory.kernels = deque(maxlen=transfers), deque(maxlen=kernels)
        return Machine(memory)

    def run(self, *arrays: Any) -> list[Array]:
        """Run the stream on raw integers; its outputs, in the six dimensions of their table."""
        machine = self._machine(arrays)
        regions = machine.memory.regions.values()
        with reused_memory(sum(r.size for r in regions if not r.constant)):
            execute(self.program, machine)
        results = [self._output(machine, i) for i in range(len(self.outputs))]
        self._seen = self._seen or self.program.is_straight
        return results

    def _output(self, machine: Machine, index: int) -> Array:
        boundary = self.outputs[index]
        region = machine.memory.regions[boundary.region]
        place = slice(boundary.address, boundary.address + size_of(boundary))
        if machine.memory.watching and not region.written[place].all():
            raise InvalidInput(f"the stream does not write all of output {index}")
        raw = region.data[place].copy()
        values: Array = raw.view(_TYPES[boundary.element_size])
        return values.reshape(boundary.shape)

    def memory_after(self, command_index: int, *arrays: Any) -> dict[int, NDArray[np.uint8]]:
        """The bytes of each region behind a command, by number; -1 is inside of the NPU."""
        count = len(self.stream.commands)
        if not 0 <= command_index < count:
            raise InvalidInput(f"the stream has commands 0 to {count - 1}, not {command_index}")
        machine = self._machine(arrays)
        if self.program.start().command.index <= command_index:
            execute(self.program, machine, lambda step: _is_last(step, command_index))
        return {n: r.data[: r.size].copy() for n, r in machine.memory.regions.items()}

    def weight_streams(self) -> Iterator[tuple[bytes, int]]:
        """Compressed weights in the order of their commands, each with the most values it has.

        They lie where the image has them, or a copy brings them from there; those that nothing
        tells without a run are left out.
        """
        copies: deque[Transfer] = deque(maxlen=_COPIES)
        for step in self.program.steps():
            if step.transfer is not None and step.transfer.index is None:
                copies.appendleft(step.transfer)
            elif isinstance(step.run, ConvolutionRun):
                for block, limit in step.run.limits():
                    start, stop = self._stored(block.span, copies)
                    if start < stop:
                        yield self.image.weights[start:stop], limit

    def _stored(self, span: Span, copies: Iterable[Transfer]) -> tuple[int, int]:
        """Where bytes that a command reads lie in the image; nothing if that is not known."""
        for copy in copies:
            source, target = copy.source.span, copy.target.span
            if span.region == target.region and target.start <= span.start < target.stop:
                moved = source.start - target.start
                span = Span(source.region, span.start + moved, span.stop + moved)
                break
        return (span.start, span.stop) if span.region == self.image.weights_region else (0, 0)

    def disassemble(self) -> str:
        """The commands in words, a line each."""
        return disassemble(self.stream)

    def trace(self, *arrays: Any) -> Trace:
        """What a run does, operation by operation."""
        machine, steps = self._machine(arrays), []

        def after(step: Step) -> bool:
            steps.append(record(step, self.image.origins))
            return False

        execute(self.program, machine, after)
        return Trace(self.config.name, tuple(steps))


def _is_last(step: Step, command_index: int) -> bool:
    following = step.next
    return following is not None and following.command.index > command_index


def _raw(array: Any, boundary: Boundary, what: str) -> NDArray[np.uint8]:
    """The bytes of an input, which may be given in any shape of as many elements."""
    given = np.asarray(array)
    size = boundary.element_size
    if given.size * size != size_of(boundary):
        raise InvalidInput(f"{what} has the shape {given.shape} instead of {boundary.shape}")
    if given.dtype.kind not in "iub":
        raise InvalidInput(f"{what} holds {given.dtype} instead of integers")
    if given.dtype.itemsize != size:
        given = _converted(given, size, what)
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def _converted(given: Array, size: int, what: str) -> Array:
    target = _TYPES[size]
    lowest, highest = value_range(target)
    if given.size and (given.min() < lowest or given.max() > highest):
        raise InvalidInput(f"{what} has values beyond {8 * size} bits")
    result: Array = given.astype(target)
    return result


def load(source: Any, decode_weights: Decoder = mlw.decode) -> Simulation:
    """A simulation of Vela's result, a ``vela_bin_stream`` blob, a Vela ``.npz`` or a ``.pte``."""
    return Simulation(image(source), decode_weights)

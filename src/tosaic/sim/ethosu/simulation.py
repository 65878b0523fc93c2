"""Runs what Vela emitted: a command stream over its weights and scratch memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput
from tosaic.files import velabin
from tosaic.files.velabin import Boundary
from tosaic.sim.ethosu.convolution import Store
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Memory, Region
from tosaic.sim.ethosu.program import Program, Step, execute
from tosaic.sim.ethosu.stream import Config, decode

Array = NDArray[np.generic]

_TYPES = {1: np.dtype("i1"), 2: np.dtype("i2"), 4: np.dtype("i4"), 8: np.dtype("i8")}
_LARGEST = 1 << 31
"""A region of more bytes is taken for a corrupt size."""


@dataclass(frozen=True, slots=True)
class Image:
    """A stream with its data: what a driver gives to the NPU."""

    command_stream: bytes
    weights: bytes
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    sizes: dict[int, int]
    """Bytes of each region that can be written."""
    weights_region: int = 0


class Simulation:
    """An Ethos-U that runs one command stream; weights are decoded once."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.stream = decode(image.command_stream)
        self.program = Program(self.stream, Store(self.stream.config))
        self.sizes = self._sizes()
        self._seen = False

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

    def _sizes(self) -> dict[int, int]:
        sizes = dict(self.image.sizes)
        for boundary in (*self.inputs, *self.outputs):
            if boundary.region not in sizes:
                sizes[boundary.region] = 0
        separate = {r for r in sizes if r not in self.image.sizes}
        for boundary in (*self.inputs, *self.outputs):
            if boundary.region in separate:
                end = boundary.address + _bytes(boundary)
                sizes[boundary.region] = max(sizes[boundary.region], end)
        for region, size in sizes.items():
            if size > _LARGEST:
                raise InvalidInput(f"region {region} is to have {size} bytes")
        return sizes

    def _machine(self, arrays: Sequence[Any]) -> Machine:
        regions = {number: Region(size) for number, size in self.sizes.items()}
        regions[self.image.weights_region] = Region(len(self.image.weights), self.image.weights)
        regions[INTERNAL] = Region(2048 if self.config.is_u85 else self.config.shram)
        # A stream without branches touches the same bytes in every run: once seen is enough.
        memory = Memory(regions, watching=not self._seen)
        if len(arrays) != len(self.inputs):
            raise InvalidInput(f"the stream takes {len(self.inputs)} inputs, not {len(arrays)}")
        for i, (array, boundary) in enumerate(zip(arrays, self.inputs)):
            data = _raw(array, boundary, f"input {i}")
            region = regions[boundary.region]
            stop = boundary.address + len(data)
            if stop > region.size:
                raise InvalidInput(f"input {i} lies outside of region {boundary.region}")
            region.data[boundary.address : stop] = data
            region.written[boundary.address : stop] = True
        return Machine(memory)

    def run(self, *arrays: Any) -> list[Array]:
        """Run the stream on raw integers; its outputs, in the six dimensions of their table."""
        machine = self._machine(arrays)
        execute(self.program, machine)
        self._seen = self._seen or self.program.is_straight
        return [self._output(machine, i) for i in range(len(self.outputs))]

    def _output(self, machine: Machine, index: int) -> Array:
        boundary = self.outputs[index]
        region = machine.memory.regions[boundary.region]
        stop = boundary.address + _bytes(boundary)
        if stop > region.size:
            raise InvalidInput(f"output {index} lies outside of region {boundary.region}")
        if machine.memory.watching and not region.written[boundary.address : stop].all():
            raise InvalidInput(f"the stream does not write all of output {index}")
        raw = region.data[boundary.address : stop].copy()
        return raw.view(_TYPES[boundary.element_size]).reshape(boundary.shape)

    def memory_after(self, command_index: int, *arrays: Any) -> dict[int, NDArray[np.uint8]]:
        """The bytes of each region behind a command, by number; -1 is inside of the NPU."""
        count = len(self.stream.commands)
        if not 0 <= command_index < count:
            raise InvalidInput(f"the stream has commands 0 to {count - 1}, not {command_index}")
        machine = self._machine(arrays)

        def after(step: Step) -> bool:
            following = step.next
            return following is not None and following.command.index > command_index

        if self.program.start().command.index <= command_index:
            execute(self.program, machine, after)
        return {n: r.data[: r.size].copy() for n, r in machine.memory.regions.items()}


def _bytes(boundary: Boundary) -> int:
    return int(np.prod(boundary.shape, dtype=np.int64)) * boundary.element_size


def _raw(array: Any, boundary: Boundary, what: str) -> NDArray[np.uint8]:
    """The bytes of an input, whose shape may leave out ones."""
    given = np.asarray(array)
    wanted = [n for n in boundary.shape if n != 1]
    if [n for n in given.shape if n != 1] != wanted and given.size != np.prod(boundary.shape):
        raise InvalidInput(f"{what} has the shape {given.shape} instead of {boundary.shape}")
    size = boundary.element_size
    if given.dtype.kind not in "iub":
        raise InvalidInput(f"{what} holds {given.dtype} instead of integers")
    if given.dtype.itemsize != size:
        given = _narrowed(given, size, what)
    return np.ascontiguousarray(given).reshape(-1).view(np.uint8)


def _narrowed(given: Array, size: int, what: str) -> Array:
    target = _TYPES[size]
    info = np.iinfo(target.type)
    if given.size and (given.min() < info.min or given.max() > info.max):
        raise InvalidInput(f"{what} has values beyond {8 * size} bits")
    return given.astype(target)


class Compiled(Protocol):
    """What Vela's result offers."""

    command_stream: bytes
    weights: bytes
    scratch_size: int
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]


def load(source: Any) -> Simulation:
    """A simulation of Vela's result, a ``vela_bin_stream`` blob, or a Vela ``.npz``."""
    if isinstance(source, bytes | bytearray | memoryview):
        return Simulation(_from_stream(velabin.read(bytes(source))))
    if isinstance(source, str | os.PathLike):
        raise InvalidInput("npz")
    return Simulation(_from_stream(source))


def _from_stream(source: Any) -> Image:
    sizes = {getattr(source, "scratch_region", 1): source.scratch_size}
    fast = getattr(source, "scratch_fast_size", 0)
    if fast:
        sizes.setdefault(getattr(source, "scratch_fast_region", 2), fast)
    return Image(
        source.command_stream, source.weights, tuple(source.inputs), tuple(source.outputs), sizes,
        getattr(source, "weights_region", 0),
    )  # fmt: skip

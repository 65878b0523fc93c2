"""The order of weights in a stream: from the decoded values to a volume OHWI.

The NPU takes weights block by block: blocks of output channels, of input channels, parts of the
kernel, and within them small blocks that its multipliers take at once. Each part of a stream is
such a nest of loops, so it is reshaped and transposed into its place. Blocks that stick out are
filled with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu.stream import Config

Volume = NDArray[np.int16]

SUBKERNEL = 8
"""Kernels are taken apart into pieces of at most this height and width, dilation counted."""

_GROUP = 4
"""U85 deals output channels to its cores in groups of this size."""


@dataclass(frozen=True)
class Layer:
    """What decides the order: the operation's geometry and how it is divided."""

    config: Config
    outputs: int
    inputs: int
    """Input channels; 1 for a depthwise convolution."""
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    depthwise: bool
    part_kernel: bool
    wide: bool
    """Is the input of 16 bits?"""
    block: int
    """Depth of the output blocks."""
    microblock: int = 0
    """U85: height times width of the small blocks."""
    sparse: bool = False

    @cached_property
    def pieces(self) -> list[tuple[slice, slice]]:
        """The parts of the kernel: U55 goes row by row, U85 column by column."""
        rows, columns = (
            [slice(i, min(i + step, size)) for i in range(0, size, step)]
            for size, step in zip(self.kernel, (SUBKERNEL // d for d in self.dilation))
        )
        if self.config.is_u85:
            return [(row, column) for column in columns for row in rows]
        return [(row, column) for row in rows for column in columns]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return (self.outputs, *self.kernel, self.inputs)


class _Source:
    """Hands out the decoded weights of one core."""

    def __init__(self, weights: Volume) -> None:
        self.weights, self.position = weights, 0

    def take(self, *sizes: int) -> Volume:
        count = prod(sizes)
        part = self.weights[self.position : self.position + count]
        self.position += count
        if len(part) < count:
            raise InvalidInput(
                f"the weights end after {len(self.weights)}, the operation takes more"
            )
        return part.reshape(sizes)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _runs(size: int, step: int, is_joined: bool) -> list[tuple[int, int]]:
    """Blocks of channels: those that are whole as one run if nothing stands between them."""
    whole = size // step * step
    if is_joined and whole:
        return [(0, whole), *([(whole, size)] if whole < size else [])]
    return [(start, min(start + step, size)) for start in range(0, size, step)]


class OrderU55:
    """U55 and U65: two cores take turns over single output channels."""

    def __init__(self, layer: Layer) -> None:
        self.layer, config = layer, layer.config
        self.ofm = 4 if config.macs == 32 else 8
        self.ifm = 8
        self.round = 4 if layer.depthwise else 1
        if layer.part_kernel and not layer.depthwise:
            self.round = 2 if layer.wide else 4
        self.depth = 16 if layer.part_kernel or layer.wide else 32

    @property
    def streams(self) -> int:
        return min(self.layer.config.cores, self.layer.outputs)

    def volume(self, streams: list[Volume]) -> Volume:
        result = np.zeros(self.layer.shape, np.int16)
        cores = self.layer.config.cores
        for core, weights in enumerate(streams):
            mine = result[core::cores]
            block = (self.layer.block + cores - 1 - core) // cores
            self._fill(mine, _Source(weights), block)
        return result

    def count(self, core: int) -> int:
        """How many values a core's stream holds, fillers included."""
        cores = self.layer.config.cores
        outputs = len(range(core, self.layer.outputs, cores))
        block = max((self.layer.block + cores - 1 - core) // cores, 1)
        rows = sum(_up(b - a, self.ofm) for a, b in _runs(outputs, block, False))
        return rows * self._inputs_padded * self._elements

    @property
    def _elements(self) -> int:
        sizes = ((r.stop - r.start) * (c.stop - c.start) for r, c in self.layer.pieces)
        return sum(_up(size, self.round) for size in sizes)

    @property
    def _inputs_padded(self) -> int:
        if self.layer.depthwise:
            return 1
        if self.layer.part_kernel:
            return _up(self.layer.inputs, self.ifm)
        return _up(self.layer.inputs, self.depth)

    def _fill(self, target: Volume, source: _Source, block: int) -> None:
        layer = self.layer
        if block < 1:
            raise InvalidInput("the output blocks are too small for two cores")
        pieces = layer.pieces
        for first in range(0, len(target), block):
            outputs = target[first : first + block]
            for start, stop in _runs(layer.inputs, self.depth, len(pieces) == 1):
                inputs = outputs[..., start:stop]
                for rows, columns in pieces:
                    self._piece(inputs[:, rows, columns], source)

    def _piece(self, target: Volume, source: _Source) -> None:
        """One part of the kernel, of some input channels or of several times as many."""
        outputs, height, width, inputs = target.shape
        blocks, elements = _up(outputs, self.ofm) // self.ofm, _up(height * width, self.round)
        times = max(inputs // self.depth, 1)
        if self.layer.depthwise:
            found = source.take(blocks, elements, self.ofm).transpose(0, 2, 1)[..., None]
        elif self.layer.part_kernel:
            deep = _up(inputs, self.ifm) // self.ifm // times
            part = source.take(times, deep, blocks, elements, self.ofm, self.ifm)
            found = part.transpose(2, 4, 3, 0, 1, 5)
        else:
            deep = self.depth // self.ifm
            part = source.take(times, blocks, elements, deep, self.ofm, self.ifm)
            found = part.transpose(1, 4, 2, 0, 3, 5)
        volume = found.reshape(blocks * self.ofm, elements, -1)
        cut = volume[:outputs, : height * width, :inputs]
        target[...] = cut.reshape(target.shape)


class OrderU85:
    """U85: cores take turns over groups of four output channels, the input runs to and fro."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.places: dict[tuple[int, int], NDArray[np.intp]] = {}
        macs = layer.config.macs
        self.ofm = macs // 8 // max(layer.microblock, 1)
        self.ifm = self._input_block()
        self.unit, self.round, self.step = self.ifm, 1, 16 if layer.sparse else 8
        self.stride = (1, 1)
        self.filler = 0
        if layer.depthwise:
            self.unit, self.step, self.round, self.stride = 1, 1, 10, layer.stride
            if layer.wide or macs > 256:
                self.filler = 2 if macs <= 512 else 6
        elif layer.part_kernel:
            wider = layer.wide or layer.sparse
            self.round, self.stride = (10 if wider else 5), layer.stride
            self.unit = 8 if layer.wide and not layer.sparse else self.ifm

    def _input_block(self) -> int:
        layer = self.layer
        if layer.part_kernel:
            return 16
        if layer.config.macs <= 256 and self.ofm == 16 and not layer.sparse:
            return 32
        return 128 if layer.sparse and not layer.wide else 64

    @property
    def streams(self) -> int:
        return self.layer.config.cores

    @property
    def turn(self) -> int:
        """How many values of one core stand together in a fast stream, which all cores share."""
        return self.ofm * self.unit * self.round // self.streams

    def volume(self, streams: list[Volume]) -> Volume:
        result = np.zeros(self.layer.shape, np.int16)
        for core, weights in enumerate(streams):
            source = _Source(weights)
            for outputs, inputs, (rows, columns), is_back in self._blocks():
                self._piece(result[outputs, rows, columns, inputs], source, core, is_back)
        return result

    def count(self, core: int) -> int:
        """How many values a core's stream holds, fillers included."""
        layer = self.layer
        blocks = sum(_up(b - a, self.ofm) for a, b in _runs(layer.outputs, layer.block, False))
        deep = sum(_up(b - a, self.unit) for a, b in _runs(layer.inputs, self.ifm, False))
        sizes = ((r.stop - r.start) * (c.stop - c.start) for r, c in layer.pieces)
        return blocks * deep * sum(map(self._elements, sizes)) // self.streams

    def _blocks(self) -> Iterator[tuple[slice, slice, tuple[slice, slice], bool]]:
        """What comes one behind the other, and whether its input channels run back."""
        layer, pieces, is_back = self.layer, self.layer.pieces, False
        runs = _runs(layer.inputs, self.ifm, len(pieces) == 1)
        for first in range(0, layer.outputs, layer.block):
            outputs = slice(first, min(first + layer.block, layer.outputs))
            for run in runs:
                for piece in pieces:
                    yield outputs, slice(*run), piece, is_back
            runs.reverse()
            is_back = not is_back

    def _elements(self, size: int) -> int:
        """Kernel elements of a part with its fillers."""
        rounds = _up(size, self.round) // self.round
        return rounds * (self.round + self.filler)

    def _order(self, height: int, width: int) -> list[tuple[int, int]]:
        """The order of a part's elements: by phase of the stride, then rows to and fro."""
        down, across = self.stride
        order = []
        for y0 in range(down):
            for x0 in range(across):
                for i, y in enumerate(range(y0, height, down)):
                    row = range(x0, width, across)
                    order += [(y, x) for x in (reversed(row) if i % 2 else row)]
        return order

    def _places(self, height: int, width: int) -> NDArray[np.intp]:
        """Where the elements of a part stand, row by row."""
        if (height, width) not in self.places:
            places = np.empty((height, width), np.intp)
            for i, (row, column) in enumerate(self._order(height, width)):
                places[row, column] = i // self.round * (self.round + self.filler) + i % self.round
            self.places[height, width] = places.reshape(-1)
        return self.places[height, width]

    def _piece(self, target: Volume, source: _Source, core: int, is_back: bool) -> None:
        """One part of the kernel, of a block of input channels or of several, maybe backwards."""
        outputs, height, width, inputs = target.shape
        blocks, groups = _up(outputs, self.ofm) // self.ofm, self.ofm // (_GROUP * self.streams)
        times = max(inputs // self.ifm, 1)
        deep, inner = _up(inputs, self.unit) // self.unit // times, -(-self.unit // self.step)
        elements = self._elements(height * width)
        part = source.take(times, deep, blocks, elements, inner, groups, _GROUP, self.step)
        if is_back:
            part = part[::-1]
        # To output block, group, member; element; input block, its parts, inner block, member.
        found = part.transpose(2, 5, 6, 3, 0, 1, 4, 7)
        volume = found.reshape(blocks * groups * _GROUP, elements, -1)[..., :inputs]
        volume = volume[:, self._places(height, width)].reshape(-1, height, width, inputs)
        if self.streams == 1:
            target[...] = volume[:outputs]
            return
        firsts = np.arange(blocks)[:, None] * self.ofm
        firsts = firsts + (np.arange(groups) * self.streams + core) * _GROUP
        channels = (firsts.reshape(-1, 1) + np.arange(_GROUP)).reshape(-1)
        mine = channels < outputs
        target[channels[mine]] = volume[mine]

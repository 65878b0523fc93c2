"""CONV and DEPTHWISE: weights decoded once, sums by the interpreter's exact convolutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from tosaic.errors import InvalidInput, Unsupported
from tosaic.interp.conv import Convolution
from tosaic.interp.fused import ConvRescale
from tosaic.interp.int_matmul import matmul
from tosaic.interp.rescale import PAYS, Rescale
from tosaic.sim.ethosu import mlw, scales
from tosaic.sim.ethosu.arrays import value_range
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import Block
from tosaic.sim.ethosu.operation import Coded, Operation, Window
from tosaic.sim.ethosu.output import hand_on, place
from tosaic.sim.ethosu.registers import Rounding
from tosaic.sim.ethosu.resize import upscaled, upscaled_size
from tosaic.sim.ethosu.scales import Scales
from tosaic.sim.ethosu.stream import Config
from tosaic.sim.ethosu.weights import Layer, OrderU55, OrderU85, Volume

Decoder = Callable[[bytes, int], mlw.Weights]
"""The weights of a compressed stream, and not more than so many."""


@dataclass(slots=True)
class Store:
    """Decoded weights by their bytes and order: stripes and runs share them."""

    config: Config
    decode: Decoder = mlw.decode
    volumes: dict[tuple[object, ...], Volume] = field(default_factory=dict)

    def volume(self, layer: Layer, coded: Coded, streams: tuple[bytes, ...]) -> Volume:
        key = (layer, coded.fast, streams)
        if key not in self.volumes:
            self.volumes[key] = self._decode(layer, coded, streams)
        return self.volumes[key]

    def _decode(self, layer: Layer, coded: Coded, streams: tuple[bytes, ...]) -> Volume:
        order = _order(layer)
        cores = range(order.streams)
        if coded.fast:
            assert isinstance(order, OrderU85)
            counts = [order.count(core) for core in cores]
            whole = mlw.decode_fast(streams[0], sum(counts))
            if len(whole) < sum(counts):
                raise InvalidInput(f"the weights end after {len(whole)} of {sum(counts)} values")
            dealt = whole.reshape(-1, order.streams, order.turn)
            return order.volume([dealt[:, core].reshape(-1) for core in cores])
        if len(streams) != order.streams:
            raise InvalidInput(
                f"{order.streams} cores have work and there are {len(streams)} weight streams"
            )
        return order.volume([self.decode(s, _limit(order, i)) for i, s in enumerate(streams)])


def _order(layer: Layer) -> OrderU55 | OrderU85:
    return OrderU85(layer) if layer.config.is_u85 else OrderU55(layer)


def _limit(order: OrderU55 | OrderU85, core: int) -> int:
    """Values in a core's stream at most: it is filled up to whole slices."""
    return order.count(core) + 4096


class ConvolutionRun:
    """A convolution as one operation of a program."""

    def __init__(self, operation: Operation, store: Store) -> None:
        self.operation, self.store = operation, store
        assert operation.coded is not None
        assert operation.window is not None
        self.coded, self.window = operation.coded, operation.window
        self.layer = _layer(operation, self.coded, self.window, store.config)
        self._key: tuple[bytes, ...] | None = None
        self._ready: _Ready

    @property
    def macs(self) -> int:
        height, width, depth = self.operation.output.shape
        return height * width * depth * int(np.prod(self.layer.shape[1:]))

    def limits(self) -> list[tuple[Block, int]]:
        """Where each standard stream of weights lies, and the most values that it has."""
        if self.coded.fast:
            return []
        order = _order(self.layer)
        return [(block, _limit(order, core)) for core, block in enumerate(self.coded.weights)]

    def __call__(self, machine: Machine) -> None:
        blocks = (*self.coded.weights, *self.operation.scales)
        if self._key is None or not machine.memory.is_constant(blocks):
            key = tuple(machine.memory.view(b, np.dtype("u1")).tobytes() for b in blocks)
            if key != self._key:
                self._ready = self._prepare(key)
                self._key = key
        values = upscaled(self.operation, machine.load(self.operation.ifm))
        if values.dtype.kind == "u":
            values = values.astype(np.int32 if values.dtype.itemsize > 1 else np.int16)
        given = torch.from_numpy(np.ascontiguousarray(values))[None]
        fused = self._ready.fused
        if fused is not None:
            place(machine, self.operation.output, fused(given)[0].numpy())
            return
        sums = self._ready.convolution(given)[0].numpy()
        hand_on(machine, self.operation, sums, self._ready.scales)

    def _prepare(self, key: tuple[bytes, ...]) -> _Ready:
        operation, count = self.operation, len(self.coded.weights)
        volume = self.store.volume(self.layer, self.coded, key[:count])
        channel_scales = scales.of_operation(operation, self.store.config, key[count:])
        dtype = operation.ifm.dtype
        if dtype.itemsize > 2:
            raise Unsupported(f"{operation.kind} of {dtype} elements")
        depthwise = operation.kind == "DEPTHWISE"
        weight = _narrowest(torch.from_numpy(volume))
        if depthwise:
            weight = weight.permute(1, 2, 0, 3)
        height, width = upscaled_size(operation)
        depth = operation.ifm.shape[2]
        top, left, bottom, right = self.window.pad
        convolution = Convolution(
            "depthwise" if depthwise else "conv2d", weight.contiguous(),
            torch.from_numpy(channel_scales.bias),
            input_shape=(1, height, width, depth), pad=(top, bottom, left, right),
            stride=self._stride(), dilation=self._dilation(),
            input_zp=operation.ifm.zero_point, interval=value_range(dtype),
            accumulator=torch.int32 if operation.accumulator == 32 else torch.int64,
        )  # fmt: skip
        return _Ready(operation, convolution, channel_scales)

    def _stride(self) -> tuple[int, int]:
        """1 where there is but one step: oneDNN is wrong for some steps that are never taken."""
        height, width, _ = self.operation.output.shape
        down, across = self.window.stride
        return down if height > 1 else 1, across if width > 1 else 1

    def _dilation(self) -> tuple[int, int]:
        (height, width), (down, across) = self.window.size, self.window.dilation
        return down if height > 1 else 1, across if width > 1 else 1


@dataclass
class _Ready:
    """A convolution for the weights and scales that were found in memory."""

    operation: Operation
    convolution: Convolution
    scales: Scales

    @cached_property
    def fused(self) -> ConvRescale | None:
        """A faster way, whose proofs are made once they pay."""
        return _fuse(self.operation, self.convolution, self.scales)


def _narrowest(weight: torch.Tensor) -> torch.Tensor:
    """Bytes, where these hold all weights: streams have room for 9 bits."""
    low, high = torch.aminmax(weight)
    return weight.to(torch.int8) if low >= -128 and high <= 127 else weight


def _fuse(operation: Operation, convolution: Convolution, found: Scales) -> ConvRescale | None:
    """The interpreter's convolution that scales, too, where its proofs cover all that it does."""
    output = operation.output
    if operation.start != "reset" or not operation.emit or output.limits is None:
        return None
    if output.scaling.rounding is not Rounding.NATURAL or not convolution.safe:
        return None
    if not operation.ifm.dtype == output.dtype == np.dtype("i1") or not output.per_channel:
        return None
    multiplier, shift = found.multiplier, found.shift
    if multiplier.min() < 0 or shift.min() < 2 or shift.max() > 62:
        return None
    rescale = Rescale(
        torch.from_numpy(multiplier), torch.from_numpy(shift), input=torch.int32,
        output=torch.int8, output_zp=output.zero_point, clamp=output.limits,
        interval=convolution.interval,
    )  # fmt: skip
    return ConvRescale(convolution, rescale, waits=PAYS) if rescale.predictable else None


def _layer(operation: Operation, coded: Coded, window: Window, config: Config) -> Layer:
    depthwise = operation.kind == "DEPTHWISE"
    outputs, inputs = operation.output.shape[2], operation.ifm.shape[2]
    if depthwise and outputs != inputs:
        raise InvalidInput(f"a depthwise convolution of {inputs} channels makes {outputs}")
    return Layer(
        config, outputs, 1 if depthwise else inputs, window.size, window.stride, window.dilation,
        depthwise, window.part_kernel and not depthwise, operation.ifm.dtype.itemsize == 2,
        coded.block, coded.microblock, coded.sparse,
    )  # fmt: skip


class ProductRun:
    """A convolution whose weights are the second input: each pixel times each of its rows."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        window = operation.window
        if window is None or window.reach != (1, 1) or window.stride != (1, 1):
            raise Unsupported(f"weights from the second input with the window {window}")
        if operation.upscale or any(window.pad):
            raise Unsupported("weights from the second input with padding or upscaling")

    @property
    def macs(self) -> int:
        height, width, depth = self.operation.output.shape
        return height * width * depth * self.operation.ifm.shape[2]

    def __call__(self, machine: Machine) -> None:
        operation = self.operation
        assert operation.ifm2 is not None
        height, width, depth = operation.output.shape
        left, right = (
            torch.from_numpy(np.ascontiguousarray(machine.load(operand)))
            for operand in (operation.ifm, operation.ifm2)
        )
        sums = matmul(
            left.reshape(1, height * width, -1), right.mT, a_zp=operation.ifm.zero_point,
            b_zp=operation.ifm2.zero_point,
            accumulator=torch.int32 if operation.accumulator == 32 else torch.int64,
        )  # fmt: skip
        hand_on(machine, operation, sums.reshape(height, width, depth).numpy())

"""Executors: they run the delegates of a ``.pte`` on this machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.executorch.api import VGF_BACKEND
from tosaic.executorch.blobs import Contents
from tosaic.interp.kernel import TORCH, to_torch
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.sim.ethosu import load, velabin
from tosaic.targets.vgf.file import ENGINES, VgfFile

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Executor(Protocol):
    """Runs a delegate on the bytes of its inputs, as a device's runtime does.

    ``engines`` are the names of what can run it, the first one unless ``run`` is told another.
    """

    inputs: int
    engines: tuple[str, ...]

    def run(self, inputs: Sequence[Tensor], engine: str | None = None) -> list[Tensor]: ...


def executor_of(backend: str, blob: bytes, contents: Contents) -> Executor:
    """What runs a delegate."""
    if not isinstance(contents, Graph):
        return EthosUExecutor(contents)
    if backend == VGF_BACKEND:
        return GraphExecutor(VgfFile(blob), ENGINES)
    return GraphExecutor(Model(contents))


class GraphExecutor:
    """A delegate that is a graph, TOSA itself or a ``.vgf``: the interpreter, or Vulkan."""

    def __init__(self, model: Model, engines: tuple[str, ...] = ("tosa",)) -> None:
        self.graph, self.model, self.inputs = model.graph, model, len(model.graph.inputs)
        self.engines = engines

    def run(self, inputs: Sequence[Tensor], engine: str | None = None) -> list[Tensor]:
        ready = [
            typed(data, TORCH[value.dtype], value.shape)
            for data, value in zip(inputs, self.graph.inputs)
        ]
        chosen: dict[str, Any] = {} if engine in (None, self.engines[0]) else {"engine": engine}
        arrays = self.model.run(*ready, **chosen)
        return [
            physical(to_torch(array, value.dtype), range(array.ndim))
            for array, value in zip(arrays, self.graph.outputs)
        ]


class EthosUExecutor:
    """The simulator on the very bytes that an NPU gets."""

    engines: tuple[str, ...] = ("npu",)

    def __init__(self, stream: velabin.Stream) -> None:
        self.stream, self.inputs = stream, len(stream.inputs)
        self.simulation = load(stream)

    def run(self, inputs: Sequence[Tensor], engine: str | None = None) -> list[Tensor]:
        ready = [
            typed(data, _INTEGERS[place.element_size], place.shape).numpy()
            for data, place in zip(inputs, self.stream.inputs)
        ]
        arrays = self.simulation.run(*ready)
        return [physical(torch.from_numpy(a), range(a.ndim)) for a in arrays]


def physical(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The bytes of a tensor as they lie in a device's memory."""
    dense = tensor.permute(tuple(order)).contiguous()
    # An axis of one element may have any stride in a contiguous tensor: 0 where it was expanded.
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def typed(data: Tensor, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Bytes as a tensor."""
    if data.numel() != math.prod(shape) * dtype.itemsize:
        raise InvalidInput(f"a delegate's input of {list(shape)} is given {data.numel()} bytes")
    return data.clone().view(dtype).reshape(tuple(shape))

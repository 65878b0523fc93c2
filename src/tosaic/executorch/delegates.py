"""A TOSA graph as a delegate: the blob that a runtime takes, and the name of its backend."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tosaic.boundary.memory_order import restored
from tosaic.errors import ToolFailed, Unsupported
from tosaic.executorch.api import ETHOSU_BACKEND, TOSA_BACKEND
from tosaic.files import flatbuffer
from tosaic.front import torchapi
from tosaic.ir.graph import Graph, Unsigned, Value
from tosaic.lowering.builder import TYPES
from tosaic.lowering.partition import Piece
from tosaic.sim.ethosu import velabin
from tosaic.sim.ethosu.share import share

# What the runtime of an Ethos-U copies in and out.
_ETHOSU_TYPES = (torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32)
_TORCH_TYPES = {kind: dtype for dtype, kind in TYPES.items() if dtype is not torch.int64}
_ALIGNMENT = 16  # what the NPU's weights need, outside of the file too


@dataclass(frozen=True, slots=True)
class Outside:
    """A part of a delegate in another file, by the name of that file without suffix.

    Without a name it lies in the same file, for several delegates to read.
    """

    file: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Blob:
    """What a delegate holds. ``outside`` are parts that lie elsewhere, by their key."""

    backend: str
    data: bytes
    outside: Mapping[str, Outside] = field(default_factory=dict)

    def named_data(self) -> Any:
        """The parts outside as ExecuTorch takes them; None if there are none."""
        from executorch.exir._serialize._named_data_store import NamedDataStore

        store = NamedDataStore()
        for key, part in self.outside.items():
            place = part.file or None
            store.add_named_data(key, part.data, alignment=_ALIGNMENT, external_tag=place)
        return store.get_named_data_store_output() if self.outside else None


def torch_type(value: Value) -> torch.dtype:
    """The type of PyTorch that holds a value at the boundary of a graph."""
    found = _TORCH_TYPES.get(value.dtype)
    if isinstance(value.quant, Unsigned):
        return torch.uint8
    if found is None:
        raise Unsupported(f"{value.name} is {value.dtype}, which PyTorch has no tensors of")
    return found


def tosa_blob(graph: Graph) -> Blob:
    """The flatbuffer itself, as ExecuTorch's backend for tests takes it; it names no places."""
    copied = flatbuffer.read(flatbuffer.write(graph))
    for op in copied.walk():
        op.loc = None
    for value in copied.values():
        value.loc = None
    return Blob(TOSA_BACKEND, flatbuffer.write(copied))


def ethosu_blob(
    graph: Graph, stream: velabin.Stream, placements: Mapping[str, str] | None = None
) -> Blob:
    """A compiled graph; blocks that have placements go to the files of those names."""
    _check_boundary("input", graph.inputs, stream.inputs)
    _check_boundary("output", graph.outputs, stream.outputs)
    held = {"cmd_data": stream.command_stream, "weight_data": stream.weights}
    outside, keys = dict[str, Outside](), dict[str, str]()
    for block, file in (placements or {}).items():
        if held[block]:
            key = hashlib.sha256(file.encode() + b"\0" + held[block]).hexdigest()
            outside[key], keys[block] = Outside(file, held[block]), key
    return Blob(ETHOSU_BACKEND, velabin.write(stream, keys), outside)


def device_blobs(
    backend: str, made: Sequence[Any], placements: Mapping[str, str]
) -> dict[int, Blob]:
    """Compiled graphs as a backend takes them, by graph: their data, or what the backend has."""
    if backend != ETHOSU_BACKEND:
        return {id(each.graph): Blob(backend, each.data) for each in made}
    streams = [each.result.stream for each in made]
    if len(made) > 1:
        streams = share(streams)
        weights = [stream.weights for stream in streams]
        if not placements and len(set(weights)) < len(weights):
            placements = {"weight_data": ""}
    return {
        id(each.graph): ethosu_blob(each.graph, stream, placements)
        for each, stream in zip(made, streams)
    }


def _check_boundary(kind: str, values: Sequence[Value], placed: Sequence[velabin.Boundary]) -> None:
    """The runtime copies tensors by position: a stream must have exactly those of the graph."""
    if len(values) != len(placed):
        raise ToolFailed(f"Vela made {len(placed)} {kind}s of {len(values)}")
    for number, (value, place) in enumerate(zip(values, placed)):
        if torch_type(value) not in _ETHOSU_TYPES:
            raise Unsupported(f"{kind} {number} of a delegate is {value.dtype}, no integer")
        size = math.prod(value.shape) * torch_type(value).itemsize
        if math.prod(place.shape) * place.element_size != size:
            raise ToolFailed(f"Vela changed {kind} {number} from {size} bytes to {place}")


def lowered_module(piece: Piece, blob: Blob, compile_specs: Sequence[Any]) -> Any:
    """ExecuTorch's module that stands for a delegate."""
    from executorch.exir.lowered_backend_module import LoweredBackendModule

    return LoweredBackendModule(
        _stand_in(piece), blob.backend, blob.data, list(compile_specs), blob.named_data()
    )


def _stand_in(piece: Piece) -> Any:
    """A program with the boundary of the graph, for ExecuTorch to trace in its stead."""
    assert piece.graph is not None
    inputs, outputs = (
        [_Port(v.shape, torch_type(v), order) for v, order in zip(values, orders, strict=True)]
        for values, orders in (
            (piece.graph.inputs, piece.input_orders),
            (piece.graph.outputs, piece.output_orders),
        )
    )
    return torchapi.export(_Boundary(outputs), tuple(port.made() for port in inputs))


@dataclass(frozen=True, slots=True)
class _Port:
    """A tensor at the boundary: the graph's shape, and which of PyTorch's axes each is."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...] | None

    def made(self) -> Tensor:
        return restored(torch.zeros(self.shape, dtype=self.dtype), self.order)


class _Boundary(nn.Module):
    def __init__(self, outputs: list[_Port]) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        return [port.made() for port in self.outputs]

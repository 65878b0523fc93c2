"""What a driver gives to the NPU: a command stream, weights, and where inputs and outputs lie."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu import velabin
from tosaic.sim.ethosu.velabin import Boundary

_BEGIN, _END, _HEAD = b"vela_bin_stream\0", b"vela_end_stream\0", 32
"""How a blob begins, the block that ends it, and the size of that block."""
_SCRATCH, _FAST = 1, 2
_FAST_SIZE = 1 << 26
"""More than any Ethos-U has of fast memory, for streams of which the size is not known."""
_ALIGNMENT = 16
"""Tensors that have a region of their own are filled up to so many bytes."""
_LARGEST = 1 << 31
"""A region of more bytes is taken for a corrupt size."""


@dataclass(frozen=True)
class Image:
    """A stream with its data."""

    command_stream: bytes
    weights: bytes
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    scratch: Mapping[int, int]
    """Bytes of the regions for intermediate results, by number."""
    weights_region: int = 0
    origins: Mapping[int, str] = field(default_factory=dict)
    """The operator that a command came from, by its offset in the stream, where it is known."""

    @property
    def sizes(self) -> dict[int, int]:
        """Bytes of every region that can be written; some hold nothing but inputs or outputs."""
        sizes = dict(self.scratch)
        for boundary in (*self.inputs, *self.outputs):
            if boundary.region not in self.scratch:
                end = boundary.address + size_of(boundary)
                padded = -(-end // _ALIGNMENT) * _ALIGNMENT
                sizes[boundary.region] = max(sizes.get(boundary.region, 0), padded)
        for region, size in sizes.items():
            if not 0 <= size <= _LARGEST:
                raise InvalidInput(f"region {region} is to have {size} bytes")
        if self.weights_region in sizes:
            raise InvalidInput(f"region {self.weights_region} is for weights and for other data")
        return sizes


def size_of(boundary: Boundary) -> int:
    """Bytes of an input or output."""
    count = boundary.element_size
    for size in boundary.shape:
        count *= size
    return count


def image(source: Any) -> Image:
    """The image in Vela's result, a ``vela_bin_stream`` blob, a Vela ``.npz`` or a ``.pte``."""
    if isinstance(source, bytes | bytearray | memoryview):
        return _from_blob(_only(bytes(source)))
    if isinstance(source, str | os.PathLike):
        return _from_file(source)
    if isinstance(source, velabin.Stream):
        return _from_blob(source)
    if not hasattr(source, "command_stream"):
        raise InvalidInput(f"a {type(source).__name__} is nothing that Vela made")
    scratch = {source.scratch_region: source.scratch_size}
    if source.scratch_fast_size:
        scratch.setdefault(source.scratch_fast_region, source.scratch_fast_size)
    return Image(
        source.command_stream, source.weights, tuple(source.inputs), tuple(source.outputs),
        scratch, source.weights_region, _origins(source.database),
    )  # fmt: skip


def _from_blob(stream: velabin.Stream) -> Image:
    """A blob does not say how much fast memory its stream takes: the driver knows."""
    if stream.weights_key or stream.command_key:
        raise InvalidInput("the weights of the blob lie outside of it; give Vela's result instead")
    scratch = {_SCRATCH: stream.scratch_size, _FAST: _FAST_SIZE}
    return Image(stream.command_stream, stream.weights, stream.inputs, stream.outputs, scratch)


def _only(data: bytes) -> velabin.Stream:
    """A blob, or the only one within the bytes of a larger file."""
    first = data.find(_BEGIN)
    if first <= 0:
        return velabin.read(data)
    if data.find(_BEGIN, first + 1) >= 0:
        raise InvalidInput(f"the file has {data.count(_BEGIN)} delegates of an Ethos-U; give one")
    end = data.find(_END, first)
    return velabin.read(data[first : end + _HEAD] if end >= 0 else data[first:])


def _from_file(path: str | os.PathLike[str]) -> Image:
    if os.fspath(path).endswith(".pte"):
        try:
            with open(path, "rb") as file:
                return _from_blob(_only(file.read()))
        except OSError as problem:
            raise InvalidInput(f"'{os.fspath(path)}' cannot be read: {problem}") from None
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            return _from_arrays(file)
    except FileNotFoundError:
        raise InvalidInput(f"there is no file '{os.fspath(path)}'") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
        where = os.fspath(path)
        raise InvalidInput(f"'{where}' is no .npz file that Vela wrote: {problem}") from None


def _from_arrays(file: Mapping[str, Any]) -> Image:
    scratch = {int(file["scratch_region"]): int(file["scratch_size"])}
    fast = int(file["scratch_fast_size"])
    if fast:
        scratch.setdefault(int(file["scratch_fast_region"]), fast)
    return Image(
        _bytes(file["cmd_data"]), _bytes(file["weight_data"]), _boundaries(file, "input"),
        _boundaries(file, "output"), scratch, int(file["weight_region"]),
    )  # fmt: skip


def _bytes(array: Any) -> bytes:
    """As stored: numpy would drop zeros at the end of a string of bytes."""
    return np.asarray(array).tobytes()


def _boundaries(file: Mapping[str, Any], side: str) -> tuple[Boundary, ...]:
    names = ("elem_size", "offset", "region")
    shapes = np.asarray(file[f"{side}_shape"]).tolist()
    columns = (np.asarray(file[f"{side}_{name}"]).tolist() for name in names)
    return tuple(
        Boundary(tuple(int(n) for n in shape), int(size), int(offset), int(region))
        for shape, size, offset, region in zip(shapes, *columns, strict=True)
    )


def _origins(database: Mapping[str, Any]) -> dict[int, str]:
    """From Vela's debug database: what its performance table calls the operator of a command."""
    tables = [database.get(name) for name in ("queue", "perf")]
    if None in tables:
        return {}
    queue, operators = ([dict(zip(t.header, row)) for row in t.rows] for t in tables if t)
    names = {row["id"]: f"{row['operator']} '{row['name']}'" for row in operators}
    return {
        int(row["offset"]): names[row["scheduled_id"]]
        for row in queue
        if row["scheduled_id"] in names
    }

"""Constants of a file: views of its bytes, or values that are unpacked when read."""

from __future__ import annotations

from functools import partial

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import packing
from tosaic.files.flatbuffer.reader import FlatbufferReader, Table
from tosaic.files.flatbuffer.schema import SHAPE, TENSOR
from tosaic.ir.graph import Array, Const, Value
from tosaic.spec import dtypes
from tosaic.spec.dtypes import TensorType

_REPEATED = 1 << 16  # bytes; no more of a constant that is said again and again are looked at


def shown(name: str) -> str:
    """A name from a file, quoted and cut for a sentence."""
    return repr(name if len(name) <= 60 else f"{name[:57]}...")


class Constants:
    """Finds the data of tensors and shapes; what several of them share is one constant."""

    def __init__(self, file: FlatbufferReader) -> None:
        self.file = file
        self._consts: dict[tuple[int, TensorType], Const] = {}

    def find(self, value: Value, table: Table) -> Const | None:
        """The data of a tensor or shape, or None if the file has none."""
        kind = value.type
        if kind.dtype is dtypes.SHAPE:
            extent = table.extent(SHAPE.DATA, f"the data of {table.what}")
            return self._const(value, extent or (0, 0), packing.data_size(kind))
        extent = self._extent(table, TENSOR.OFFSET, TENSOR.DATA)
        if extent is None or not kind.size:
            return None
        if not kind.is_known:
            raise InvalidGraph(f"constant {value.name} of {kind} has an unknown size")
        if kind.dtype.kind != "block":
            return self._const(value, extent, packing.data_size(kind))
        scales = self._extent(table, TENSOR.SCALE_OFFSET, TENSOR.SCALE_DATA) or (0, 0)
        parts = (
            self._bytes(value, extent, packing.data_size(kind)),
            self._bytes(value, scales, packing.scale_size(kind)),
        )
        self.file.charge(extent[1] + scales[1])
        return Const(partial(np.concatenate, parts))

    def _extent(self, table: Table, offset: int, data: int) -> tuple[int, int] | None:
        """Where a tensor's bytes lie: in the buffer's tables or, in a huge file, after them."""
        place = table.u64(offset)
        if place > 1:
            length = table.u64(offset + 1)
            if place + length > self.file.size:
                raise self.file.outside(f"the data of {table.what}")
            return place, length
        found = table.extent(data, f"the data of {table.what}")
        return found if found and found[1] else None

    def _bytes(self, value: Value, extent: tuple[int, int], need: int) -> Array:
        """The bytes of a constant; the file may pad them to a multiple of 8, and nothing to 8.

        Some writers say a zero point once for each channel, in a tensor of one: what only repeats
        itself may be longer.
        """
        start, length = extent
        is_padded = length <= max(8, need + -need % 8)
        if length < need or not (is_padded or self._repeats(extent, need)):
            reason = f"{value.type} takes {need} bytes of data; the file has {length}"
            raise InvalidGraph(f"constant {shown(value.name)} of {reason}")
        return np.frombuffer(self.file.buffer, np.uint8, need, start if need else 0)

    def _repeats(self, extent: tuple[int, int], need: int) -> bool:
        """Whether there is nothing in the file but the same bytes over and over."""
        start, length = extent
        if not need or length % need or length > _REPEATED:
            return False
        rows = np.frombuffer(self.file.buffer, np.uint8, length, start).reshape(-1, need)
        return bool((rows == rows[0]).all())

    def _const(self, value: Value, extent: tuple[int, int], need: int) -> Const:
        kind = value.type
        raw = self._bytes(value, extent, need)
        key = (extent[0], kind)
        found = self._consts.get(key)
        if found is None:
            found = self._consts[key] = self._array(raw, kind)
        return found

    def _array(self, raw: Array, kind: TensorType) -> Const:
        """A view of the file where its bytes are what memory wants, or a promise to unpack."""
        if packing.is_plain(kind.dtype):
            view = raw.view(kind.dtype.array).reshape(kind.shape)
            if view.flags.aligned:
                return Const(view)
            self.file.charge(len(raw))
            return Const(view.copy)
        self.file.charge(len(raw))
        return Const(partial(packing.unpack, raw, kind))

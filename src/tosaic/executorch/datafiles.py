"""ExecuTorch's files beside a program: weights outside of it, and tests round it.

Read from its schemas ``flat_tensor.fbs``, identifier FT01, and ``bundled_program_schema.fbs``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tosaic.errors import InvalidGraph, InvalidInput
from tosaic.files.flatbuffer.reader import FlatbufferReader

_HEAD = struct.Struct("<4sIQQQQ")  # behind the identifier: magic, size, flatbuffer, segments


def named_data(data: bytes) -> dict[str, bytes]:
    """What a ``.ptd`` file holds, by key; InvalidInput says what is wrong with it."""
    try:
        return dict(_named(data))
    except InvalidGraph as problem:
        raise InvalidInput(f"the file of weights is damaged: {problem}") from None


def _named(data: bytes) -> Iterator[tuple[str, bytes]]:
    if data[4:6] != b"FT" or len(data) < 8 + _HEAD.size or data[8:12] != b"FH01":
        raise InvalidInput("this is no .ptd file of ExecuTorch: it does not start as one")
    *_, base, size = _HEAD.unpack_from(data, 8)
    behind = memoryview(data)[base : base + size]
    root = FlatbufferReader(memoryview(data)).root()
    segments = [_segment(behind, s.u64(0), s.u64(1)) for s in root.tables(1, "segments", "segment")]
    for entry in root.tables(2, "names", "name"):
        key, number = entry.string(0, "a key"), entry.u32(1)
        if number >= len(segments):
            raise InvalidGraph(f"{key!r} is in segment {number} of {len(segments)}")
        yield key, bytes(segments[number])


def bundled_program(data: bytes) -> bytes:
    """The program within a ``.bpte`` file."""
    try:
        return FlatbufferReader(memoryview(data)).root().data(2, "the program")
    except InvalidGraph as problem:
        raise InvalidInput(f"the .bpte file is damaged: {problem}") from None


def _segment(behind: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(behind):
        raise InvalidGraph("a segment would lie outside of it")
    return behind[offset : offset + size]

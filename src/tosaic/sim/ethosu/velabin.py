"""The blob of an Ethos-U delegate, ``vela_bin_stream``: blocks with a name, a size and bytes.

A block is a name of 16 characters padded with zeros, the size of its bytes, a mark that they lie
outside of the file, 11 reserved bytes, and the bytes, padded to 16.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tosaic.errors import InvalidInput

_HEAD = struct.Struct("<16sIB11x")
_TENSOR = struct.Struct("<9i")
_FIRST, _LAST = "vela_bin_stream", "vela_end_stream"
_NAMES = (_FIRST, "cmd_data", "weight_data", "scratch_size", "inputs", "outputs", _LAST)


@dataclass(frozen=True, slots=True)
class Boundary:
    """An input or output: six dimensions, bytes of an element, and where it lies."""

    shape: tuple[int, ...]
    element_size: int
    address: int
    region: int


@dataclass(frozen=True, slots=True)
class Stream:
    """What a delegate holds. Keys name commands and weights that lie outside of it."""

    command_stream: bytes
    weights: bytes
    scratch_size: int
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    weights_key: str = ""
    command_key: str = ""

    def whole(self, outside: Mapping[str, bytes]) -> Stream:
        """With what lies outside; InvalidInput if it is not there."""
        missing = [k for k in (self.command_key, self.weights_key) if k and k not in outside]
        if missing:
            raise InvalidInput("parts of a delegate lie in another file: name its .ptd")
        return replace(
            self,
            command_stream=outside.get(self.command_key, self.command_stream),
            weights=outside.get(self.weights_key, self.weights),
            command_key="", weights_key="",
        )  # fmt: skip


def write(stream: Stream, keys: Mapping[str, str] | None = None) -> bytes:
    """The blob of a stream; blocks that have keys lie outside of it."""
    blocks = {
        _FIRST: b"",
        "cmd_data": stream.command_stream,
        "weight_data": stream.weights,
        "scratch_size": struct.pack("<I", stream.scratch_size),
        "inputs": _boundaries(stream.inputs),
        "outputs": _boundaries(stream.outputs),
        _LAST: b"",
    }
    named = {name: key.encode() for name, key in (keys or {}).items()}
    parts = [_block(n, named.get(n, data), n in named) for n, data in blocks.items()]
    return b"".join(piece for part in parts for piece in part)  # weights are copied once


def _block(name: str, payload: bytes, outside: bool = False) -> tuple[bytes, bytes, bytes]:
    padding = -len(payload) % 16
    return _HEAD.pack(name.encode(), len(payload), outside), payload, bytes(padding)


def _boundaries(tensors: Sequence[Boundary]) -> bytes:
    rows = [_TENSOR.pack(*_six(t.shape), t.element_size, t.address, t.region) for t in tensors]
    return struct.pack("<i", len(rows)) + b"".join(rows)


def _six(shape: Sequence[int]) -> tuple[int, ...]:
    if len(shape) > 6:
        raise InvalidInput(f"a tensor of a delegate has at most 6 dimensions, not {len(shape)}")
    return (1,) * (6 - len(shape)) + tuple(shape)


def read(data: bytes) -> Stream:
    """A stream from its blob; InvalidInput says what is wrong with it."""
    blocks = dict(_blocks(data))
    missing = [name for name in _NAMES if name not in blocks]
    if missing:
        raise InvalidInput(f"the blob has no block {missing[0]!r}")
    size = blocks["scratch_size"][0]
    if len(size) != 4:
        raise InvalidInput(f"the blob's scratch_size has {len(size)} bytes instead of 4")
    (commands, command_key), (weights, weights_key) = (
        _held(name, *blocks[name]) for name in ("cmd_data", "weight_data")
    )
    return Stream(
        commands, weights, struct.unpack("<I", size)[0],
        _read_boundaries("inputs", blocks["inputs"][0]),
        _read_boundaries("outputs", blocks["outputs"][0]),
        weights_key, command_key,
    )  # fmt: skip


def _held(name: str, payload: bytes, outside: bool) -> tuple[bytes, str]:
    """The bytes of a block, or their key."""
    if not outside:
        return payload, ""
    if len(payload) != 64 or not payload.isascii():
        raise InvalidInput(f"the blob's {name} lies outside of it, but its key is no sha256")
    return b"", payload.decode()


def _blocks(data: bytes) -> list[tuple[str, tuple[bytes, bool]]]:
    found: list[tuple[str, tuple[bytes, bool]]] = []
    position = 0
    while not found or found[-1][0] != _LAST:
        if position + _HEAD.size > len(data):
            raise InvalidInput(f"the blob ends at byte {len(data)} without {_LAST!r}")
        label, size, outside = _HEAD.unpack_from(data, position)
        name = label.rstrip(b"\0").decode("ascii", "replace")
        if name not in _NAMES or any(name == known for known, _ in found):
            raise InvalidInput(f"the blob has an unexpected block {name!r} at byte {position}")
        if (name == _FIRST) is not (not found):
            raise InvalidInput(f"the blob starts with {name!r} instead of {_FIRST!r}")
        start = position + _HEAD.size
        position = start + size + -size % 16
        if position > len(data):
            raise InvalidInput(f"block {name!r} of the blob runs past its end")
        found.append((name, (bytes(data[start : start + size]), bool(outside))))
    if position != len(data):
        raise InvalidInput(f"the blob has {len(data) - position} bytes behind its end")
    return found


def _read_boundaries(name: str, payload: bytes) -> tuple[Boundary, ...]:
    count = struct.unpack_from("<i", payload)[0] if len(payload) >= 4 else -1
    if count < 0 or len(payload) != 4 + count * _TENSOR.size:
        raise InvalidInput(f"the blob's {name} have {len(payload)} bytes for {count} tensors")
    rows = [_TENSOR.unpack_from(payload, 4 + i * _TENSOR.size) for i in range(count)]
    for row in rows:
        if min(row) < 0 or row[6] not in (1, 2, 4, 8):
            raise InvalidInput(f"a tensor of the blob's {name} has impossible sizes: {row}")
    return tuple(Boundary(row[:6], *row[6:]) for row in rows)

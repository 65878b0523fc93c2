"""A reader of ``vela_bin_stream`` as a device's runtime has it, independent of the product's."""

from __future__ import annotations

import struct
from dataclasses import dataclass

ORDER = (
    "vela_bin_stream", "cmd_data", "weight_data", "scratch_size", "inputs", "outputs",
    "vela_end_stream",
)  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    element_size: int
    offset: int
    region: int

    @property
    def size(self) -> int:
        count = self.element_size
        for length in self.shape:
            count *= length
        return count


@dataclass(frozen=True)
class Parsed:
    commands: bytes
    weights: bytes
    weights_are_outside: bool
    scratch_size: int
    inputs: list[Tensor]
    outputs: list[Tensor]


def parse(blob: bytes) -> Parsed:
    """Every field of a blob; AssertionError at the first thing a runtime would reject."""
    found: dict[str, tuple[bytes, int]] = {}
    position = 0
    while position < len(blob):
        label = blob[position : position + 16]
        name, _, rest = label.partition(b"\0")
        assert len(label) == 16
        assert 0 < len(name) <= 15
        assert rest.strip(b"\0") == b""
        size, external = struct.unpack_from("<IB", blob, position + 16)
        assert external in (0, 1)
        assert blob[position + 21 : position + 32] == bytes(11)
        start = position + 32
        payload, padding = blob[start : start + size], -size % 16
        assert len(payload) == size
        assert blob[start + size : start + size + padding] == bytes(padding)
        found[name.decode("ascii")] = payload, external
        position = start + size + padding
    assert position == len(blob)
    assert tuple(found) == ORDER
    assert found["vela_bin_stream"][0] == found["vela_end_stream"][0] == b""
    commands = found["cmd_data"][0]
    assert commands[:4] in (b"COP1", b"COP2")
    scratch = found["scratch_size"][0]
    assert len(scratch) == 4
    weights, outside = found["weight_data"]
    if outside:
        assert len(weights) == 64
        assert set(weights) <= set(b"0123456789abcdef")
    return Parsed(
        commands, weights, bool(outside), struct.unpack("<I", scratch)[0],
        _tensors(found["inputs"][0]), _tensors(found["outputs"][0]),
    )  # fmt: skip


def _tensors(payload: bytes) -> list[Tensor]:
    (count,) = struct.unpack_from("<i", payload)
    assert len(payload) == 4 + 36 * count
    rows = [struct.unpack_from("<9i", payload, 4 + 36 * i) for i in range(count)]
    for row in rows:
        assert min(row[:6]) >= 1
        assert row[6] in (1, 2, 4)
        assert row[7] >= 0
    return [Tensor(row[:6], *row[6:]) for row in rows]

"""The blob of an Ethos-U delegate: what is written is read, and what is damaged is named."""

from __future__ import annotations

import random
import struct

import pytest

from tosaic.errors import InvalidInput
from tosaic.sim.ethosu import velabin

_STREAM = velabin.Stream(
    b"COP1" + bytes(range(30)), b"w" * 33, 4096,
    (velabin.Boundary((1, 1, 1, 3, 16, 16), 1, 768, 1),),
    (velabin.Boundary((1, 1, 1, 8, 16, 16), 2, 0, 1), velabin.Boundary((1,) * 6, 4, 16, 1)),
)  # fmt: skip


def test_a_stream_survives_its_blob() -> None:
    assert velabin.read(velabin.write(_STREAM)) == _STREAM


def test_the_layout_is_that_of_the_runtime() -> None:
    """Read block by block, as a device does."""
    data, names, at = velabin.write(_STREAM), [], 0
    while at < len(data):
        name, size, outside = struct.unpack_from("<16sIB", data, at)
        names.append(name.rstrip(b"\0").decode())
        assert outside == 0
        at += 32 + (size + 15) // 16 * 16
    assert at == len(data)
    assert names == ["vela_bin_stream", "cmd_data", "weight_data", "scratch_size", "inputs",
                     "outputs", "vela_end_stream"]  # fmt: skip
    start = data.index(b"inputs\0") + 32
    assert struct.unpack_from("<i9i", data, start) == (1, 1, 1, 1, 3, 16, 16, 1, 768, 1)


def test_outside_weights_are_named_by_their_key() -> None:
    key, stream = "a" * 64, velabin.Stream(b"COP1", b"weights", 16, (), ())
    read = velabin.read(velabin.write(stream, {"weight_data": key}))
    assert (read.weights, read.weights_key, read.command_key) == (b"", key, "")
    assert read.whole({key: b"weights"}) == stream
    with pytest.raises(InvalidInput, match="another file"):
        read.whole({})


@pytest.mark.parametrize("cut", [0, 10, 40, 100, -1])
def test_a_cut_blob_is_refused(cut: int) -> None:
    with pytest.raises(InvalidInput, match="blob"):
        velabin.read(velabin.write(_STREAM)[:cut])


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(InvalidInput, match="16 bytes behind its end"):
        velabin.read(velabin.write(_STREAM) + bytes(16))


def test_any_damage_is_an_error_or_a_stream() -> None:
    random.seed(7)
    refused = 0
    for _ in range(2000):
        data = bytearray(velabin.write(_STREAM))
        for _ in range(random.randint(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            velabin.read(bytes(data))
        except InvalidInput:
            refused += 1
    assert refused > 500

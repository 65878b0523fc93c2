"""Weights come out of Vela's streams as they went in, and corrupt ones are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from ethosu import mlw_codec

from npu.configurations import ACCELERATORS
from npu.maker import Maker
from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.sim import ethosu
from tosaic.sim.ethosu import mlw
from tosaic.sim.ethosu.convolution import ConvolutionRun
from tosaic.targets.ethosu import weight_codec as codec
from tosaic.targets.ethosu.vela import VelaConfig, run_vela
from tosaic.targets.ethosu.vela_processes import decode_weights

EVERY = tuple(itertools.chain(*ACCELERATORS.values()))

Draw = Callable[[np.random.Generator, int], np.ndarray]

# One for each way in which the encoder writes a slice: plain, Golomb-Rice, zero runs, palettes.
DRAWS: dict[str, Draw] = {
    "any": lambda rng, n: rng.integers(-255, 256, n),
    "bell": lambda rng, n: rng.normal(0, 20, n).round().clip(-127, 127),
    "sparse bell": lambda rng, n: rng.normal(0, 20, n).round() * (rng.random(n) < 0.2),
    "few": lambda rng, n: rng.choice([0, 3, -9, 50], n),
    "almost nothing": lambda rng, n: rng.integers(-127, 128, n) * (rng.random(n) < 0.02),
    "forty": lambda rng, n: rng.choice(rng.integers(-127, 128, 40), n),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_streams_decode_as_by_the_decoder_of_the_wheel(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    for size in (1, 7, 300, 5000, 40_000):
        weights = DRAWS[kind](rng, size).astype(int)
        stream = bytes(mlw_codec.encode(weights.tolist()))
        expected = np.array(mlw_codec.decode(bytearray(stream)))
        np.testing.assert_array_equal(mlw.decode(stream, len(expected)), expected)


def test_a_stream_with_more_values_than_wanted_is_refused() -> None:
    stream = bytes(mlw_codec.encode([5] * 1000))
    with pytest.raises(InvalidInput, match="more values than the operation takes"):
        mlw.decode(stream, 999)


def test_corrupt_streams_are_refused_or_decoded_and_never_crash() -> None:
    rng = np.random.default_rng(4)
    refused = 0
    for draw in DRAWS.values():
        clean = np.frombuffer(mlw_codec.encode(draw(rng, 900).astype(int).tolist()), np.uint8)
        for _ in range(60):
            stream = clean.copy()
            stream[rng.integers(0, len(stream), 3)] = rng.integers(0, 256, 3)
            try:
                mlw.decode(stream[: rng.integers(1, len(stream) + 1)].tobytes(), 2000)
            except InvalidInput:
                refused += 1
    assert refused > 100


def conv(rng_seed: int, weights: np.ndarray, op: str, stride: int, dtype: str) -> bytes:
    maker = Maker((rng_seed,), u85=True)
    b = maker.b
    inputs = weights.shape[2] if op == "DEPTHWISE_CONV2D" else weights.shape[3]
    x = b.input(dtype, (1, 12, 12, inputs))
    height, width = weights.shape[:2] if op == "DEPTHWISE_CONV2D" else weights.shape[1:3]
    zero = b.const([0], "i8")
    pad = [0, -(12 - height) % stride, 0, -(12 - width) % stride]
    acc = b.op(
        op, x, b.const(weights, "i8"), b.const([0], "i48" if dtype == "i16" else "i32"),
        b.const([0], dtype), zero, pad=pad, stride=(stride, stride), dilation=(1, 1),
        acc_type="i48" if dtype == "i16" else "i32",
    )  # fmt: skip
    wide = dtype == "i16"
    multiplier = b.const([1 << (14 if wide else 30)], "i16" if wide else "i32")
    y = b.RESCALE(
        acc, multiplier, b.const([20 if wide else 40], "i8"), b.const([0], acc.dtype),
        b.const([0], dtype), out=x.dtype, scale32=not wide, rounding_mode="SINGLE_ROUND",
        per_channel=False, input_unsigned=False, output_unsigned=False,
    )  # fmt: skip
    b.output(y)
    return flatbuffer.write(b.graph)


def decoded(data: bytes, accelerator: str) -> np.ndarray:
    """The weights in Vela's output, all output channels."""
    flags = ("--disable-buffering", "--disable-cascading")
    compiled = run_vela(data, VelaConfig(f"ethos-{accelerator}", flags=flags))
    simulation = ethosu.load(compiled)
    steps = [step for step in simulation.program.steps() if isinstance(step.run, ConvolutionRun)]
    assert steps
    volumes = []
    for step in steps:
        run = step.run
        assert isinstance(run, ConvolutionRun)
        blocks = [compiled.weights[b.start : b.start + b.sizes[0]] for b in run.coded.weights]
        volumes.append(simulation.program.store.volume(run.layer, run.coded, tuple(blocks)))
    return np.concatenate(volumes)


@pytest.mark.parametrize("accelerator", EVERY)
@pytest.mark.parametrize(
    ("shape", "stride"), [((37, 3, 3, 21), 1), ((70, 1, 1, 150), 1), ((9, 11, 10, 5), 2)]
)
def test_every_weight_is_found_in_its_place(
    accelerator: str, shape: tuple[int, int, int, int], stride: int
) -> None:
    rng = np.random.default_rng(sum(shape))
    dtype = "i16" if stride == 2 else "i8"
    weights = rng.integers(-127, 128, shape)
    got = decoded(conv(1, weights, "CONV2D", stride, dtype), accelerator)
    np.testing.assert_array_equal(got, weights)


@pytest.mark.parametrize("accelerator", EVERY)
@pytest.mark.parametrize("stride", [1, 2])
def test_every_depthwise_weight_is_found_in_its_place(accelerator: str, stride: int) -> None:
    weights = np.random.default_rng(stride).integers(-127, 128, (5, 3, 43, 1))
    got = decoded(conv(2, weights, "DEPTHWISE_CONV2D", stride, "i8"), accelerator)
    np.testing.assert_array_equal(got[..., 0], weights[..., 0].transpose(2, 0, 1))


@pytest.mark.parametrize(("values", "kind"), [(256, 1), (12, 0), (3, 2)])
def test_the_fast_format_has_bytes_or_indices(values: int, kind: int) -> None:
    rng = np.random.default_rng(values)
    choice = rng.permutation(np.arange(-127, 128))[:values]
    weights = rng.choice(choice, (32, 3, 3, 16))
    data = conv(3, weights, "CONV2D", 1, "i8")
    compiled = run_vela(data, VelaConfig("ethos-u85-256"))
    step = next(s for s in ethosu.load(compiled).program.steps() if s.operation is not None)
    assert step.operation is not None
    assert step.operation.coded is not None
    assert step.operation.coded.fast
    assert compiled.weights[step.operation.coded.weights[0].start] == kind
    np.testing.assert_array_equal(decoded(data, "u85-256"), weights)


def test_a_fast_stream_of_unknown_kind_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown kind 3"):
        mlw.decode_fast(bytes([3]) + bytes(63), 8)
    with pytest.raises(InvalidInput, match="within their header"):
        mlw.decode_fast(bytes(31), 8)


@pytest.mark.parametrize("kind", DRAWS)
def test_velas_codec_in_its_process_decodes_as_ours_does(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    size = 40_000
    stream = bytes(mlw_codec.encode(DRAWS[kind](rng, size).astype(int).tolist()))
    assert np.array_equal(codec.decode(stream, 2 * size), mlw.decode(stream, 2 * size))
    with pytest.raises(InvalidInput, match="more values than the operation takes"):
        codec.decode(stream, size // 2)


def test_a_stream_that_ends_velas_codec_is_refused_as_ever() -> None:
    """The codec ends its process, which is not this one, and the next stream is decoded."""
    weights = np.random.default_rng(0).integers(-99, 99, 40_000)
    stream = bytearray(mlw_codec.encode(weights.tolist()))
    clean = codec.decode(bytes(stream), 50_000)
    lost = 0
    for place in range(1, 200, 12):
        damaged = bytes(stream[:place]) + bytes([stream[place] ^ 0x81]) + bytes(stream[place + 1 :])
        if decode_weights([damaged]) is None:
            lost += 1
            with pytest.raises(InvalidInput):
                codec.decode(damaged, 1 << 20)
    assert lost
    assert np.array_equal(codec.decode(bytes(stream), 50_000), clean)


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_weights_that_are_decoded_ahead_are_those_of_a_run(
    accelerator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All streams that a run decodes are known before it, copies by DMA or not."""
    rng = np.random.default_rng(3)
    is_u85 = "u85" in accelerator  # which has standard streams for depthwise convolutions
    op = "DEPTHWISE_CONV2D" if is_u85 else "CONV2D"
    weights = rng.integers(-127, 128, (3, 3, 64, 1) if is_u85 else (96, 3, 3, 64)).astype(np.int8)
    result = run_vela(conv(0, weights, op, 1, "i8"), VelaConfig(accelerator))
    needed: dict[bytes, mlw.Weights] = {}

    def decode(data: bytes, limit: int) -> mlw.Weights:
        return needed.setdefault(data, mlw.decode(data, limit))

    given = rng.integers(-128, 128, (1, 12, 12, 64)).astype(np.int8)
    expected = ethosu.load(result, decode).run(given)
    simulation = ethosu.load(result, decode)
    assert needed
    assert needed.keys() == {data for data, _ in simulation.weight_streams()}
    monkeypatch.setattr(codec, "_FEW", 0)
    needed.clear()
    with codec.decoding_ahead(simulation):
        found = simulation.run(given)
    assert not needed, "the decoder of the simulation was asked"
    assert all(map(np.array_equal, found, expected))


def test_weights_are_decoded_without_the_codec_where_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bytes] = []
    stream = bytes(mlw_codec.encode(list(range(-50, 50)) * 100))
    store = SimpleNamespace(decode=lambda data, limit: asked.append(data))
    simulation = SimpleNamespace(
        program=SimpleNamespace(store=store), weight_streams=lambda: [(stream, 20_000)]
    )
    monkeypatch.setattr(codec, "decode_weights", lambda streams: None)
    kept = store.decode
    with codec.decoding_ahead(cast(Any, simulation)):
        store.decode(stream, 20_000)
    assert asked == [stream]
    assert store.decode is kept

"""Integer convolutions and MATMUL are bit-equal to the reference model, whichever path runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
import torch
import tosa_serializer as ts

from judges.single import Single
from tosaic.errors import Unpredictable
from tosaic.interp import conv, fused, onednn
from tosaic.interp.conv import Convolution, Kind
from tosaic.interp.fused import ConvRescale, Table
from tosaic.interp.int_matmul import matmul
from tosaic.interp.rescale import Rescale

OPERATOR = {
    "conv2d": ("CONV2D", "Conv2dAttribute"),
    "depthwise": ("DEPTHWISE_CONV2D", "DepthwiseConv2dAttribute"),
    "conv3d": ("CONV3D", "Conv3dAttribute"),
    "transpose": ("TRANSPOSE_CONV2D", "TransposeConv2dAttribute"),
}


@dataclass(frozen=True)
class Sample:
    kind: Kind
    shape: tuple[int, ...]
    outputs: int
    kernel: tuple[int, ...]
    pad: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    input_zp: int = 0
    weight_zp: int = 0
    dtype: str = "INT8"
    extreme: bool = False
    bias: int = 1000

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        random = np.random.default_rng(0)
        info = np.iinfo(np.int8 if self.dtype == "INT8" else np.int16)
        x = random.integers(info.min, info.max + 1, self.shape)
        last = self.shape[-1]
        shape = (self.outputs, *self.kernel, last)
        if self.kind == "depthwise":
            shape = (*self.kernel, last, self.outputs)
        weight = random.integers(-127, 128, shape)
        if self.extreme:
            weight = np.sign(weight) * 127
            weight[0], x[0, 0] = 127, info.min
        outputs = self.outputs * (last if self.kind == "depthwise" else 1)
        return x, weight, random.integers(-self.bias, self.bias + 1, outputs)

    def output(self) -> list[int]:
        sizes = []
        for i, size in enumerate(self.shape[1:-1]):
            pads = self.pad[2 * i] + self.pad[2 * i + 1]
            if self.kind == "transpose":
                sizes.append((size - 1) * self.stride[i] + pads + self.kernel[i])
            else:
                span = size + pads - self.dilation[i] * (self.kernel[i] - 1) - 1
                assert span % self.stride[i] == 0, "TOSA wants an exact division"
                sizes.append(span // self.stride[i] + 1)
        channels = self.outputs * (self.shape[-1] if self.kind == "depthwise" else 1)
        return [self.shape[0], *sizes, channels]

    @cache  # noqa: B019 (samples live as long as the module)
    def expected(self) -> np.ndarray:
        """The reference model's accumulators; int48 ones through a RESCALE by one."""
        x, weight, bias = self.arrays()
        accumulator = "INT32" if self.dtype == "INT8" else "INT48"
        graph = Single()
        graph.input("x", x, self.dtype)
        graph.const("w", weight, "INT8")
        graph.const("b", bias, accumulator)
        graph.const("xz", [self.input_zp], self.dtype)
        graph.const("wz", [self.weight_zp], "INT8")
        name, attribute = OPERATOR[self.kind]
        dilation = () if self.kind == "transpose" else (list(self.dilation),)
        arguments = (list(self.pad), list(self.stride), *dilation, False)
        graph.op(
            name, ["x", "w", "b", "xz", "wz"], "y", self.output(), accumulator,
            lambda a: getattr(a, attribute)(*arguments, getattr(ts.DType, accumulator)),
        )  # fmt: skip
        if self.dtype == "INT16":
            graph.const("m", [4], "INT16")
            graph.const("s", [2], "INT8")
            graph.const("iz", [0], "INT48")
            graph.const("oz", [0], "INT32")
            rounding = ts.RoundingMode.SINGLE_ROUND
            graph.op(
                "RESCALE", ["y", "m", "s", "iz", "oz"], "z", self.output(), "INT32",
                lambda a: a.RescaleAttribute(False, rounding, False, False, False),
            )  # fmt: skip
        result, status = graph.run("z" if self.dtype == "INT16" else "y")
        assert status == "TOSA_VALID"
        return result

    def convolution(self, integer: bool = True) -> tuple[Convolution, torch.Tensor]:
        x, weight, bias = (torch.from_numpy(a) for a in self.arrays())
        wide = self.dtype == "INT16"
        prepared = Convolution(
            self.kind,
            weight.to(torch.int8),
            bias,
            input_shape=self.shape,
            pad=self.pad,
            stride=self.stride,
            dilation=self.dilation,
            input_zp=self.input_zp,
            weight_zp=self.weight_zp,
            accumulator=torch.int64 if wide else torch.int32,
            interval=(-32768, 32767) if wide else (-128, 127),
            integer=integer,
        )
        return prepared, x.to(torch.int16 if wide else torch.int8)


SAMPLES = [
    Sample("conv2d", (1, 9, 9, 3), 8, (3, 3), (1, 1, 1, 1), input_zp=-128),
    Sample("conv2d", (2, 8, 8, 5), 7, (3, 3), (1, 0, 1, 0), (2, 2), input_zp=127),
    Sample("conv2d", (2, 8, 8, 5), 7, (3, 3), (0, 1, 0, 1), (2, 2), input_zp=-5),
    Sample("conv2d", (1, 7, 9, 16), 12, (1, 1), (0, 0, 0, 0), input_zp=3, weight_zp=-128),
    Sample("conv2d", (1, 7, 9, 64), 12, (1, 1), (0, 0, 0, 0), input_zp=127, extreme=True),
    Sample("conv2d", (3, 1, 1, 96), 17, (1, 1), (0, 0, 0, 0), input_zp=-128),
    Sample("conv2d", (1, 1, 1, 200), 1, (1, 1), (0, 0, 0, 0), input_zp=-7),
    Sample("conv2d", (1, 9, 9, 4), 6, (3, 2), (2, 2, 0, 1), (1, 2), (2, 1), input_zp=9),
    Sample("conv2d", (32, 6, 6, 8), 8, (3, 3), (1, 1, 1, 1), input_zp=11),
    Sample("conv2d", (1, 3, 3, 512), 4, (3, 3), (1, 1, 1, 1), input_zp=127, extreme=True),
    Sample("conv2d", (1, 3, 3, 64), 4, (1, 1), (0, 0, 0, 0), bias=1 << 30),
    Sample("conv2d", (1, 5, 5, 20), 6, (3, 3), (1, 1, 1, 1), dtype="INT16"),
    Sample("conv2d", (1, 4, 4, 100), 6, (3, 3), (1, 1, 1, 1), dtype="INT16", extreme=True),
    Sample("conv2d", (1, 1, 1, 64), 40, (1, 1), (0, 0, 0, 0), input_zp=-128),
    Sample("conv2d", (2, 6, 6, 1), 4, (3, 3), (1, 1, 1, 1), input_zp=3),
    Sample("depthwise", (2, 6, 6, 1), 4, (3, 3), (1, 1, 1, 1), input_zp=3),
    Sample("depthwise", (1, 9, 9, 24), 1, (3, 3), (1, 1, 1, 1), input_zp=-128),
    Sample("depthwise", (2, 8, 8, 5), 3, (3, 3), (1, 0, 1, 0), (2, 2), input_zp=-7, weight_zp=4),
    Sample("depthwise", (1, 1, 47, 16), 1, (1, 16), (0, 0, 0, 0), input_zp=4),
    Sample("depthwise", (1, 30, 30, 2), 1, (27, 27), (0, 0, 0, 0), input_zp=127, extreme=True),
    Sample("depthwise", (1, 9, 9, 6), 2, (5, 5), (2, 2, 2, 2), dtype="INT16", extreme=True),
    Sample("conv3d", (1, 5, 6, 7, 3), 4, (3, 2, 3), (1, 1, 0, 1, 1, 1), (1, 1, 1), (1, 1, 1), 5),
    Sample("conv3d", (1, 3, 3, 3, 128), 2, (3, 3, 3), (1,) * 6, (1, 1, 1), (1, 1, 1), 127,
           extreme=True),
    Sample("transpose", (1, 5, 6, 4), 3, (3, 3), (0, 0, 0, 0), (2, 2), input_zp=-9),
    Sample("transpose", (2, 5, 6, 4), 3, (4, 3), (-1, -2, 1, 2), (2, 1), input_zp=7, weight_zp=3),
    Sample("transpose", (1, 3, 3, 520), 2, (3, 3), (0, 0, 0, 0), input_zp=127, extreme=True),
    Sample("transpose", (1, 4, 4, 6), 3, (3, 3), (0, -1, 0, -1), (2, 2), dtype="INT16"),
]  # fmt: skip


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
@pytest.mark.parametrize("integer", [True, False])
def test_accumulators_equal_the_reference_model(
    sample: Sample, integer: bool, threads: int
) -> None:
    prepared, x = sample.convolution(integer)
    expected = sample.expected()
    result = prepared(x).numpy()
    np.testing.assert_array_equal(result, expected)
    assert len(np.unique(expected)) > expected.size // 8, "a test of few values shows little"


def test_the_samples_take_every_path() -> None:
    """Without this, a change of bounds could leave a path untested."""
    prepared = [s.convolution(False)[0] for s in SAMPLES]
    assert any(len(p._edges) > 2 for p in prepared), "several parts"
    assert any(not p._edges for p in prepared), "float64"
    assert any(p.digits for p in prepared)
    assert any(p.explicit and p.kind == "conv2d" for p in prepared)
    assert any(not p._folded for p in prepared if p.kind == "conv2d")


@pytest.mark.parametrize("integer", [True, False])
def test_the_interval_holds_every_accumulator_and_is_reached(integer: bool) -> None:
    sample = replace(SAMPLES[3], input_zp=3)
    prepared, x = sample.convolution(integer)
    rows = prepared.weight.reshape(prepared.channels, -1)
    for channel in range(prepared.channels):
        chosen = torch.where(rows[channel] > 0, 127, -128).to(torch.int8)
        x[0, 0, 0] = chosen
        highest = prepared(x)[0, 0, 0, channel]
        assert highest == prepared.interval.high[channel]
        assert prepared(x)[..., channel].min() >= prepared.interval.low[channel]


def test_bounds_off_by_one_digit_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: if float32 were trusted to 2^30, long sums would come out wrong."""
    sample = Sample("conv2d", (1, 3, 3, 512), 4, (3, 3), (1, 1, 1, 1), input_zp=127, extreme=True)
    x, weight, bias = sample.arrays()
    monkeypatch.setattr(conv, "FLOAT32_EXACT", 1 << 30)
    prepared, tensor = sample.convolution(False)
    with np.errstate(all="ignore"):
        assert not np.array_equal(prepared(tensor).numpy(), sample.expected())
    del x, weight, bias


def test_an_overflowing_accumulator_raises() -> None:
    x = torch.full((1, 1, 1, 66000), -128, dtype=torch.int8)
    weight = torch.full((1, 1, 1, 66000), -128, dtype=torch.int8)
    prepared = Convolution(
        "conv2d", weight, torch.zeros(1), input_shape=(1, 1, 1, 66000), pad=(0, 0, 0, 0),
        stride=(1, 1), input_zp=127,
    )  # fmt: skip
    with pytest.raises(Unpredictable, match="outside its accumulator"):
        prepared(x)
    rescale = Rescale(
        torch.tensor([1 << 30]), torch.tensor([45]), input=torch.int32, output=torch.int8
    )
    with pytest.raises(Unpredictable, match="outside its accumulator"):
        ConvRescale(prepared, rescale)(x)
    assert prepared(torch.zeros_like(x) + 126).item() == 66000 * 128


def test_lower_float32_precision_of_the_user_changes_nothing() -> None:
    sample = Sample("conv2d", (1, 9, 9, 64), 32, (3, 3), (1, 1, 1, 1), input_zp=5)
    prepared, x = sample.convolution(False)
    expected = prepared(x)
    before = torch.backends.mkldnn.conv.fp32_precision
    torch.backends.mkldnn.conv.fp32_precision = "bf16"
    try:
        assert torch.equal(prepared(x), expected)
        assert torch.backends.mkldnn.conv.fp32_precision == "bf16"
    finally:
        torch.backends.mkldnn.conv.fp32_precision = before


@pytest.mark.parametrize(
    ("dtype", "depth", "zero_points"),
    [("INT8", 40, (3, -7)), ("INT8", 1000, (-128, 127)), ("INT16", 300, (0, 0))],
)
def test_matmul_equals_the_reference_model(
    dtype: str, depth: int, zero_points: tuple[int, int]
) -> None:
    random = np.random.default_rng(0)
    wide = dtype == "INT16"
    limit = 2000 if wide else 128
    a = random.integers(-limit, limit, (3, 7, depth))
    b = random.integers(-limit, limit, (3, depth, 5))
    graph = Single()
    graph.input("a", a, dtype)
    graph.input("b", b, dtype)
    graph.const("az", [zero_points[0]], dtype)
    graph.const("bz", [zero_points[1]], dtype)
    accumulator = "INT48" if wide else "INT32"
    graph.op(
        "MATMUL", ["a", "b", "az", "bz"], "y", (3, 7, 5), accumulator,
        lambda attributes: attributes.MatMulAttribute(),
    )  # fmt: skip
    if wide:
        graph.const("m", [4], "INT16")
        graph.const("s", [2], "INT8")
        graph.const("iz", [0], "INT48")
        graph.const("oz", [0], "INT32")
        rounding = ts.RoundingMode.SINGLE_ROUND
        graph.op(
            "RESCALE", ["y", "m", "s", "iz", "oz"], "z", (3, 7, 5), "INT32",
            lambda attributes: attributes.RescaleAttribute(False, rounding, False, False, False),
        )  # fmt: skip
    expected, status = graph.run("z" if wide else "y")
    assert status == "TOSA_VALID"
    held = torch.int16 if wide else torch.int8
    result = matmul(
        torch.from_numpy(a).to(held), torch.from_numpy(b).to(held),
        a_zp=zero_points[0], b_zp=zero_points[1],
        accumulator=torch.int64 if wide else torch.int32,
    )  # fmt: skip
    np.testing.assert_array_equal(result.numpy(), expected)


def rescale_for(prepared: Convolution, spread: float, **options: object) -> Rescale:
    """Per-channel factors that put `spread` of each channel's whole interval into int8."""
    reach = (prepared.interval.high - prepared.interval.low).double()
    factor = 256 / (reach * spread)
    exponent = torch.floor(torch.log2(factor)) + 1
    multiplier = (factor * torch.exp2(31 - exponent)).round().clamp(max=2**31 - 1)
    return Rescale(
        multiplier.to(torch.int64), (31 - exponent).to(torch.int64), input=torch.int32,
        output=torch.int8, interval=prepared.interval, **options,
    )  # fmt: skip


FUSED = [
    (Sample("conv2d", (1, 17, 17, 8), 40, (3, 3), (1, 1, 1, 1), (2, 2), input_zp=-128), 0.3),
    (Sample("conv2d", (32, 7, 7, 24), 64, (1, 1), (0, 0, 0, 0), input_zp=-3), 0.3),
    (Sample("conv2d", (1, 14, 14, 600), 32, (1, 1), (0, 0, 0, 0), input_zp=-3), 0.05),
    (Sample("depthwise", (1, 28, 28, 96), 1, (3, 3), (1, 1, 1, 1), input_zp=4), 0.4),
    (Sample("depthwise", (4, 28, 28, 48), 2, (3, 3), (1, 0, 1, 0), (2, 2), input_zp=-128), 0.4),
]


@pytest.mark.parametrize(("sample", "spread"), FUSED, ids=str)
@pytest.mark.parametrize("carrier", [torch.int8, torch.uint8])
@pytest.mark.parametrize("clamp", [None, (-100, 90)])
def test_a_fused_rescale_equals_the_definition(
    sample: Sample,
    spread: float,
    carrier: torch.dtype,
    clamp: tuple[int, int] | None,
    threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "PATCHED_ELEMENTS", 0)
    prepared, x = sample.convolution()
    rescale = rescale_for(prepared, spread, output_zp=-20, clamp=clamp)
    step = ConvRescale(prepared, rescale, carrier)
    # The definition's accumulators come from float arithmetic, not from the fused kernel.
    expected = rescale.exact(sample.convolution(False)[0](x))
    for given in (x, onednn.to_carrier(x)):
        result = step(given)
        assert result.dtype is carrier
        assert torch.equal(onednn.from_carrier(result), expected)
    assert len(expected.unique()) > 100


@pytest.mark.skipif(not onednn.available(), reason="this processor has no exact 8-bit kernels")
def test_small_slopes_are_not_fused_and_large_ones_are() -> None:
    fused = []
    large = Sample("depthwise", (1, 28, 28, 8), 1, (3, 3), (1, 1, 1, 1), input_zp=4)
    for sample, spread in ((large, 0.8), FUSED[2]):
        prepared, _ = sample.convolution()
        fused.append(ConvRescale(prepared, rescale_for(prepared, spread)).fused)
    assert fused == [True, False]


def test_a_kernel_that_rounds_otherwise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation: a fused kernel off by one in rare places is not used."""
    prepared, _ = FUSED[0][0].convolution()
    run = onednn.IntegerConvolution.__call__

    def wrong(self: onednn.IntegerConvolution, *arguments: object) -> torch.Tensor:
        result = run(self, *arguments)  # type: ignore[arg-type]
        if result.dtype is torch.int8:
            result[0, 0, 0, 0] ^= 1
        return result

    monkeypatch.setattr(onednn.IntegerConvolution, "__call__", wrong)
    assert not ConvRescale(prepared, rescale_for(prepared, 0.3)).fused


def test_a_table_equals_the_chain_it_stands_for() -> None:
    up = [
        Rescale(torch.tensor([m]), torch.tensor([11]), input=torch.int8, output=torch.int32,
                input_zp=zp)
        for m, zp in ((1 << 30, 4), (1518500250, -9))
    ]  # fmt: skip
    down = Rescale(
        torch.tensor([1303456789]), torch.tensor([50]), input=torch.int32, output=torch.int8,
        output_zp=5,
    )  # fmt: skip

    def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return down.exact(up[0].exact(a) + up[1].exact(b))

    a, b = (torch.randint(-128, 128, (2, 5, 7, 3), dtype=torch.int8) for _ in range(2))
    expected = add(a, b)
    assert len(expected.unique()) > 50
    for carrier in (torch.int8, torch.uint8):
        table = Table(add, 2, carrier)
        for x, y in ((a, b), (onednn.to_carrier(a), b), (a, onednn.to_carrier(b))):
            assert torch.equal(onednn.from_carrier(table(x, y)), expected)
        across = b[:1, :, :1].permute(0, 1, 2, 3)
        assert torch.equal(onednn.from_carrier(table(a, across)), add(a, across.expand_as(a)))

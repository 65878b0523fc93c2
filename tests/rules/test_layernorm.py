"""Norms in integers on rows that are hard: constant, one step apart, one-hot, of mixed spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tosaic
from judges.rules import called, dequantized, finish, range_quant, run_both
from tosaic.errors import Unsupported
from tosaic.front.registry import rule_of
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph, Quant
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

# Types of the rows and of the result.
SPECS = {
    "TOSA-1.0+INT": (I8, I8), "TOSA-1.0+INT+int16": (I8, I8), "a16": (I16, I16),
    "a16 to 8": (I16, I8),
}  # fmt: skip
ROWS = 5


def env_of(spec: str) -> Env:
    return Env.parse("TOSA-1.0+INT+int16" if spec.startswith("a16") else spec)


def rows(length: int, kind: DType, seed: int) -> dict[str, np.ndarray]:
    """Integers of each sort of row."""
    low, high = kind.range
    rng, shape = np.random.default_rng(seed), (ROWS, length)
    spreads = np.geomspace(0.7, high / 4, ROWS)[:, None]
    step = np.full(shape, 3)
    step[:, 0] = 4
    onehot = np.full(shape, low)
    onehot[:, length // 2] = high
    outlier = rng.normal(0, 2, shape)
    outlier[:, 1] = high
    made = {
        "normal": rng.normal(0, high / 4, shape),
        "uniform": rng.uniform(low, high, shape),
        "far": rng.normal(high * 0.8, high / 30, shape),
        "mixed": rng.normal(0, 1, shape) * spreads,
        "outlier": outlier,
        "extremes": rng.choice([low, high], shape),
        "onehot": onehot,
        "step": step,
    }
    return {k: np.clip(np.round(v), low, high).astype(kind.array) for k, v in made.items()}


def lowered(
    target: str, spec: str, x: np.ndarray, given: Quant, wanted: Quant, *arguments: Any
) -> Graph:
    (kind, result), env = SPECS[spec], env_of(spec)
    b = Lowering(env)
    value = b.with_quant(b.input(kind, x.shape, "x"), given)
    b.wanted = (wanted, result)
    constants = [b.tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    made = called(b, target, value, *constants)
    made = made[0] if isinstance(made, tuple) else made
    return finish(b, b.requantize(made, wanted, result), env)


def steps_off(
    target: str, spec: str, x: np.ndarray, given: Quant, wanted: Quant, real: torch.Tensor,
    *arguments: Any,
) -> float:  # fmt: skip
    """How far the result is from the real one in its range; exact beside the reference model."""
    ours, theirs = run_both(lowered(target, spec, x, given, wanted, *arguments), [x])
    assert np.array_equal(ours, theirs)
    low, high = np.iinfo(ours.dtype).min, np.iinfo(ours.dtype).max
    ideal = np.clip(real.numpy() / wanted.scale + wanted.zero_point, low, high)
    return float(np.abs(ours - ideal).max())


def weights(length: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Some of them negative, one 0, one small."""
    generator = torch.Generator().manual_seed(seed)
    gamma = torch.randn(length, generator=generator) * 0.3 + 1
    gamma[0] *= -1
    if length > 4:
        gamma[2], gamma[3] = 0.0, 1e-3
    return gamma, torch.randn(length, generator=generator) * 0.2


Norm = tuple[str, Callable[..., torch.Tensor]]
LAYER: Norm = ("aten.layer_norm.default", lambda x, n, w, c, e: F.layer_norm(x, [n], w, c, e))
RMS: Norm = ("aten.rms_norm.default", lambda x, n, w, c, e: F.rms_norm(x, [n], w, e))
# Steps of the result, where the best rounding has 0.5, on all of these rows.
BOUNDS = {"TOSA-1.0+INT": 0.52, "TOSA-1.0+INT+int16": 0.68, "a16": 0.6, "a16 to 8": 0.68}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("length", [2, 100, 1000])
def test_norms_are_exact_and_near_the_real_ones(spec: str, norm: Norm, length: int) -> None:
    (kind, result), (target, function) = SPECS[spec], norm
    for turn, (scale, zero, eps) in enumerate([(0.003, -128, 1e-5), (0.3, 90, 0.0)]):
        given = Quant(scale, zero) if kind is I8 else Quant(scale / 256)
        for number, (sort, x) in enumerate(rows(length, kind, length).items()):
            gamma, beta = weights(length, 1) if (turn + number) % 2 else (None, None)
            both = [None if v is None else v.double() for v in (gamma, beta)]
            expected = function(dequantized(x, given), length, *both, eps)
            if not expected.isfinite().all():
                continue  # a constant row, and no eps
            wanted = range_quant(expected, result)
            rest = (gamma, beta, eps) if target == LAYER[0] else (gamma, eps)
            off = steps_off(target, spec, x, given, wanted, expected, [length], *rest)
            assert off <= BOUNDS[spec], f"{off} steps off: {sort}, {scale}"


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("seed", range(6))
def test_ordinary_rows_are_within_three_quarters_of_a_step(spec: str, seed: int) -> None:
    (kind, result), generator = SPECS[spec], torch.Generator().manual_seed(seed)
    length = int(torch.randint(3, 800, (), generator=generator))
    real = torch.randn(ROWS, length, generator=generator) * 2 + 0.5
    given = range_quant(real, kind)
    x = np.clip(np.round(real.numpy() / given.scale + given.zero_point), *kind.range)
    x = x.astype(kind.array)
    gamma, beta = weights(length, seed)
    expected = F.layer_norm(dequantized(x, given), [length], gamma.double(), beta.double(), 1e-5)
    wanted, rest = range_quant(expected, result), ([length], gamma, beta, 1e-5)
    off = steps_off(LAYER[0], spec, x, given, wanted, expected, *rest)
    assert off <= 0.65, f"{off} steps off"


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("eps", [0.0, 1e-5, 3.0])
def test_a_constant_row_becomes_the_bias_exactly(spec: str, eps: float) -> None:
    (kind, result), given = SPECS[spec], Quant(0.02, 0)
    gamma, beta = weights(24, 3)
    x = np.repeat(np.array([[kind.range[0]], [7], [0], [kind.range[1]]], kind.array), 24, 1)
    wanted = range_quant(beta, result)
    (ours,) = Model(lowered(LAYER[0], spec, x, given, wanted, [24], gamma, beta, eps)).run(x)
    levels = np.round(beta.double().numpy() / wanted.scale + wanted.zero_point)
    assert np.array_equal(ours, np.broadcast_to(levels, ours.shape))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("scale", [1e-6, 1e-4, 0.01])
def test_an_eps_far_above_the_variance_counts(spec: str, scale: float) -> None:
    kind, result = SPECS[spec]
    given = Quant(scale, 11) if kind is I8 else Quant(scale / 256)
    x = rows(40, kind, 1)["normal"]
    for target, function in (LAYER, RMS):
        expected = function(dequantized(x, given), 40, None, None, 0.01)
        wanted = range_quant(expected * 1e6, result)
        wanted = Quant(wanted.scale / 1e6, wanted.zero_point)
        rest = (None, None, 0.01) if target == LAYER[0] else (None, 0.01)
        off = steps_off(target, spec, x, given, wanted, expected, [40], *rest)
        assert off <= 0.6, f"{off} steps off"


def test_groups_and_channels_are_normalised_as_pytorch_does() -> None:
    spec, given = "TOSA-1.0+INT+int16", Quant(0.05, -9)
    x = np.random.default_rng(0).integers(-128, 128, (2, 6, 5, 4)).astype(np.int8)
    gamma, beta = weights(6, 2)
    expected = F.group_norm(dequantized(x, given), 3, gamma.double(), beta.double())
    wanted = range_quant(expected, I8)
    off = steps_off("aten.group_norm.default", spec, x, given, wanted, expected, 3, gamma, beta)
    assert off <= 0.55


def test_rows_that_vary_in_one_place_have_their_deviation() -> None:
    """√ of 0 is 0, and of the least there is, what it should be."""
    spec, given = "TOSA-1.0+INT", Quant(0.5, 3)
    x = np.full((3, 50), 9, np.int8)
    x[1, 4], x[2, :25] = 10, -100
    for unbiased in (True, False):
        expected = dequantized(x, given).std(1, unbiased=unbiased)
        wanted = Quant(float(expected[2]) / 200, -100)
        off = steps_off("aten.std.dim", spec, x, given, wanted, expected, [1], unbiased)
        assert off <= 0.51


def test_a_row_too_long_for_int32_is_refused_with_its_length() -> None:
    b = Lowering("TOSA-1.0+INT")
    x = b.with_quant(b.input(I8, (1, 1 << 17), "x"), Quant(0.1))
    with pytest.raises(Unsupported, match="a norm over 131072 elements; 65536 is the most"):
        rule_of(LAYER[0]).lower(b, x, [1 << 17])


class Norms(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.group = torch.nn.LayerNorm([6, 8]), torch.nn.GroupNorm(2, 4)
        self.instance, self.rms = torch.nn.InstanceNorm2d(4, affine=True), torch.nn.RMSNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rms(self.instance(self.group(self.layer(x))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_float_types_are_those_of_pytorch(dtype: torch.dtype) -> None:
    x = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    net = Norms().to(dtype)
    art = tosaic.compile(net, (x,), target="TOSA-1.0+FP")
    assert not art.report.refused, art.report
    (made,) = art.run(x) if isinstance(art.run(x), (list, tuple)) else (art.run(x),)
    assert made.dtype == dtype
    near = 2e-2 if dtype is torch.float16 else 1e-4
    torch.testing.assert_close(made, net(x).detach(), rtol=near, atol=near)


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_network_of_norms_is_quantized_whole(scheme: str) -> None:
    generator, net = torch.Generator().manual_seed(0), Norms()
    data = [(torch.randn(2, 4, 6, 8, generator=generator),) for _ in range(8)]
    art = tosaic.compile(net, data[0], target="TOSA-1.0+INT+int16", scheme=scheme, calibration=data)
    assert not art.report.refused, art.report
    made, real = art.run(*data[0]), net(*data[0]).detach()
    noise = ((made - real) ** 2).mean() / (real**2).mean()
    assert noise < (1e-2 if scheme == "int8" else 1e-6)

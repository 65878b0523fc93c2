"""Norms in integers on rows that are hard: constant, one step apart, one-hot, of mixed spread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tosaic
from judges.rules import dequantized, finish, range_quant, run_both
from tosaic.errors import Unsupported
from tosaic.front.lower import Lowering
from tosaic.front.registry import rule_of
from tosaic.ir.graph import Graph, Quant
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

SPECS = {"TOSA-1.0+INT": I8, "TOSA-1.0+INT+int16": I8, "a16": I16}
ROWS = 6


def env_of(spec: str) -> Env:
    return Env.parse("TOSA-1.0+INT+int16" if spec == "a16" else spec)


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
    target: str, env: Env, x: np.ndarray, given: Quant, wanted: Quant, *arguments: Any
) -> Graph:
    b, kind = Lowering(env), I8 if x.dtype == np.int8 else I16
    value = b.marked(b.input(kind, x.shape, "x"), given)
    b.wanted = (wanted, kind)
    constants = [b.tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    made = rule_of(target).lower(b, value, *constants)
    made = made[0] if isinstance(made, tuple) else made
    return finish(b, b.settle(made, wanted, kind), env)


def steps_off(
    target: str, env: Env, x: np.ndarray, given: Quant, wanted: Quant, real: torch.Tensor,
    *arguments: Any,
) -> float:  # fmt: skip
    """How far the result is from the real one in its range; exact beside the reference model."""
    ours, theirs = run_both(lowered(target, env, x, given, wanted, *arguments), [x])
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
HARD = {"TOSA-1.0+INT": 0.52, "TOSA-1.0+INT+int16": 0.75, "a16": 0.75}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("norm", [LAYER, RMS], ids=["layer", "rms"])
@pytest.mark.parametrize("length", [2, 16, 100, 1000])
def test_norms_are_exact_and_near_the_real_ones(spec: str, norm: Norm, length: int) -> None:
    kind, (target, function) = SPECS[spec], norm
    for scale, zero, eps in ((0.003, -128, 1e-5), (0.03, 5, 1e-5), (0.3, 90, 0.0), (2.0, 0, 1e-6)):
        given = Quant(scale, zero) if kind is I8 else Quant(scale / 256)
        for sort, x in rows(length, kind, length).items():
            real = dequantized(x, given)
            for gamma, beta in ((None, None), weights(length, 1)):
                both = [None if v is None else v.double() for v in (gamma, beta)]
                expected = function(real, length, *both, eps)
                if not expected.isfinite().all():
                    continue  # a constant row without eps
                wanted = range_quant(expected, kind)
                rest = (gamma, beta, eps) if target == LAYER[0] else (gamma, eps)
                off = steps_off(target, env_of(spec), x, given, wanted, expected, [length], *rest)
                assert off <= HARD[spec], f"{off} steps off: {sort}, {scale}"

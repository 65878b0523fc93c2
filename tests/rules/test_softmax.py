"""Softmax in integers on rows that are hard: long, flat, one-hot, and rounding all one way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tosaic
from judges.rules import finish, run_both
from tosaic.errors import Unsupported
from tosaic.front.registry import rule_of
from tosaic.ir.graph import Quant
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

FUNCTIONS = {"aten.softmax.int": torch.softmax, "aten.log_softmax.int": torch.log_softmax}
ROWS = 6


def rows(length: int, scale: float, kind: DType) -> dict[str, np.ndarray]:
    """Integers of each sort of row; "coherent" ones lie where exp rounds most, and all alike."""
    low, high = kind.range
    rng = np.random.default_rng(length)
    onehot = np.full((ROWS, length), low)
    onehot[:, length // 2] = high
    coherent = np.full((ROWS, length), max(high - round(np.log(65534) / scale), low))
    coherent += np.arange(ROWS)[:, None]
    coherent[:, 0] = high
    made = {
        "normal": rng.normal(0, (high - low) / 6, (ROWS, length)),
        "uniform": rng.uniform(low, high, (ROWS, length)),
        "equal": np.full((ROWS, length), 5),
        "onehot": onehot,
        "coherent": coherent,
    }
    return {k: np.clip(np.round(v), low, high).astype(kind.array) for k, v in made.items()}


def lowered(target: str, env: Env, kind: DType, x: np.ndarray, given: Quant, wanted: Quant):
    b = Lowering(env)
    value = b.with_quant(b.input(kind, x.shape, "x"), given)
    b.wanted = (wanted, kind)
    made = rule_of(target).lower(b, value, 1)
    return finish(b, b.requantize(made, wanted, kind), env)


def covering(real: np.ndarray, kind: DType) -> list[Quant]:
    """The usual range of a probability, the result's own, and one that cuts the largest off."""
    most = max(float(np.abs(real).max()), 1e-3)
    if kind is I16:
        return [Quant(1 / 32768), Quant(most / 32767)] if real.min() >= 0 else [Quant(most / 32767)]
    own = most / 255
    if real.min() < 0:
        return [Quant(own, 127), Quant(0.3 * own, 127)]
    return [Quant(1 / 256, -128), Quant(own, -128), Quant(0.3 * own, -128)]


# Steps of the result, where the best rounding has 0.5. Only coherent rows come near these.
INT8 = {4: 0.52, 64: 0.65, 1000: 0.55}
INT16 = {4: 0.6, 64: 0.8, 1000: 2.5}


@pytest.mark.parametrize("target", FUNCTIONS)
@pytest.mark.parametrize("length", INT8)
@pytest.mark.parametrize("spec", ["TOSA-1.0+INT", "TOSA-1.0+INT+int16", "a16"])
def test_integer_rows_are_exact_and_near_the_real_ones(spec: str, length: int, target: str) -> None:
    kind, bounds = (I16, INT16) if spec == "a16" else (I8, INT8)
    env = Env.parse("TOSA-1.0+INT+int16" if spec == "a16" else spec)
    for scale in (0.005, 0.03, 0.25):
        given = Quant(scale, 7) if kind is I8 else Quant(scale / 256)
        for sort, x in rows(length, given.scale, kind).items():
            real = torch.as_tensor((x.astype(np.float64) - given.zero_point) * given.scale)
            expected = FUNCTIONS[target](real, 1).numpy()
            for wanted in covering(expected, kind):
                graph = lowered(target, env, kind, x, given, wanted)
                ours, theirs = run_both(graph, [x])
                assert np.array_equal(ours, theirs)
                ideal = np.clip(expected / wanted.scale + wanted.zero_point, *kind.range)
                off = np.abs(ours - ideal).max()
                assert off <= bounds[length], f"{off} steps off: {sort}, {scale}, {wanted}"


def test_without_int16_no_operator_needs_it() -> None:
    given, wanted = Quant(0.05, 3), Quant(1 / 256, -128)
    x = rows(10, 0.05, I8)["normal"]
    plain, short = (
        {v.dtype for op in lowered("aten.softmax.int", Env.parse(spec), I8, x, given, wanted).ops
         for v in op.outs}
        for spec in ("TOSA-1.0+INT", "TOSA-1.0+INT+int16")
    )  # fmt: skip
    assert I16 not in plain
    assert I16 in short


def test_a_row_too_long_for_int32_is_refused_with_its_length() -> None:
    b = Lowering("TOSA-1.0+INT")
    x = b.with_quant(b.input(I8, (1, 1 << 21), "x"), Quant(0.1))
    with pytest.raises(Unsupported, match="a softmax over 2097152 elements"):
        rule_of("aten.softmax.int").lower(b, x, 1)


class Head(torch.nn.Module):
    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        total = x.sum()
        return (
            torch.softmax(x, -1, dtype=self.dtype),
            torch.log_softmax(x, 0, dtype=self.dtype),
            torch.softmax(total, 0, dtype=self.dtype),
        )


@pytest.mark.parametrize(
    ("given", "dtype"),
    [(torch.float32, None), (torch.float16, None), (torch.float16, torch.float32)],
)
def test_float_types_are_those_of_pytorch(given: torch.dtype, dtype: torch.dtype | None) -> None:
    x = (torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 4).to(given)
    art = tosaic.compile(Head(dtype), (x,), target="TOSA-1.0+FP")
    assert not art.report.refused, art.report
    for got, real in zip(art.run(x), Head(dtype)(x), strict=True):
        assert got.dtype == real.dtype
        assert got.shape == real.shape
        torch.testing.assert_close(got, real, rtol=2e-3, atol=1e-5)

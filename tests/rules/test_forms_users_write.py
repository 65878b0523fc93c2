"""Forms that users write and that no sample of a single rule shows, compiled whole."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from judges.programs import Function, agrees_with_reference, check, compiled

BOTH = ["TOSA-1.0+INT", "ethos-u85-256"]


def data(*shape: int, count: int = 6) -> list[tuple[Tensor, ...]]:
    random = torch.Generator().manual_seed(3)
    return [(torch.randn(*shape, generator=random),) for _ in range(count)]


def ratio(real: Tensor, made: Tensor) -> float:
    """How far the signal is above the error, in dB."""
    return float(10 * torch.log10(real.square().sum() / (made - real).square().sum()))


def functions(x: Tensor) -> tuple[Tensor, ...]:
    size = x.abs() + 0.2
    return (
        torch.exp(x), torch.log(size), torch.rsqrt(size), torch.reciprocal(size), torch.sinh(x),
        torch.asin(torch.tanh(x) * 0.9), torch.logit(torch.sigmoid(x)), torch.expm1(x), x**3, 2**x,
        F.hardshrink(x, 0.8), F.threshold(x, -0.3, -1.0), x // 0.3, x % -0.7, torch.frac(x),
    )  # fmt: skip


@pytest.mark.parametrize("target", ["TOSA-1.0+INT+int16", "ethos-u55-128"])
def test_functions_of_int16_are_compiled_and_better_than_int8(target: str) -> None:
    inputs = data(4, 32)
    art = compiled(Function(functions), inputs[0], target, scheme="a16w8", calibration=inputs)
    assert not art.report.refused
    for real, made in zip(functions(*inputs[0]), art.run(*inputs[0]), strict=True):
        assert ratio(real, made) > 55 or ((real - made).abs() > 1e-3).sum() <= 1  # beside a jump
    if target.startswith("TOSA"):
        agrees_with_reference(art.graph)


PROMOTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a constant of integers": lambda x, n: x + torch.arange(4),
    "integers and a number": lambda x, n: n / 8 + n * 0.3,
    "integers and real numbers": lambda x, n: x * n,
    "a mask": lambda x, n: x * (n > 5) + (n > 10),
    "a comparison": lambda x, n: torch.where(n > x.round() + 0.5, x, -x),
}


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("name", PROMOTED)
def test_integers_beside_real_numbers_are_real(name: str, target: str) -> None:
    function, random = PROMOTED[name], torch.Generator().manual_seed(2)
    inputs = [
        (torch.randn(3, 4, generator=random), torch.randint(-9, 20, (3, 4), generator=random))
        for _ in range(8)
    ]
    art = compiled(Function(function), inputs[0], target, calibration=inputs)
    assert not art.report.refused
    real = torch.stack([function(*x) for x in inputs])
    assert ratio(real, torch.stack([art.run(*x) for x in inputs])) > 30


def test_bytes_of_a_picture_become_real_numbers_without_a_warning() -> None:
    model = Function(lambda x: (x.float() / 255 - 0.485) / 0.229)
    inputs = [(torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16),)] * 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "only 1 of 2 calibration inputs")
        art = compiled(model, inputs[0], "TOSA-1.0+INT", calibration=inputs)
    torch.testing.assert_close(art.run(*inputs[0]), model(*inputs[0]), rtol=0, atol=0.02)


@pytest.mark.parametrize("target", BOTH)
def test_bags_of_different_sizes_have_one_scale(target: str) -> None:
    table, starts = torch.linspace(-1, 1, 60).reshape(10, 6), torch.tensor([0, 3, 4])
    model = Function(lambda k: F.embedding_bag(k, table, starts))
    random = torch.Generator().manual_seed(0)
    inputs = [(torch.randint(0, 10, (9,), generator=random),) for _ in range(8)]
    art = compiled(model, inputs[0], target, calibration=inputs)
    assert not art.report.refused
    for x in inputs:
        torch.testing.assert_close(art.run(*x), model(*x), rtol=0, atol=0.02)


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_number_is_equal_to_the_step_that_it_is_rounded_to(scheme: str) -> None:
    inputs = [(2.7 * x.sign(),) for (x,) in data(4, 8)]
    model = Function(lambda x: torch.where(x == 2.7, x, 2.0))
    art = compiled(model, inputs[0], "TOSA-1.0+INT+int16", scheme=scheme, calibration=inputs)
    torch.testing.assert_close(art.run(*inputs[0]), model(*inputs[0]), rtol=0, atol=0.02)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_a_turn_to_channels_last_runs_on_the_npu(target: str) -> None:
    inputs = data(2, 3, 4, 5)
    model = Function(lambda x: x.permute(0, 3, 1, 2))
    art = compiled(model, inputs[0], target, calibration=inputs)
    assert not art.report.refused
    assert ratio(model(*inputs[0]), art.run(*inputs[0])) > 30


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_an_ethos_u55_sorts(scheme: str) -> None:
    def model(x: Tensor) -> tuple[Any, ...]:
        top = x.topk(3, 1)
        return top.values, top.indices, x.argsort(0), x.median(1).values

    order = torch.stack([torch.randperm(40, generator=torch.Generator().manual_seed(i))
                         for i in range(4)])  # fmt: skip
    inputs = [(order[:, i : i + 10] * 0.5 - 7.0,) for i in range(0, 40, 10)]
    art = compiled(Function(model), inputs[0], "ethos-u55-128", scheme=scheme, calibration=inputs)
    assert not art.report.refused
    for made, real in zip(art.run(*inputs[0]), model(*inputs[0]), strict=True):
        torch.testing.assert_close(made, real, rtol=0, atol=0.1 if real.is_floating_point() else 0)


HALF: dict[str, Callable[[Tensor], Any]] = {
    "a place that bfloat16 does not count to": lambda x: x.topk(3).indices,
    "a part of another type": lambda x: torch.slice_scatter(x, torch.zeros(1, 2), 1, 1, 3),
    "a line of another type": lambda x: torch.select_scatter(x, torch.ones(600), 0, 0),
}


@pytest.mark.parametrize("name", HALF)
def test_half_precision_keeps_types_and_places(name: str) -> None:
    x = torch.randperm(600, generator=torch.Generator().manual_seed(0)).reshape(1, 600) / 4
    check(Function(HALF[name]), (x.half(),))


def test_a_histogram_is_pytorchs() -> None:
    model = Function(lambda x: torch.histc(x, 4, -1.0, 2.0))
    ends = torch.tensor([-1.0, -0.25, 2.0, 2.5, 0.5, -3.0]).repeat(5, 5)
    check(model, *data(5, 30, count=2), (ends,))

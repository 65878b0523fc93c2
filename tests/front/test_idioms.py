"""Operators written out by hand are lowered and quantized as the operators that they are."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from judges.programs import Function
from tosaic.front import torchapi
from tosaic.passes.importer import import_model

ATTENTION = "aten.scaled_dot_product_attention.default"
LAYER, RMS, SILU = "aten.layer_norm.default", "aten.rms_norm.default", "aten.silu.default"


class Held(nn.Module):
    """A function that also has a weight and a bias."""

    def __init__(self, function: Callable[..., Tensor], *shape: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)
        self.weight = nn.Parameter(torch.rand(shape, generator=generator) + 0.5)
        self.bias = nn.Parameter(torch.randn(shape, generator=generator) / 4)
        self.function = function

    def forward(self, *arguments: Tensor) -> Tensor:
        return self.function(*arguments, self.weight, self.bias)


def as_in_llama(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    kind = x.dtype
    x = x.to(torch.float32)
    x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * x.to(kind)


def over_a_root(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, True) + 1e-6) * weight


def channels_first(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    mean = x.mean(1, keepdim=True)
    x = (x - mean) / torch.sqrt((x - mean).pow(2).mean(1, keepdim=True) + 1e-6)
    return weight[:, None, None] * x + bias[:, None, None]


def by_variance(x: Tensor) -> Tensor:
    apart = x - x.mean(-1, keepdim=True)
    return apart * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) * (1.0 / math.sqrt(k.size(-1)))
    allowed = torch.tril(torch.ones(q.size(-2), k.size(-2)))
    scores = scores.masked_fill(allowed == 0, float("-inf"))
    return F.dropout(F.softmax(scores, dim=-1), 0.1, training=False) @ v


def added(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    near = -torch.arange(q.size(-2))[:, None].sub(torch.arange(k.size(-2))).abs().float()
    forbidden = (1 - torch.tril(torch.ones(q.size(-2), k.size(-2)))) * -1e9
    return torch.softmax(q @ k.mT / 2.5 + near + forbidden, -1) @ v


def where(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.matmul(q * 0.4, k.permute(0, 1, 3, 2))
    return torch.where(mask, scores, float("-inf")).softmax(-1).matmul(v)


def stacked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.bmm(torch.softmax(torch.bmm(q[0] / 3, k[0].permute(0, 2, 1)), -1), v[0])


def by_names(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shares = torch.einsum("b h i d, b h j d -> b h i j", q, k).mul(0.3).softmax(-1)
    return torch.einsum("b h i j, b h j d -> b h i d", shares, v)


def heads_inside(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shares = torch.einsum("bqhd,bkhd->bhqk", q / 3.0, k).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", shares, v)


class Weights(nn.Module):
    """torch's own layer, which averages the shares that nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.MultiheadAttention(24, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x)[0]  # type: ignore[no-any-return]


HEADS = ((1, 3, 6, 8), (1, 3, 6, 8), (1, 3, 6, 8))
IDIOMS: list[tuple[nn.Module, tuple[tuple[int, ...], ...], str]] = [
    (Held(as_in_llama, 48), ((2, 5, 48),), RMS),
    (Held(over_a_root, 48), ((2, 5, 48),), RMS),
    (Held(channels_first, 20), ((1, 20, 6, 6),), LAYER),
    (Function(by_variance), ((4, 40),), LAYER),
    (Function(causal), HEADS, ATTENTION),
    (Function(added), HEADS, ATTENTION),
    (Function(where), (*HEADS, (1, 1, 6, 6)), ATTENTION),
    (Function(stacked), HEADS, ATTENTION),
    (Function(by_names), HEADS, ATTENTION),
    (Function(heads_inside), HEADS, ATTENTION),
    (Weights(), ((2, 7, 24),), ATTENTION),
    (Function(lambda x: torch.sigmoid(x) * x), ((4, 30),), SILU),
]
NAMES = [n.function.__name__ if hasattr(n, "function") else type(n).__name__ for n, _, _ in IDIOMS]


def example(shapes: tuple[tuple[int, ...], ...], seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randn(shape, generator=generator) * 1.5 for shape in shapes]
    if len(found) == 4:  # a mask with something in each row
        found[3] = (found[3] > 0) | torch.eye(found[3].shape[-1], dtype=torch.bool)
    return tuple(found)


def calls(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[str]:
    graph = import_model(model.eval(), inputs).model.graph
    return [torchapi.target_name(n) for n in graph.nodes if n.op == "call_function"]


def decibels(got: Tensor, real: Tensor) -> float:
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


@pytest.mark.parametrize(("model", "shapes", "operator"), IDIOMS, ids=NAMES)
def test_an_idiom_becomes_its_operator(
    model: nn.Module, shapes: tuple[tuple[int, ...], ...], operator: str
) -> None:
    inputs = example(shapes, 0)
    if operator != ATTENTION:  # which is known when masks are
        found = calls(model, inputs)
        assert found.count(operator) == 1
        assert not {"aten.rsqrt.default", "aten.sqrt.default", "aten.mean.dim"} & {*found}
    with torch.no_grad():
        real = model(*inputs)
    made = tosaic.compile(model, inputs, target="TOSA-1.0+FP")
    assert torch.allclose(made.run(*inputs), real, atol=2e-5)


@pytest.mark.parametrize(("model", "shapes", "operator"), IDIOMS, ids=NAMES)
def test_an_idiom_in_int8_is_near_float(
    model: nn.Module, shapes: tuple[tuple[int, ...], ...], operator: str
) -> None:
    inputs = example(shapes, 0)
    with torch.no_grad():
        real = model.eval()(*inputs)
    data = [example(shapes, seed) for seed in range(8)]
    made = tosaic.compile(model, inputs, calibration=data)
    found = [torchapi.target_name(node) for node in made.program.calls]
    assert found.count(operator) == 1
    assert "aten.softmax.int" not in found
    assert decibels(made.run(*inputs), real) > 30, operator


def root_and_more(x: Tensor) -> Tensor:
    return x / (torch.sqrt((x * x).mean(-1, True)) + 1e-6)


def unbiased(x: Tensor) -> Tensor:
    return (x - x.mean(-1, True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)


def other_axes(x: Tensor) -> Tensor:
    return (x - x.mean(0, True)) * torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)


def another_root(x: Tensor) -> Tensor:
    return (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def another_gate(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x + 1)


@pytest.mark.parametrize(
    "function", [root_and_more, unbiased, other_axes, another_root, another_gate]
)
def test_what_only_looks_like_it_is_left(function: Callable[[Tensor], Tensor]) -> None:
    inputs = example(((6, 12),), 1)
    assert not {LAYER, RMS, SILU} & {*calls(Function(function), inputs)}
    made = tosaic.compile(Function(function), inputs, target="TOSA-1.0+FP")
    assert torch.allclose(made.run(*inputs), function(*inputs), atol=2e-5)


def test_sums_over_two_axes_are_no_product_of_matrices() -> None:
    inputs = example(((2, 3, 4), (3, 4, 5)), 2)
    model = Function(lambda x, y: torch.einsum("abc,bcd->ad", x, y))
    assert calls(model, inputs) == ["aten.einsum.default"]


def test_a_factor_that_comes_in_stays_a_factor() -> None:
    inputs = example(((5, 12), (12,)), 3)
    model = Function(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w)
    assert calls(model, inputs) == [RMS, "aten.mul.Tensor"]

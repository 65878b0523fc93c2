"""Attention in integers: every form of it, every sort of mask."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tosaic
from judges.precision import inputs_of
from judges.rules import finish, range_quant, run_both
from tosaic.errors import Unsupported
from tosaic.front.registry import rule_of
from tosaic.ir.graph import Graph, Op, Quant
from tosaic.lowering.builder import Lowering
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.spec.env import Env

TARGET = "aten.scaled_dot_product_attention.default"


def _no_int16_products(op: Op) -> str | None:
    """What Ethos-U55 says."""
    wide = op.name == "MATMUL" and op.ins[0].dtype is I16
    return "products of int16 are refused" if wide else None


# The forms: without int16, with it, with it but for products, and int16 activations.
FORMS: dict[str, tuple[str, DType, tuple[Any, ...]]] = {
    "bytes": ("TOSA-1.0+INT", I8, ()),
    "shorts": ("TOSA-1.0+INT+int16", I8, ()),
    "deferred": ("TOSA-1.0+INT+int16", I8, (_no_int16_products,)),
    "a16": ("TOSA-1.0+INT+int16", I16, ()),
}
Made = tuple[Graph, list[np.ndarray], torch.Tensor, Quant]


def attention(form: str, tensors: list[torch.Tensor], mask: Any = None, **keywords: Any) -> Made:
    """The graph, its inputs, the real result, and what an integer of it means.

    A tensor as a mask is a constant; in a list it is an input, quantized unless it is bool.
    """
    text, kind, constraints = FORMS[form]
    env = Env.parse(text)
    b = Lowering(env, constraints=constraints)
    more = mask if isinstance(mask, list) else []
    values, real, arrays = inputs_of(b, [*tensors, *more], kind)
    if isinstance(mask, torch.Tensor):
        values.append(b.tensor(mask))
        real.append(mask if mask.dtype is torch.bool else mask.double())
    expected = F.scaled_dot_product_attention(*real, **keywords)
    wanted = range_quant(expected, kind)
    b.wanted = (wanted, kind)
    made = rule_of(TARGET).lower(b, *values, **keywords)
    return finish(b, b.requantize(made, wanted, kind), env), arrays, expected, wanted


def steps_off(made: Made) -> float:
    graph, arrays, expected, wanted = made
    ours, theirs = run_both(graph, arrays)
    assert np.array_equal(ours, theirs)
    assert len(np.unique(ours)) > 20
    return float(np.abs(ours - (expected.numpy() / wanted.scale + wanted.zero_point)).max())


def data(seed: int, peak: float, *shape: int) -> list[torch.Tensor]:
    """Query, key and value of (heads, rows, columns, channels); scores deviate by the peak."""
    generator = torch.Generator().manual_seed(seed)
    heads, rows, columns, channels = shape
    query = torch.randn(1, heads, rows, channels, generator=generator) * peak
    rest = (torch.randn(1, heads, columns, channels, generator=generator) for _ in range(2))
    return [query, *rest]


def _masks() -> dict[str, Any]:
    """For 2 heads, 6 rows and 9 columns."""
    rng = torch.Generator().manual_seed(5)
    some = torch.rand(1, 2, 6, 9, generator=rng) > 0.5
    some[..., 0] = True
    empty = some.clone()
    empty[0, 0, 2] = False
    slopes = -torch.arange(9.0).flip(0) * torch.tensor([0.5, 0.1])[:, None, None] + 40.0
    return {
        "bool": some,
        "bool for all heads": some[0, 0],
        "a row that allows nothing": empty,
        "numbers": torch.randn(6, 9, generator=rng),
        "slopes": slopes[None],
        "infinite": torch.where(some, 0.0, -math.inf),
        "a row of infinite": torch.where(empty, 0.0, -math.inf),
        "largest": torch.where(some, 1.0, torch.finfo(torch.float32).min),
        "one for each column": torch.where(some[:, :1, :1], 0.0, -1e4),
        "computed bool": [some[:, :1]],
        "computed, a row that allows nothing": [empty],
        "computed numbers": [torch.where(some[:, :, :1], 0.0, -1e4)],
        "computed slopes": [slopes[None] - 40.0],
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sort", _masks())
def test_masks_mean_what_they_mean_to_pytorch(form: str, sort: str) -> None:
    tensors = [t[:, :, :9] for t in data(1, 1.0, 2, 6, 9, 16)]
    off = steps_off(attention(form, tensors, _masks()[sort]))
    limit = {"bytes": 0.55, "shorts": 0.8, "deferred": 0.8, "a16": 0.55}[form]
    assert off <= limit, f"{off} steps off"


@pytest.mark.parametrize("form", FORMS)
def test_causal_grouped_and_scaled_heads(form: str) -> None:
    query, key, value = data(2, 1.0, 4, 6, 6, 16)
    grouped = [query, key[:, :2], value[:, :2]]
    limit = {"bytes": 0.55, "shorts": 0.75, "deferred": 0.75, "a16": 0.55}[form]
    assert steps_off(attention(form, [query, key, value], is_causal=True)) <= limit
    assert steps_off(attention(form, grouped, enable_gqa=True)) <= limit
    both = attention(form, grouped, _masks()["bool"][:, :1, :, :6], enable_gqa=True)
    assert steps_off(both) <= limit
    assert steps_off(attention(form, [query, key[:, :1], value], scale=0.05)) <= limit


@pytest.mark.parametrize("factor", [1e-4, 1e-2, 30.0])
@pytest.mark.parametrize("form", FORMS)
def test_no_scale_of_the_operands_overflows(form: str, factor: float) -> None:
    """Scores all alike, and scores of which one is far above the others."""
    query, key, value = data(3, 1.0, 2, 6, 40, 16)
    made = attention(form, [query * factor, key * factor, value], is_causal=True)
    assert steps_off(made) <= 2.0


@pytest.mark.parametrize(("form", "kinds"), [
    ("bytes", {I8}), ("shorts", {I8, I16}), ("deferred", {I8}), ("a16", {I16}),
])  # fmt: skip
def test_products_are_of_what_the_target_has(form: str, kinds: set[DType]) -> None:
    graph = attention(form, data(0, 1.0, 2, 6, 6, 16))[0]
    assert {op.ins[0].dtype for op in graph.ops if op.name == "MATMUL"} == kinds


def test_dropout_is_refused() -> None:
    b = Lowering("TOSA-1.0+FP")
    values = [b.input("f32", (1, 2, 4, 8)) for _ in range(3)]
    with pytest.raises(Unsupported, match="attention with dropout"):
        rule_of(TARGET).lower(b, *values, None, 0.1)


def _causal(size: int) -> torch.Tensor:
    return torch.full((size, size), -math.inf).triu(1)


class Block(torch.nn.Module):
    """A mask of −∞ that is a buffer, or that the program makes itself."""

    def __init__(self, is_held: bool) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.norm = torch.nn.LayerNorm(32)
        self.register_buffer("mask", _causal(10) if is_held else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = _causal(10) if self.mask is None else self.mask
        y, _ = self.attention(x, x, x, need_weights=False, attn_mask=mask)
        return self.norm(x + y)


@pytest.mark.parametrize(("target", "is_held"), [
    ("TOSA-1.0+FP", True), ("TOSA-1.0+INT", True), ("TOSA-1.0+INT+int16", True),
    ("TOSA-1.0+INT", False),
])  # fmt: skip
def test_a_block_with_an_infinite_mask_is_taken_whole(target: str, is_held: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    net = Block(is_held).eval()
    data = [(torch.randn(2, 10, 32, generator=generator),) for _ in range(8)]
    rest = {} if "FP" in target else {"calibration": data}
    art = tosaic.compile(net, data[0], target=target, **rest)
    assert not art.report.refused, art.report
    real = net(*data[0]).detach()
    noise = float(((art.run(*data[0]) - real) ** 2).mean() / (real**2).mean())
    assert noise < (1e-9 if "FP" in target else 1e-3)

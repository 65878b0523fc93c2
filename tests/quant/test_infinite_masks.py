"""Minus infinity hides what it is added to or put in place of, in integers as in float."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from judges.programs import Function

PADDED = torch.tensor([[0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]).bool()
INFINITE = torch.zeros(2, 6).masked_fill(PADDED, -math.inf)
torch.manual_seed(3)
ATTENTION = nn.MultiheadAttention(8, 2, batch_first=True).eval()
LATER = torch.ones(6, 6).triu(1)


def attended(x: Tensor, mask: Tensor) -> Tensor:
    made: Tensor = ATTENTION(x, x, x, key_padding_mask=mask)[0]
    return made


FORMS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], Tensor]] = {
    "keys that a condition pads": (attended, (2, 6, 8), PADDED),
    "keys that infinities pad": (attended, (2, 6, 8), INFINITE),
    "keys that are padded or come later": (
        lambda x, m: ATTENTION(x, x, x, key_padding_mask=m, attn_mask=LATER.bool())[0],
        (2, 6, 8), PADDED),
    "a mask of attention": (
        lambda x, m: F.scaled_dot_product_attention(x, x, x, attn_mask=m[:, None]),
        (2, 6, 4), INFINITE),
    "a sum of products": (
        lambda x, m: torch.addmm(m[:1], x[0], x[1].t()).softmax(-1), (2, 6, 4), INFINITE),
    "known numbers": (
        lambda x, m: torch.addmm(LATER * -1e30, x[0], x[1].t()).softmax(-1),
        (2, 6, 4), PADDED),
    "scores": (lambda x, m: (x + m[:, None]).softmax(-1), (2, 6, 6), INFINITE),
    "exp": (lambda x, m: torch.exp(x + m), (2, 6), INFINITE),
    "sigmoid": (lambda x, m: torch.sigmoid(x.masked_fill(m, -math.inf)), (2, 6), PADDED),
    "the largest": (lambda x, m: x.masked_fill(m, -1e4).amax(-1), (2, 6), PADDED),
    "the three largest": (
        lambda x, m: torch.where(m, -1e9, x).topk(3).values, (2, 6), PADDED),
    "scores that are divided": (
        lambda x, m: (x.masked_fill(m, -1e4) / 2).softmax(-1), (2, 6), PADDED),
    "exp of the least number": (
        lambda x, m: torch.exp(x.masked_fill(m, torch.finfo(x.dtype).min)), (2, 6), PADDED),
    "a condition times a number": (
        lambda x, m: torch.relu(x + m * -1e9), (2, 6), PADDED),
    "a number far below": (lambda x, m: torch.sigmoid(x + m), (2, 6), PADDED * -1e9),
    "log_softmax": (lambda x, m: (x + m).log_softmax(-1)[:, :4], (2, 6), INFINITE),
}  # fmt: skip


@pytest.mark.parametrize("target", ["TOSA-1.0+INT+int16", "ethos-u85-256"])
@pytest.mark.parametrize(("scheme", "least"), [("int8", 15), ("a16w8", 40)])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_mask_hides_counts_for_nothing(
    form: str, scheme: str, least: float, target: str
) -> None:
    """Of masks that count as the least score, results have 10 dB at most in any scheme."""
    function, shape, mask = FORMS[form]
    random = torch.Generator().manual_seed(5)
    inputs = [(torch.randn(shape, generator=random).clamp(-2, 2), mask) for _ in range(12)]
    net = Function(function)
    art = tosaic.compile(net, inputs[0], target=target, scheme=scheme, calibration=inputs[:8])
    assert not art.report.refused
    with torch.no_grad():
        real = torch.stack([function(*x) for x in inputs[8:]])
    made = torch.stack([art.run(*x) for x in inputs[8:]])
    noise = (made - real).square().sum()
    assert float(10 * torch.log10((real - real.mean()).square().sum() / noise)) > least


def test_a_number_far_below_counts_where_it_is_added_up() -> None:
    random = torch.Generator().manual_seed(5)
    inputs = [(torch.randn(2, 6, generator=random), PADDED) for _ in range(4)]
    net = Function(lambda x, m: x.masked_fill(m, -1e4).sum(-1))
    art = tosaic.compile(net, inputs[0], target="TOSA-1.0+INT", calibration=inputs)
    assert float(art.run(*inputs[0])[0]) == pytest.approx(-2e4, rel=0.01)

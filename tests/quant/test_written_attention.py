"""Attention that is written out, with masks as people write them, is close to float in int8."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from judges.programs import Function, agrees_with_reference, compiled
from tosaic.pipeline.artifact import Artifact

INTEGERS, LENGTH, LOWEST = "TOSA-1.0+INT", 12, torch.finfo(torch.float32).min
SDPA = "aten.scaled_dot_product_attention.default"
CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
BIAS = torch.randn(1, 4, LENGTH, LENGTH, generator=torch.Generator().manual_seed(3))
HEADS = torch.tensor([0.5, 1.0, 2.0, 3.0]).view(4, 1, 1)
Masks = Callable[[Tensor, Tensor], Tensor]


class Attention(nn.Module):
    """Four heads; ``masked`` changes scores, given those and which elements are no padding."""

    def __init__(self, masked: Masks, gives_shares: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.masked, self.gives_shares = masked, gives_shares

    def forward(self, x: Tensor, present: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = (layer(x).view(1, -1, 4, 8).transpose(1, 2) for layer in self.layers)
        shares = self.masked(q @ k.transpose(-1, -2) / math.sqrt(8), present).softmax(-1)
        made = (nn.functional.dropout(shares, 0.1, False) @ v).transpose(1, 2).reshape(1, -1, 32)
        return (made, shares) if self.gives_shares else made


def _added(value: float) -> Masks:
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(~CAUSAL, value)
    return lambda s, _: s + mask


def _padding(present: Tensor) -> Tensor:
    return (1.0 - present.float())[:, None, None, :]


def _zeros_like(present: Tensor) -> Tensor:
    zeros = torch.zeros_like(present, dtype=torch.float32)
    return zeros.masked_fill_(present == 0, -math.inf)


def _capped(s: Tensor) -> Tensor:
    return 5 * torch.tanh(s / 5)


def _in_windows(s: Tensor, _: Tensor) -> Tensor:
    windows = (s + BIAS).view(1, 1, 4, LENGTH, LENGTH)
    return (windows + torch.zeros(LENGTH, LENGTH).masked_fill(~CAUSAL, -1e30)).view(s.shape)


MASKS: dict[str, Masks] = {
    "numbers as low as there are are added": _added(LOWEST),
    "-inf is added": _added(-math.inf),
    "-10000 is added": _added(-1e4),
    "a number is filled in": lambda s, _: s.masked_fill(~CAUSAL, -1e9),
    "a tensor is chosen": lambda s, _: torch.where(CAUSAL, s, torch.full([], LOWEST)),
    "padding is added": lambda s, p: s + _padding(p) * LOWEST,
    "padding is filled in": lambda s, p: s.masked_fill(p[:, None, None, :] == 0, -1e9),
    "padding is chosen before": lambda s, p: s + torch.where(p > 0, 0.0, -1e4)[:, None, None, :],
    "padding and causal": lambda s, p: s + torch.where(CAUSAL, 0.0, -1e4) + _padding(p) * -1e4,
    "padding beside a bias": lambda s, p: s + (BIAS + _padding(p) * LOWEST),
    "windows with a bias": _in_windows,
    "heads have factors": lambda s, _: _added(-1e4)(s * HEADS, _),
    "zeros of the padding's shape": lambda s, p: s + _zeros_like(p)[:, None, None, :],
    "zeros made by the scores": lambda s, p: (
        s + s.new_zeros(s.shape).masked_fill_((p == 0)[:, None, None, :], -1e9)
    ),
    "numbers like the scores": lambda s, p: (
        s + torch.where(p[:, None, None, :] == 0, torch.full_like(s, -1e9), torch.zeros_like(s))
    ),
    "the type is named": lambda s, _: s.float().masked_fill(~CAUSAL, -1e9).type_as(s),
}
# What is done with these scores attention does not do: the softmax reads int8 of them.
OTHERS: dict[str, Masks] = {
    "a cap before -10000": lambda s, _: _added(-1e4)(_capped(s), _),
    "a cap before -inf": lambda s, _: _added(-math.inf)(_capped(s), _),
    "a cap before padding": lambda s, p: _capped(s) + _padding(p) * LOWEST,
    "a cap before what is filled in": lambda s, _: _capped(s).masked_fill(~CAUSAL, -1e5),
    "padding is taken away": lambda s, p: s - _padding(p) * 1e6,
}


def data(count: int) -> list[tuple[Tensor, Tensor]]:
    random = torch.Generator().manual_seed(1)
    steps = torch.arange(LENGTH)[None]
    return [
        (2 * torch.randn(1, LENGTH, 32, generator=random), (steps < LENGTH - i % 5).long())
        for i in range(count)
    ]


def decibels(model: nn.Module, art: Artifact, inputs: list[tuple[Tensor, Tensor]]) -> float:
    with torch.no_grad():
        real = torch.stack([model(*x) for x in inputs])
    off = torch.stack([art.run(*x) for x in inputs]) - real
    return 10 * math.log10(float(real.square().sum() / off.square().sum()))


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_before_a_softmax_costs_nothing(name: str) -> None:
    inputs, model = data(10), Attention(MASKS[name]).eval()
    art = compiled(model, inputs[0], INTEGERS, calibration=inputs[:6])
    assert not art.report.refused
    assert SDPA in {str(node.target) for node in art.program.calls}
    assert decibels(model, art, inputs[6:]) > 22
    agrees_with_reference(art.graph)


@pytest.mark.parametrize("name", OTHERS)
def test_a_mask_leaves_scores_their_steps(name: str) -> None:
    """Of 24 numbers from -14 to 10 a step is 0.1, and its rounding 31 dB below a share."""
    inputs, model = data(10), Attention(OTHERS[name]).eval()
    art = compiled(model, inputs[0], INTEGERS, calibration=inputs[:6])
    assert not art.report.refused
    assert SDPA not in {str(node.target) for node in art.program.calls}
    assert decibels(model, art, inputs[6:]) > 20
    agrees_with_reference(art.graph)


def _scaled_sum(s: Tensor, _: Tensor) -> Tensor:
    return (s + BIAS) * 0.5


@pytest.mark.parametrize(
    "model",
    [
        Attention(lambda s, _: s, gives_shares=True),
        Attention(_scaled_sum),
        Attention(lambda s, _: s.masked_fill(~CAUSAL, -1.0)),
        Attention(lambda s, _: -s),
    ],
    ids=["shares are read", "the mask is scaled", "what is filled in counts", "scores are negated"],
)
def test_what_is_no_attention_stays_as_it_is_written(model: Attention) -> None:
    inputs = data(3)
    art = compiled(model.eval(), inputs[0], INTEGERS, calibration=inputs)
    assert SDPA not in {str(node.target) for node in art.program.calls}


class Given(nn.Module):
    """nn.MultiheadAttention, which gives the shares by default."""

    def __init__(self, **masks: Tensor) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.masks = nn.MultiheadAttention(32, 4, batch_first=True), masks

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = self.inner(x, x, x, **self.masks)
        return made


_MINUS = torch.zeros(LENGTH, LENGTH).masked_fill(~CAUSAL, -math.inf)
INFINITE: dict[str, nn.Module] = {
    "given pairs": Given(attn_mask=~CAUSAL),
    "given keys": Given(key_padding_mask=torch.arange(LENGTH).expand(1, LENGTH) > 7),
    "baddbmm": Function(lambda x: torch.baddbmm(_MINUS, x, x.mT / 6).softmax(-1)),
    "where": Function(
        lambda x: torch.where(CAUSAL, x[..., :LENGTH], torch.tensor(-math.inf)).softmax(-1)
    ),
    "largest": Function(lambda x: (x[..., :LENGTH] + _MINUS).amax(-1)),
    "sum of a bias": Function(lambda x: (x[..., :LENGTH] + (_MINUS + BIAS[0, 0])).amax(-1)),
}


@pytest.mark.parametrize("name", INFINITE)
def test_infinities_of_a_known_mask_are_no_quantized_numbers(name: str) -> None:
    model = INFINITE[name].eval()
    inputs = [(x,) for x, _ in data(8)]
    art = compiled(model, inputs[0], INTEGERS, calibration=inputs)
    assert not art.report.refused
    for given in inputs:
        with torch.no_grad():
            expected, got = model(*given), art.run(*given)
        if isinstance(expected, Tensor):
            expected, got = (expected,), (got,)
        for real, ours in zip(expected, got, strict=True):
            noise = (real - ours).square().sum()
            assert float(10 * torch.log10(real.square().sum() / noise)) > 25


class Layer(nn.Module):
    """PyTorch's own layer, which adds a mask of padding to scores within their product."""

    def __init__(self, gives_shares: bool, is_causal: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)
        self.gives_shares = gives_shares
        self.mask = CAUSAL.logical_not() if is_causal else None

    def forward(self, x: Tensor, present: Tensor) -> Tensor:
        made, shares = self.layer(
            x, x, x, key_padding_mask=present == 0, attn_mask=self.mask,
            need_weights=self.gives_shares,
        )  # fmt: skip
        return torch.cat([made, shares], -1) if self.gives_shares else made


@pytest.mark.parametrize("gives_shares", [True, False])
@pytest.mark.parametrize("is_causal", [True, False])
def test_padding_has_no_share_in_pytorchs_own_layer(gives_shares: bool, is_causal: bool) -> None:
    inputs, model = data(10), Layer(gives_shares, is_causal).eval()
    art = compiled(model, inputs[0], INTEGERS, calibration=inputs[:6])
    assert decibels(model, art, inputs[6:]) > 20
    agrees_with_reference(art.graph)

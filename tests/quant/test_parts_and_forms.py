"""Calls without a rule are quantized as their parts, and every form of a program is taken."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
from judges.reference import run_reference

torch.manual_seed(0)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(6, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x)[0]


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, 2)


class Similar(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.cosine_similarity(x[:, :3], x[:, 1:4], 2)


class Einstein(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 7))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("btc,cd->btd", x, self.weight)


class Counting(nn.Module):
    """Keeps the mean of what it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        self.mean.mul_(0.5).add_(y.mean((0, 1)) * 0.5)
        return y + self.mean


NETWORKS = {
    "gru": Recurrent(nn.GRU), "lstm": Recurrent(nn.LSTM), "glu": Gated(), "cosine": Similar(),
    "einsum": Einstein(),
}  # fmt: skip


def inputs(count: int, seed: int = 0) -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(8, 4, 6, generator=generator),) for _ in range(count)]


@pytest.mark.parametrize("name", NETWORKS)
def test_in_float_nothing_stays_in_pytorch(name: str) -> None:
    net, ((x,),) = NETWORKS[name].eval(), inputs(1)
    art = tosaic.compile(net, (x,), target="TOSA-1.0+FP")
    assert not art.report.refused
    with torch.no_grad():
        torch.testing.assert_close(art.run(x), net(x), rtol=1e-4, atol=1e-5)
    assert not tosaic.explain(net, (x,), target="TOSA-1.0+FP").refused


@pytest.mark.parametrize("name", NETWORKS)
def test_in_int8_nothing_stays_in_pytorch(name: str) -> None:
    net, data = NETWORKS[name].eval(), inputs(24)
    art = tosaic.compile(net, data[0], target="TOSA-1.0+INT", calibration=data)
    assert not art.report.refused
    (x,) = inputs(1, seed=1)[0]
    quant = art.graph.inputs[0].quant
    levels = (torch.round(x / quant.scale) + quant.zero_point).clamp(-128, 127).to(torch.int8)
    (ours,), (theirs,) = (
        run([levels.numpy()]) for run in (
            lambda given: tosaic.load(art.bytes).run(*given),
            lambda given: run_reference(art.bytes, given),
        )
    )  # fmt: skip
    assert (ours == theirs).all()
    assert len(set(ours.reshape(-1).tolist())) > 10
    with torch.no_grad():
        real = net(x)
    assert float((art.run(x) - real).square().mean() / real.square().mean()) < 0.01


def test_quantize_takes_files_and_decomposed_programs(tmp_path: Path) -> None:
    net, data = nn.Sequential(nn.Linear(6, 6), nn.GELU()).eval(), inputs(4)
    exported = torch.export.export(net, data[0])
    torch.export.save(exported, tmp_path / "net.pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own
        decomposed = exported.run_decompositions()
    forms: list[Any] = [net, tmp_path / "net.pt2", decomposed]
    results = [tosaic.quantize(form, data[0], calibration=data)(*data[1]) for form in forms]
    assert torch.equal(results[0], results[1])
    torch.testing.assert_close(results[2], results[0], rtol=0, atol=0.05)


def test_quantize_keeps_what_a_program_changes() -> None:
    net, data = Counting().eval(), inputs(6)
    start = net.mean.clone()
    program = tosaic.quantize(net, data[0], calibration=data)
    art = tosaic.compile(program, data[0])
    got = [art.run(*each) for each in data[:3]]
    assert torch.equal(net.mean, start)
    with torch.no_grad():
        real = [net(*each) for each in data[:3]]
    for ours, theirs in zip(got, real, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0.05)
    assert not torch.allclose(real[0], real[1], atol=0.1)


def test_parts_read_operands_that_lie_in_any_order() -> None:
    """torch.inner is a view and a product; its operand lies in memory as the mean leaves it."""

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.square().mean(-2, keepdim=True).add(1e-3).rsqrt() * x
            return torch.inner(y, y)

    net, data = Inner(), inputs(2)
    art = tosaic.compile(net, data[0], target="TOSA-1.0+INT", calibration=data)
    assert not art.report.refused
    torch.testing.assert_close(art.run(*data[0]), net(*data[0]), rtol=0, atol=0.5)

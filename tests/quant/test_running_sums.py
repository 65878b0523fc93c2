"""What transformers add to keeps 16 bits from layer to layer, on every target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.reference import run_reference
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.quant import flow
from tosaic.spec import dtypes as d

WIDTH, DEPTH = 32, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Deep(nn.Module):
    """Norms first, as in ViT; ``after`` the sums, as in BERT; ``far`` has one large element."""

    def __init__(self, after: bool = False, far: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.last, self.after, self.far = nn.LayerNorm(WIDTH), after, far
        if far:
            self.last.weight.data[5] = 0.1  # or the result would be of few levels
        for block in self.blocks:
            assert isinstance(block, Block)
            block.down.weight.data *= 2

    def forward(self, x: Tensor) -> Tensor:
        if self.far:
            x = x + self.far * (torch.arange(WIDTH) == 5)
        for block in self.blocks:
            x = block(x)
            x = block.norm(x) if self.after else x
        return self.last(x)  # type: ignore[no-any-return]


def inputs(seed: int) -> tuple[Tensor]:
    return (torch.randn(1, 10, WIDTH, generator=torch.Generator().manual_seed(seed)),)


def compiled(model: nn.Module, target: str) -> tosaic.Artifact:
    data = [inputs(seed) for seed in range(8)]
    return tosaic.compile(model, inputs(0), target=target, calibration=data)


def decibels(made: tosaic.Artifact, model: nn.Module) -> float:
    judged = [inputs(seed) for seed in range(100, 116)]
    with torch.no_grad():
        real = torch.cat([model(*each) for each in judged])
    got = torch.cat([made.run(*each) for each in judged])
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


def gain(model: nn.Module, target: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Decibels that the marks of sums are worth."""
    ours = decibels(compiled(model, target), model)
    monkeypatch.setattr(flow, "mark_residuals", lambda *_: None)
    return ours - decibels(compiled(model, target), model)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "TOSA-1.0+INT+int16"])
def test_roundings_of_a_running_sum_do_not_add_up(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gain(Deep().eval(), target, monkeypatch) > 1.5


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "TOSA-1.0+INT+int16"])
def test_a_norm_reads_all_bits_where_one_element_is_far(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gain(Deep(far=200.0).eval(), target, monkeypatch) > 4


def test_sums_that_a_norm_ends_have_8_bits() -> None:
    model = tosaic.quantize(Deep(after=True).eval(), inputs(0), calibration=[inputs(0)])
    kinds = {n.args[5] for n in model.graph.nodes if "quantize_per_tensor" in str(n.target)}
    assert kinds == {torch.int8}


def test_others_than_sums_and_norms_read_8_bits() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.deep, self.head = Deep(), nn.Linear(WIDTH, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            x = self.deep.blocks[0](x)
            y = self.deep.blocks[1](x)
            return self.head(x), self.deep.last(y)

    made = compiled(Reads().eval(), "TOSA-1.0+INT")
    assert not made.report.refused
    layers = [op for op in made.partition.graphs[0].ops if op.name == "CONV2D"]
    assert layers
    assert all(op.ins[0].dtype is d.I8 for op in layers)


@pytest.mark.parametrize("far", [0.0, 200.0])
def test_running_sums_are_exact(far: float) -> None:
    made = compiled(Deep(far=far).eval(), "TOSA-1.0+INT")
    (graph,) = made.partition.graphs
    x = np.random.default_rng(0).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
    (ours,) = Model(graph).run(x)
    (theirs,) = run_reference(flatbuffer.write(graph), [x])
    assert len(np.unique(ours)) > 60
    assert np.array_equal(ours, theirs)

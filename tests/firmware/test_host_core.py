"""Calls that an NPU refuses run in C on the core beside it, in one artifact and one image."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from firmware.images import check, needs_qemu
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput, Unsupported
from tosaic.pipeline.artifact import Artifact

TARGET = "ethos-u55-128+cortex-m55"


class Branching(nn.Module):
    """Two layers with a branch between them, which an Ethos-U55 has not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        branched = torch.cond(y.sum() > 4.0, lambda v: v * 2, lambda v: v - 1, (y,))
        return self.last(branched)


class Both(nn.Module):
    """A side path of the host that one path of the NPU needs, and one that needs the NPU."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        early = torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
        made = self.one(x)
        late = torch.cond(made.sum() > 0, lambda v: v * 2, lambda v: v - 1, (made,))
        return self.two(early), late


def _branching(net: nn.Module, size: int) -> tuple[Artifact, list[tuple[Tensor]]]:
    torch.manual_seed(0)
    data = [(torch.randn(1, size),) for _ in range(8)]
    return tosaic.compile(net.eval(), data[0], target=TARGET, calibration=data), data


def _sides(art: Artifact) -> list[str]:
    return [p.host.name if p.host else "npu" for p in art.partition.pieces if p.graph is not None]


def test_a_branch_runs_in_c_between_two_graphs_of_the_npu() -> None:
    art, data = _branching(Branching(), 16)
    assert _sides(art) == ["npu", "cortex-m55", "npu"]
    assert not art.partition.refused
    takes = {bool(art.trace(*each)[art.partition.pieces[2].inputs[0]].item()) for each in data}
    assert takes == {False, True}
    for each in data:
        assert torch.equal(art.run(*each), art.run(*each, engine="tosa"))


def test_no_group_waits_for_another_of_its_level() -> None:
    art, data = _branching(Both(), 8)
    assert not art.partition.refused
    for each in data:
        for one, other in zip(art.run(*each), art.run(*each, engine="tosa")):
            assert torch.equal(one, other)


def test_the_report_says_where_each_graph_runs() -> None:
    art, _ = _branching(Branching(), 16)
    assert [d.place for d in art.report.delegates] == ["the device", "cortex-m55", "the device"]
    npu = [
        d.estimate.cycles for d in art.report.delegates if d.estimate and d.place != "cortex-m55"
    ]
    assert art.report.cycles == sum(npu)
    assert "Graph 1 on cortex-m55" in str(art.report)


@needs_qemu
def test_the_report_counts_the_instructions_of_a_branch() -> None:
    art, _ = _branching(Branching(), 16)
    branch = art.report.delegates[1].estimate
    assert branch is not None
    assert branch.unit == "instructions"
    assert branch.cycles > 0


def test_files_that_cannot_hold_two_processors_say_so(tmp_path: Path) -> None:
    art, _ = _branching(Branching(), 16)
    with pytest.raises(Unsupported, match="tosaic firmware makes an image of it"):
        art.save(tmp_path / "net.pte")
    with pytest.raises(InvalidInput, match="is for another processor"):
        art.save(tmp_path / "net.tosa")


def test_what_neither_takes_stays_in_pytorch_with_its_reason() -> None:
    class Determinant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.linalg.det(torch.relu(x).reshape(1, 4, 4)) + x

    data = [(torch.randn(1, 16),) for _ in range(4)]
    art = tosaic.compile(Determinant(), data[0], target=TARGET, calibration=data)
    assert art.partition.refused
    assert torch.equal(art.run(*data[0]), art.run(*data[0], engine="tosa"))


@pytest.mark.parametrize("name", ["ethos-u55-128+cortex-m99", "cortex-m55+TOSA-1.0+INT"])
def test_a_host_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        tosaic.compile(nn.ReLU(), (torch.zeros(1, 4),), target=name)


@needs_qemu
def test_an_image_runs_branches_in_c_beside_the_npu() -> None:
    art, data = _branching(Branching(), 16)
    check({"net": art}, {"net": data})


@needs_qemu
def test_an_image_runs_attention_of_16_bits_on_the_npu() -> None:
    net, x, data = example("encoder")
    art = tosaic.compile(net, x, target=TARGET, scheme="a16w8", calibration=data)
    assert _sides(art) == ["npu"]
    check({"net": art}, {"net": data[:1]})

"""Faults put into compiled streams are all found by what runs when a program is compiled."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

from npu.check_faults import (
    FAULTS,
    MACHINES,
    Fault,
    compile_net,
    compiled,
    finders,
    is_found,
)
from npu.edit import edited


def test_there_are_fifty_faults_and_more_on_every_product() -> None:
    assert len(FAULTS) >= 50
    assert {fault.machine for fault in FAULTS} == set(MACHINES)
    assert len({str(fault) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_stream_itself_passes_every_check(machine: str) -> None:
    given = compiled(machine)
    assert not is_found(given, given.made)
    assert not finders(given, given.made)
    assert [told.split(":")[0] for told in given.made.checks] == ["dataflow", "arithmetic"]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_in_a_stream_is_found(fault: Fault) -> None:
    given = compiled(fault.machine)
    found = is_found(given, given.broken(fault.change(given)))
    assert found.startswith("Vela compiles the graph wrongly: ")


class Rare(nn.Module):
    """Two values that are zero unless a picture is bright all over, as the third one is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ways = nn.ModuleList(nn.Linear(3, 16) for _ in range(2))
        self.ends = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        for way in self.ways:
            nn.init.uniform_(way.weight, 0.5, 1.5)  # type: ignore[arg-type]
            nn.init.constant_(way.bias, -1.5)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3))
        one, two = (end(torch.relu(way(mean))) for way, end in zip(self.ways, self.ends))
        return one + two


@pytest.mark.parametrize("machine", MACHINES)
def test_a_stale_read_that_the_data_hide_is_found_by_the_dataflow(machine: str) -> None:
    made = torch.Generator().manual_seed(1)
    noise = [torch.randn(1, 3, 24, 24, generator=made).clamp(-1, 1) for _ in range(2)]
    given = compile_net(Rare(), [*noise, torch.ones(1, 3, 24, 24)], machine)
    reads = [given.setting("IFM_BASE0", c) for c in given.operations("CONV")]
    values = [c.value for c in reads]
    stale = []
    for command, value in itertools.product(reads, set(values)):
        if value != command.value:
            broken = given.broken(edited(given.result, command, value=value))
            if finders(given, broken) == ("dataflow",):
                stale.append(is_found(given, broken))
    assert stale
    assert all("was last written by" in told for told in stale)

"""A memory plan in which tensors that are needed together overlap is found, whatever the data."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.errors import ToolFailed
from tosaic.targets.cortexm.dataflow import TOLD, check_dataflow
from tosaic.targets.cortexm.delegate import Network


class Net(nn.Module):
    """Two ways through layers, a pool, a softmax and a sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.deep = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = x + torch.sigmoid(self.deep(x))
        return self.last(nn.functional.max_pool2d(y, 2).mean((2, 3))).softmax(-1)


def _network(memory: str) -> Network:
    x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    art = tosaic.compile(Net().eval(), (x,), target="c", calibration=[(x,)], memory=memory)
    assert not art.report.refused
    (made,) = art.delegates
    assert isinstance(made, Network)
    return made


@pytest.mark.parametrize("memory", ["fast", "small"])
def test_tensors_that_live_together_and_overlap_are_found(memory: str) -> None:
    made = _network(memory)
    assert made.checks == [TOLD]
    moved = 0
    for one, other in permutations(made.plan.storages, 2):
        if one.end <= other.start or other.end <= one.start:
            continue  # not needed together but where one is made of the other
        kept, one.offset = one.offset, other.offset
        with pytest.raises(ToolFailed, match="the memory plan is wrong"):
            check_dataflow(made.program, made.plan)
        one.offset, moved = kept, moved + 1
    check_dataflow(made.program, made.plan)
    assert moved >= 2


def test_a_tensor_outside_of_the_arena_is_found() -> None:
    made = _network("fast")
    last = max(made.plan.storages, key=lambda s: s.offset + s.size)
    last.offset += 4
    with pytest.raises(ToolFailed, match="outside of the arena"):
        check_dataflow(made.program, made.plan)

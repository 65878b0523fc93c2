"""From stored ranges every processor gives the same bytes; `make everywhere` asks the whole zoo."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import fx

import zoo
from judges import everywhere
from tosaic.front import torchapi

NAMES, TARGETS = ["ds_cnn"], everywhere.TARGETS[:2] + everywhere.TARGETS[3:4]


def test_instruction_sets_and_threads_do_not_change_a_byte(tmp_path: Path) -> None:
    for name in NAMES:
        if package := zoo.missing(name):
            pytest.skip(f"{package} is not installed; `make install` has it")
        everywhere.prepare(name, tmp_path)
    here = {k: v for n in NAMES for k, v in everywhere.hashes(n, tmp_path, TARGETS).items()}
    assert len(set(here.values())) == len(NAMES) * len(TARGETS)
    for settings in (everywhere.SETTINGS[0], everywhere.SETTINGS[-1]):
        assert everywhere.elsewhere(NAMES, tmp_path, settings, TARGETS) == here


def test_constants_are_computed_in_doubles_and_keep_their_type() -> None:
    graph = fx.Graph()
    x = graph.create_node("get_attr", "x")
    total = graph.call_function(torch.ops.aten.sum.default, (x,))
    steps = graph.call_function(
        torch.ops.aten.linspace.default, (0, 1, 7), {"dtype": torch.float32}
    )
    counts = graph.call_function(torch.ops.aten.argmax.default, (x,))
    values = torch.tensor([1.0, 2.0**-24] + [2.0**-24] * 6)
    made = {n: torchapi.computed(n, {x: values}) for n in (total, steps, counts)}
    assert made[total] == 1 + 2.0**-21  # in float32, one by one, it would be 1
    assert [made[n].dtype for n in made] == [torch.float32, torch.float32, torch.int64]
    assert torch.equal(made[steps], torch.linspace(0, 1, 7, dtype=torch.float64).float())
    double = {x: values.double()}
    assert torchapi.computed(total, double).dtype is torch.float64

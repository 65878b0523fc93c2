"""Odd modules (judges/strange) behave: each here on one target, and `make strange` on all four."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import tosaic
from judges.strange.__main__ import CASES, TARGETS, trial

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("name", "target"), [(name, TARGETS[n % len(TARGETS)]) for n, name in enumerate(CASES)]
)
def test_an_odd_module_compiles_or_is_refused_with_its_reason(name: str, target: str) -> None:
    if name.startswith("HF"):
        pytest.importorskip("transformers")
    pytest.importorskip("executorch")
    good, told = trial(name, target)
    assert good, told


def test_a_scripted_module_is_compiled_and_left_as_it_was() -> None:
    net = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval())
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    art = tosaic.compile(net, (x,), target="TOSA-1.0+FP")
    assert not art.report.refused
    torch.testing.assert_close(art.run(x), net(x))
    whole = nn.Sequential(net, nn.Linear(3, 2)).eval()
    tosaic.compile(whole, (x,), target="TOSA-1.0+FP")
    assert whole[0] is net


_RECURRENT = """
import sys, torch, tosaic
net = torch.nn.GRU(4, 6, bidirectional=True, batch_first=True).eval()
x = (torch.randn(1, 3, 4),)
tosaic.compile(net, x, target="TOSA-1.0+INT+int16", calibration=[x])
print([name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules])
"""


def test_a_recurrent_layer_is_unrolled_without_loading_a_compiler_of_torch() -> None:
    told = subprocess.run([sys.executable, "-c", _RECURRENT], capture_output=True, text=True)
    assert told.stdout.strip() == "[]", told.stderr


@dataclass
class Found:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: torch.Tensor | None = None
    states: tuple[torch.Tensor, ...] = ()


class Finder(nn.Module):
    def forward(self, x):
        by_name: dict[str, torch.Tensor] = defaultdict(list)  # type: ignore[arg-type]
        by_name["mean"] = x.mean(-1)
        return Found(x + 1, hidden=x * 2, states=(x - 1, x - 2)), by_name


def test_outputs_have_the_names_of_fields_and_keys() -> None:
    x = (torch.randn(1, 4),)
    art = tosaic.compile(Finder(), x, target="TOSA-1.0+FP")
    assert [end.name for end in art.boundary.outputs] == [
        "logits", "hidden", "states_0", "states_1", "mean",
    ]  # fmt: skip
    found, by_name = art.run(*x)
    assert found.loss is None
    torch.testing.assert_close(found.states[1], x[0] - 2)
    torch.testing.assert_close(by_name["mean"], x[0].mean(-1))


class Optional(nn.Module):
    def forward(self, x, mask=None, scale: float = 1.0):
        return x * scale if mask is None else x * mask


def test_an_argument_that_is_no_tensor_need_not_be_named() -> None:
    example = {"x": torch.randn(2, 4), "scale": 2.0}
    art = tosaic.compile(Optional(), example, target="TOSA-1.0+INT", calibration=[example])
    right = Optional()(**example)
    assert (art.run(**example) - right).abs().max() < 0.05
    assert torch.equal(art.run(x=example["x"]), art.run(**example))
    with pytest.raises(tosaic.InvalidInput, match="was 2.0 at export and is part of the program"):
        art.run(x=example["x"], scale=3.0)

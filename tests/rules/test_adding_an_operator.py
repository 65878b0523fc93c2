"""The worked example of CONTRIBUTING: one file with one rule is all that an operator takes."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.samples import check_float, check_integers
from tosaic.front.registry import RULES
from tosaic.lowering.samples import cases
from tosaic.pipeline.op_support import columns_for, support
from tosaic.spec.dtypes import I8, I16
from tosaic.spec.env import Env

ROOT = Path(__file__).parents[2]
NAME = "aten.deg2rad.default"


class Angles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.deg2rad(self.layer(x)))


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of the example, and a registry that does not know its operator."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"as `src/tosaic/rules/angle.py`:\n\n```python\n(.*?)```", text, re.S)
    file = tmp_path / "angle.py"
    file.write_text(block, encoding="utf-8")
    before = dict(RULES)
    RULES.pop(NAME, None)
    yield file
    RULES.clear()
    RULES.update(before)


def add(file: Path) -> None:
    spec = importlib.util.spec_from_file_location("tosaic.rules.angle", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "tosaic.rules.angle" not in sys.modules


def taken(target: str, scheme: str | None = None) -> list[str]:
    """The operators that are compiled, of a model that uses the new one."""
    model, x = Angles().eval(), torch.randn(1, 2, 5, 5) * 90
    calls = tosaic.explain(model, (x,), target=target, scheme=scheme).calls
    return [call.op for call in calls if call.compiled]


def test_one_file_adds_an_operator_everywhere(example: Path) -> None:
    assert NAME not in taken("TOSA-1.0+FP") + taken("TOSA-1.0+INT")
    assert NAME not in {row.op for row in support(())}
    add(example)
    assert NAME in taken("TOSA-1.0+FP")
    assert NAME in taken("TOSA-1.0+INT")
    assert NAME in taken("TOSA-1.0+INT+int16", "a16w8")
    (row,) = [row for row in support(columns_for(None)[:3]) if row.op == NAME]
    assert [str(answer) for answer in row.answers] == ["yes", "yes", "yes"]


def test_its_samples_are_tests(example: Path) -> None:
    add(example)
    (case,) = [case for case in cases() if case.target == NAME]
    check_float(case, Env.parse("TOSA-1.0+FP"))
    check_integers(case, Env.parse("TOSA-1.0+INT"), I8)
    check_integers(case, Env.parse("TOSA-1.0+INT+int16"), I16)


def test_a_model_that_uses_it_runs_as_compiled(example: Path) -> None:
    add(example)
    torch.manual_seed(0)
    model, x = Angles().eval(), torch.randn(1, 2, 5, 5) * 90
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        art = tosaic.compile(model, (x,))
    assert not art.report.refused
    real = model(x).detach()
    assert (art.run(x) - real).abs().max() < 0.02 * real.abs().max()

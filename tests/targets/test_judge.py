"""Vela as the judge of forms: no form makes a network slower than it is without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest

from judges.improved import Case, Random, conv
from tosaic.errors import ToolFailed
from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8
from tosaic.targets.ethosu import judge as judging
from tosaic.targets.ethosu.judge import judge
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig, VelaLost, VelaResult, run_many


def cropped(b: Builder, random: Random) -> Value:
    """The middle rows of an image, then a convolution: a SLICE in front of it."""
    x = b.input(I8, (1, 112, 96, 3))
    middle = b.SLICE(x, b.shape((0, 8, 0, 0)), b.shape((1, 95, 96, 3)))
    return conv(b, random, middle, 16, (3, 3), (2, 2), (1, 1, 1, 0))


def unpadded(b: Builder, random: Random) -> Value:
    """A convolution that leaves the last row out."""
    x = b.input(I8, (1, 64, 96, 3))
    whole = b.SLICE(x, b.shape((0, 0, 0, 0)), b.shape((1, 63, 96, 3)))
    return conv(b, random, whole, 16, (3, 3), (2, 2), (0, 0, 1, 0))


def cycles(name: str, case: Case, forms: bool) -> int:
    target, random = ETHOS_U[name], np.random.default_rng(0)
    b = Builder(target.env, Graph("case"))
    b.output(case(b, random))
    made = target.improve(b.graph, forms)
    (found,) = judge(VelaConfig(name), target.env, [made])
    assert found is not None
    return found.cycles


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("case", [cropped, unpadded])
def test_a_convolution_behind_a_slice_is_no_slower_by_forms(case: Case, name: str) -> None:
    assert cycles(name, case, True) <= cycles(name, case, False)


@pytest.mark.parametrize("seed", [0, 1, 5, 16, 78])
def test_a_seeded_network_is_no_slower_by_forms(seed: int) -> None:
    """A crop, a pad, slices, attention; and one whose output is given by what is undone."""
    found = run_path(str(Path(__file__).parents[2] / "benchmarks" / "forms.py"))["figures"]
    for name, now, without in found([seed], ["ethos-u55-128", "ethos-u85-256"]):
        assert 0 < now <= 1.01 * without, name


def test_without_an_answer_of_vela_no_form_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost worker leaves the graph as it is without forms, the same everywhere."""
    lost = VelaLost("ends", "ends", is_slow=False)
    monkeypatch.setattr(judging, "run_many", lambda files, config: [lost] * len(files))
    monkeypatch.setattr(judging, "_KNOWN", {})
    target = ETHOS_U["ethos-u85-256"]
    made = []
    for forms in (True, False):
        b = Builder(target.env, Graph("case"))
        x = b.TRANSPOSE(b.input(I8, (1, 3, 64, 64)), perms=(0, 2, 3, 1))
        b.output(conv(b, np.random.default_rng(0), x, 16, (3, 3), (1, 1)))
        made.append(write(target.improve(b.graph, forms)))
    assert made[0] == made[1]


def test_a_graph_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(files: Sequence[bytes], config: VelaConfig) -> list[VelaResult | ToolFailed]:
        asked.append(len(files))
        return run_many(files, config)

    monkeypatch.setattr(judging, "run_many", counted)
    monkeypatch.setattr(judging, "_KNOWN", {})
    first, second = (cycles("ethos-u55-128", cropped, True) for _ in range(2))
    assert first == second
    count = len(asked) // 2
    assert sum(asked[:count]) > 0 == sum(asked[count:])

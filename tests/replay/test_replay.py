"""What is emitted for a part of the cases is what was kept; ``make replay`` compares all."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest

from replay import kept
from replay.cases import CASES, replayed
from replay.ranges import coded, decoded
from replay.rows import Row
from tosaic.rewrite import match

OLD, RANGES = kept.load_rows(), kept.load_ranges()
KEPT = {key.partition(",")[0] for key in OLD}


def part() -> list[str]:
    """Two of the zoo, networks of most kinds of blocks, every ninth graph."""
    nets = [name for name in CASES if name.startswith("net/")]
    graphs = [name for name in CASES if name.startswith(("form/", "rewrite/", "random/"))]
    chosen = ["zoo/ds_cnn", "zoo/early_exit", *nets[::13], *graphs[::9]]
    return [name for name in chosen if name in KEPT]


def rows(*names: str) -> dict[str, Row]:
    """What cases of those names become."""
    return {k: row for name in names for k, row in replayed(name, RANGES.get(name, ""))[1].items()}


@pytest.mark.parametrize("name", part())
def test_the_compiler_emits_what_it_did(name: str) -> None:
    new = rows(name)
    assert not kept.differences({k: row for k, row in OLD.items() if k in new}, new), (
        f"`make replay ARGS={name}` tells more; with WRITE=1 it keeps what is emitted now"
    )


def test_another_instruction_set_and_more_threads_emit_it_too() -> None:
    names = ("net/12", "zoo/ds_cnn", "form/stem/0", "rule/gelu.default")
    settings = {
        "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "2",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }  # fmt: skip
    run = subprocess.run(
        [sys.executable, "-m", "replay", "--jobs", "1", *names],
        env={**os.environ, **settings}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


FORMS = ("form/stem/0", "form/shuffled/0", "form/averaged/0")


def test_a_form_that_is_not_taken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    old = rows(*FORMS)
    monkeypatch.setattr(match, "FORMS", {})
    assert {"other bytes", "slower"} <= kept.differences(old, rows(*FORMS)).keys()


def test_a_rewrite_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "rewrite/joined_values_are_joined_once"
    old = rows(name)
    monkeypatch.setitem(match.REWRITES, "CONCAT", [])
    assert "other bytes" in kept.differences(old, rows(name))


def test_costs_that_are_wrong_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    old = rows(*FORMS)
    monkeypatch.setattr(match, "MARGIN", 0.05)
    assert "slower" in kept.differences(old, rows(*FORMS))


def test_cases_are_grouped_by_what_became_of_them() -> None:
    old = {f"{n},ethos-u55-128,int8": Row("a", 1000, 100, 10, 0) for n in "abcdf"}
    new = {
        "a,ethos-u55-128,int8": Row("a", 1000, 100, 10, 0),
        "b,ethos-u55-128,int8": Row("b", 2000, 50, 10, 0),
        "c,ethos-u55-128,int8": Row("b", 500, 100, 20, 1),
        "e,ethos-u55-128,int8": Row("a"),
        "f,ethos-u55-128,int8": Row("InvalidGraph"),
    }
    found = {group: [key[0] for key, *_ in entries]
             for group, entries in kept.differences(old, new).items()}  # fmt: skip
    assert found == {
        "other bytes": ["b", "c"], "slower": ["b"], "faster": ["c"], "smaller in SRAM": ["b"],
        "larger in flash": ["c"], "more left to PyTorch": ["c"], "new": ["e"], "gone": ["d"],
        "does not compile any more": ["f"],
    }  # fmt: skip
    lines = list(kept.told(old, new))
    assert "slower: 1 of 5" in lines
    assert "geometric mean of ethos-u55-128 int8 sram: x0.79370" in lines  # the cube root of 1/2


@pytest.mark.parametrize("size", [0.0, 1e-30, 2.0**-40, 0.1, 1.0, 3.99, 4.0, 1e5, 3e12])
def test_a_range_is_rounded_outward_by_less_than_a_sixteenth(size: float) -> None:
    code = coded(size)
    assert size <= decoded(code) <= max(size * 17 / 16, 2.0**-40 * (size > 0))
    assert coded(decoded(code)) == code
    assert math.frexp(decoded(code))[0] * 32 % 1 == 0

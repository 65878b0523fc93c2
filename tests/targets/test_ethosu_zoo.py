"""Whole networks on the Ethos-U targets: one delegate each, nothing left to the CPU."""

from __future__ import annotations

import pytest

from judges.npu import TARGETS, networks

# A mixture with much of everything; python -m judges.npu --zoo compiles all of them.
NAMES = ("ds_cnn", "deeplab")


@pytest.mark.parametrize("name", NAMES)
def test_a_network_runs_whole_on_the_npu(name: str) -> None:
    made = [art for _, art in networks([name], TARGETS)]
    for art in made:
        assert not art.report.refused, art.report
        (delegate,) = art.delegates
        assert delegate.result.performance.total_cycles > 10_000
    assert [art.target for art in made] == list(TARGETS)

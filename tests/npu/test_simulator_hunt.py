"""The first graphs of the hunt are computed rightly, with the workarounds and not without."""

from __future__ import annotations

import pytest

from npu import hunt
from tosaic.interp.minimize import Case
from tosaic.targets.ethosu.vela_workarounds import mend as ethosu_mend

COUNT = 10  # make hunt runs more


@pytest.mark.parametrize("target", hunt.TARGETS)
def test_random_graphs_are_bit_exact(target: str) -> None:
    found = [hunt.examine(target, seed) for seed in range(COUNT)]
    assert [str(fault) for fault in found if fault] == []


@pytest.mark.parametrize("target", hunt.TARGETS[::2])
def test_without_workarounds_some_graphs_are_wrong(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above shows what it claims."""
    monkeypatch.setattr(ethosu_mend, "apply_workarounds", lambda *_: None)
    monkeypatch.setattr(hunt, "reduce", lambda graph, data, judge: Case(graph, data, []))
    assert any(hunt.examine(target, seed) for seed in range(5 * COUNT))

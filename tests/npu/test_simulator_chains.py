"""Random chains of operators and moves are computed rightly, with the repairs and not without."""

from __future__ import annotations

import pytest

from npu import chains

COUNT = 40  # python -m npu.chains --count 2000 runs more


@pytest.mark.parametrize("machine", chains.MACHINES)
def test_random_chains_are_bit_exact(machine: str) -> None:
    assert [words for seed in range(COUNT) if (words := chains.problem(machine, seed))] == []


@pytest.mark.parametrize("machine", chains.MACHINES)
def test_without_repairs_some_chains_are_wrong(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above shows what it claims; each runs apart, for some end Vela."""
    monkeypatch.setattr(chains, "repair", lambda *given: None)
    assert any(chains.apart(machine, seed) for seed in range(5 * COUNT))

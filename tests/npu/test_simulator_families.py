"""The NPU simulator agrees with the reference model on every family of operators."""

from __future__ import annotations

import numpy as np
import pytest

from npu.configurations import ACCELERATORS, configuration
from npu.families import VacuousReference, check_spread, families
from npu.runner import failures
from tosaic.sim.ethosu import output

_GRAPHS = 4  # of each family on each kind of machine; `make simulate` runs more
_ALL = [(f.name, machine) for machine in ACCELERATORS for f in families(machine)]


@pytest.mark.parametrize(("name", "machine"), _ALL)
def test_simulation_is_bit_exact(name: str, machine: str) -> None:
    assert not failures(name, machine, _GRAPHS)


@pytest.mark.parametrize("machine", ACCELERATORS)
def test_maps_in_many_parts_are_bit_exact(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large maps are finished part by part; here that is each row or column of all maps."""
    monkeypatch.setattr(output, "_BLOCK", 1)
    for family in families(machine):
        assert not failures(family.name, machine, 1)


@pytest.mark.parametrize("machine", ACCELERATORS)
def test_there_are_25_families_and_the_run_has_300_graphs(machine: str) -> None:
    assert len(families(machine)) >= 25
    assert len(families(machine)) * _GRAPHS >= 250
    assert len(_ALL) * _GRAPHS >= 600


@pytest.mark.parametrize("machine", ACCELERATORS)
def test_configurations_rotate_through_all_accelerators_modes_and_goals(machine: str) -> None:
    seen = [configuration(machine, i) for i in range(60)]
    assert {c.accelerator for c in seen} == set(ACCELERATORS[machine])
    for accelerator in ACCELERATORS[machine]:
        own = [c for c in seen if c.accelerator == accelerator]
        assert len({c.memory_mode for c in own}) >= 2
        assert {c.flags[0] for c in own} == {"--optimise=Performance", "--optimise=Size"}


@pytest.mark.parametrize(
    "result",
    [
        np.zeros(100, np.int8),
        np.arange(100, dtype=np.int8) % 9,
        np.where(np.arange(200) % 3, np.arange(200) - 100, 127).astype(np.int8),
        np.zeros(50, np.bool_),
    ],
    ids=["constant", "nine values", "a third saturated", "never true"],
)
def test_a_vacuous_reference_is_refused(result: np.ndarray) -> None:
    with pytest.raises(VacuousReference):
        check_spread(result, 24)

"""Deliberate faults in the simulator are noticed by the graphs that the tests run."""

from __future__ import annotations

from functools import cache

import pytest

from npu.configurations import compile_stream
from npu.families import FAMILIES, case
from npu.faults import FAULTS
from npu.mutants import Mutant, imported
from npu.mutate import Prepared
from tosaic.sim import ethosu

_GRAPHS = 4  # as many of each family as test_simulator_families runs


@cache
def prepared(name: str) -> list[Prepared]:
    cases = [case(name, m, i) for m in FAMILIES[name].machines for i in range(_GRAPHS)]
    return [Prepared(c, compile_stream(c.data, c.configuration)) for c in cases]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_fault_is_noticed(fault: Mutant) -> None:
    with imported(fault) as package:
        assert any(p.noticed(package) for name in fault.caught_by for p in prepared(name))


def test_there_are_forty_faults_and_more() -> None:
    assert len({(f.module, f.old, f.new) for f in FAULTS}) >= 60


def test_the_right_simulator_is_back_after_a_fault() -> None:
    with imported(FAULTS[0]) as package:
        assert package is not ethosu
        assert any(p.noticed(package) for p in prepared(FAULTS[0].caught_by[0]))
    from tosaic.sim import ethosu as again

    assert again is ethosu
    assert not any(p.noticed(ethosu) for p in prepared(FAULTS[0].caught_by[0]))

"""A graph that Vela compiles wrongly is reduced and worked around before a call goes to the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from npu.configurations import Configuration
from npu.maker import Maker
from npu.wrong_forms import BOTH, FORMS, U85
from tosaic.errors import ToolFailed
from tosaic.interp.minimize import copy_graph, reduce
from tosaic.interp.model import Model
from tosaic.spec.dtypes import I8, I32
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig
from tosaic.targets.ethosu.vela_workarounds import mend as ethosu_mend
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler

NAMES = [
    "a padded convolution of a piece, in batches",
    "scales by channel of a CONCAT",
    "sums that saturate before a wider scale",
    "less than nothing, scaled",
]


@pytest.fixture
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing were known of Vela's faults."""
    monkeypatch.setattr(ethosu_mend, "apply_workarounds", lambda *_: None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("machine", BOTH, ids=["u55", "u85"])
@pytest.mark.usefixtures("without_rows")
def test_an_unknown_fault_is_worked_around(name: str, machine: Configuration) -> None:
    m = Maker((7,), machine is U85)
    graph = m.finish(FORMS[name].make(m))
    emit = ETHOS_U[f"ethos-{machine.accelerator}"].emit
    assert emit is not None
    with pytest.raises(ToolFailed, match="wrongly"):
        emit(copy_graph(graph), m.data, mends=False)
    wanted = Model(copy_graph(graph)).run(*m.data)
    made = emit(graph, m.data)
    assert any("repaired after a fault of Vela: a copy" in told for told in made.checks)
    assert made.graph is graph  # by which an artifact finds the stream of a piece
    found = made.simulation.run(*m.data)
    assert np.array_equal(found[0].reshape(wanted[0].shape), wanted[0])


@pytest.mark.usefixtures("without_rows")
def test_a_fault_is_reduced_to_the_operators_that_it_takes() -> None:
    m = Maker((7,), u85=False)
    before = m.b.ABS(m.b.NEGATE(m.input(I32, (1, 4, 5, 6)), *[m.zero(I32)] * 2))
    other = m.b.TABLE(m.input(I8, (1, 4, 5, 3)), m.const(I8, (256,)))
    joined = m.b.CONCAT(other, m.b.CLAMP(other, min_val=-99, max_val=99), axis=3)
    scaled = m.rescale(joined, m.scales(np.linspace(0.4, 0.9, 6), True), I8, (0, 0))
    after = m.b.TABLE(scaled, m.const(I8, (256,)))
    graph = m.finish(before, m.b.ABS(m.rescale(after, (1 << 30, 30), I32)))
    compiler = Compiler(VelaConfig("ethos-u55-128"), ETHOS_U["ethos-u55-128"].env)
    case = reduce(graph, m.data, compiler.judge)
    assert [op.name for op in case.graph.ops] == ["CONCAT", "RESCALE"]
    assert compiler.judge(case.fresh())
    assert [op in graph.ops for op in case.sources] == [True, True]
    right = Model(case.graph).run(*case.inputs)
    assert all(np.array_equal(a, b) for a, b in zip(case.expected, right, strict=True))


def test_a_reduction_keeps_to_its_budget() -> None:
    m = Maker((7,), u85=False)
    x = m.input(I32, (2, 3))
    for _ in range(40):
        x = m.b.ADD(x, m.b.const([[1]], I32))
    asked = 0

    def judge(case: object) -> str:
        nonlocal asked
        asked += 1
        return "wrong" if asked % 3 == 0 else ""

    reduce(m.finish(x), m.data, judge, budget=25)
    assert asked <= 25


def test_a_rare_workaround_is_taken_where_a_stream_is_wrong() -> None:
    maker, target = Maker((7,), u85=True), f"ethos-{U85.accelerator}"
    made = FORMS["a sum of two tensors with another shape"].make(maker)
    assert not isinstance(made, tuple)
    graph, emit = maker.finish(made), ETHOS_U[target].emit
    assert emit is not None
    Compiler(VelaConfig(target), ETHOS_U[target].env).work_around(graph)
    count = len(graph.ops)
    delegate = emit(graph, maker.data, mends=False)
    assert len(delegate.graph.ops) > count
    assert not any("repaired" in told for told in delegate.checks)

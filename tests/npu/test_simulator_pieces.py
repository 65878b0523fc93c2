"""Forms that Vela 5.2 compiles wrongly beside others, and what Tosaic emits instead.

Each form is wrong on the simulator as it stands, for Vela forgets which piece of a tensor is meant,
and right with the copies that ``tosaic.targets.ethosu.vela_workarounds`` puts in.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from judges.reference import run_reference
from npu.configurations import Configuration, compile_stream
from npu.convolutions import convolve
from npu.families import difference
from npu.maker import UNIT, Maker
from npu.runner import simulate
from npu.wrong_forms import BOTH, FORMS, U55, U85, narrowed, sliced, squared
from tosaic.errors import TosaicError
from tosaic.files import flatbuffer
from tosaic.files.text import print_graph
from tosaic.interp.minimize import copy_graph
from tosaic.ir.graph import Graph
from tosaic.spec.dtypes import I8, I16, I32
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela_workarounds import ROWS, apply_workarounds
from tosaic.targets.ethosu.vela_workarounds.rows import Operand, Row


def problem(graph: Graph, data: list[np.ndarray], where: Configuration) -> str:
    """How the simulated bytes differ from the reference model."""
    tosa = flatbuffer.write(graph)
    expected = run_reference(tosa, data)
    assert np.unique(expected[0]).size > 4, "a result of few values shows little"
    try:
        return difference(simulate(compile_stream(tosa, where), data, expected), expected)
    except TosaicError as wrong:  # the bytes are not even a correct program
        return f"{type(wrong).__name__}: {wrong}"


CASES = [(name, machine) for name, piece in FORMS.items() for machine in piece.machines]


@pytest.mark.parametrize(
    ("name", "machine"), CASES, ids=[f"{name}-{machine.accelerator}" for name, machine in CASES]
)
def test_a_form_that_vela_compiles_wrongly_is_right_with_a_copy(
    name: str, machine: Configuration
) -> None:
    maker = Maker((7,), machine is U85)
    made = FORMS[name].make(maker)
    graph = maker.finish(*(made if isinstance(made, tuple) else (made,)))
    assert problem(graph, maker.data, machine)
    count, env = len(graph.ops), ETHOS_U[f"ethos-{machine.accelerator}"].env
    apply_workarounds(graph, env, machine.accelerator, ROWS)
    assert len(graph.ops) <= count + 2
    told = print_graph(copy_graph(graph))
    apply_workarounds(graph, env, machine.accelerator, ROWS)
    assert print_graph(copy_graph(graph)) == told, "a second time changes nothing"
    assert not problem(graph, maker.data, machine)


@pytest.mark.parametrize("machine", BOTH, ids=["u55", "u85"])
def test_a_product_with_a_constant_and_a_long_shift_rounds_once(machine: Configuration) -> None:
    """Vela asks for double rounding beyond a shift of 31; a RESCALE is the same and rounds once."""
    m = Maker((7,), machine is U85)
    x = m.input(I32, (1, 6, 7, 30), m.rng.integers(-(1 << 31), 1 << 31, (1, 6, 7, 30)))
    factor = m.b.const([[[[1703183453]]]], I32)
    graph = m.finish(m.b.MUL(x, factor, m.zero(I8, 36)))
    assert problem(graph, m.data, machine)
    apply_workarounds(graph, ETHOS_U[f"ethos-{machine.accelerator}"].env, machine.accelerator)
    assert [op.name for op in graph.ops] == ["RESCALE"]
    assert not problem(graph, m.data, machine)


@pytest.mark.parametrize("machine", BOTH, ids=["u55", "u85"])
def test_a_tensor_that_an_operator_reads_twice_in_another_shape_has_a_reshape_for_each(
    machine: Configuration,
) -> None:
    m = Maker((7,), machine is U85)
    graph = m.finish(squared(m))
    assert problem(graph, m.data, machine)
    apply_workarounds(graph, ETHOS_U[f"ethos-{machine.accelerator}"].env, machine.accelerator)
    assert [op.name for op in graph.ops] == ["RESCALE", "RESHAPE", "RESHAPE", "MUL", "RESCALE"]
    assert not problem(graph, m.data, machine)


def test_the_copy_of_a_shift_is_right_before_a_wider_scale() -> None:
    """A RESCALE to more bits may not be fused with the copy, which saturates to fewer."""
    m = Maker((7,), u85=True)
    x = m.b.LOGICAL_LEFT_SHIFT(m.input(I8, (6, 90)), m.b.const([[3]], I8))
    graph = m.finish(m.rescale(x, (1 << 30, 26), I32))
    apply_workarounds(graph, ETHOS_U["ethos-u85-256"].env, "u85")
    assert len(graph.ops) == 3
    assert not problem(graph, m.data, U85)


def test_a_convolution_of_what_a_rescale_by_one_made_wider_is_copied() -> None:
    """Vela ends the process where it is not; so that is not tried here."""
    m = Maker((7,), u85=True)
    x, weight = m.rescale(m.input(I8, (1, 4, 6, 5)), UNIT, I16), m.draw(I8, (6, 2, 2, 5))
    acc = convolve(m, x, weight, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))
    graph = m.finish(m.settle(acc, I16, per_channel=False, rounding="SINGLE_ROUND"))
    apply_workarounds(graph, ETHOS_U["ethos-u85-256"].env, "u85")
    assert [op.name for op in graph.ops] == ["RESCALE", "CLAMP", "CONV2D", "RESCALE"]
    assert not problem(graph, m.data, U85)


@pytest.mark.parametrize("kind", ["i8", "i4"])
@pytest.mark.parametrize("name", ["CONV2D", "DEPTHWISE_CONV2D"])
@pytest.mark.parametrize("machine", BOTH, ids=["u55", "u85"])
def test_equal_weights_with_other_biases_are_written_otherwise(
    machine: Configuration, name: str, kind: str
) -> None:
    """Vela encodes them once for all three; a zero point and a row of zeros tell them apart."""
    m = Maker((7,), machine is U85)
    low, high = (-127, 127) if kind == "i8" else (-7, 7)
    numbers = m.rng.integers(low, high, (5, 2, 2, 4) if name == "CONV2D" else (2, 2, 4, 2),
                             endpoint=True)  # fmt: skip
    weight, zero, parts = m.b.const(numbers, kind), m.zero(I8), []
    bias_size = 5 if name == "CONV2D" else 8
    for bias in (-2000, 0, 2500):
        offsets = m.b.const(np.full(bias_size, bias), I32)
        sums = m.b.op(name, m.input(I8, (1, 5, 6, 4)), weight, offsets, zero, m.zero(weight.dtype),
                      pad=(0, 1, 0, 0), stride=(1, 1), dilation=(2, 1), acc_type=I32)  # fmt: skip
        parts.append(m.rescale(sums, (1 << 30, 37 if kind == "i8" else 34), I8))
    graph = m.finish(m.b.CONCAT(*parts, axis=1))
    assert problem(graph, m.data, machine)
    env, product = ETHOS_U[f"ethos-{machine.accelerator}"].env, machine.accelerator
    apply_workarounds(graph, env, product)
    assert not problem(graph, m.data, machine)


OPERANDS = [row for row in ROWS if isinstance(row, Operand)]


@pytest.mark.parametrize("row", OPERANDS, ids=[row.test for row in OPERANDS])
def test_without_its_row_a_form_is_wrong(row: Row) -> None:
    piece = FORMS[row.test]
    machine = piece.machines[-1]
    maker = Maker((7,), machine is U85)
    made = piece.make(maker)
    graph = maker.finish(*(made if isinstance(made, tuple) else (made,)))
    env = ETHOS_U[f"ethos-{machine.accelerator}"].env
    others = [other for other in ROWS if other is not row]
    apply_workarounds(graph, env, machine.accelerator, others)
    assert problem(graph, maker.data, machine), "the row is needless"


def test_every_row_says_what_it_is_about() -> None:
    here = Path(__file__).parent
    tests = [path.read_text() for path in (*here.glob("*.py"), *here.parent.glob("targets/*.py"))]
    for row in ROWS:
        assert row.fault.endswith(".")
        assert row.fault.count(". ") == 0
        assert row.vela == version("ethos-u-vela"), "does the fault remain in this Vela?"
        assert row.test in FORMS or any(f"def {row.test}(" in text for text in tests), row.test
    assert len({row.test for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("scale", [1.0, 2.0**19])
def test_a_piece_in_a_sum_costs_no_copy(scale: float) -> None:
    """A RESCALE that becomes part of a sum reads the piece itself."""
    m = Maker((7,), u85=False)
    least = scale if scale == 1 else scale * 0.7
    pairs = [(int(f / scale * (1 << 30)), 30 - int(np.log2(scale))) for f in (least, scale)]
    operands = (sliced(m), m.input(I8, (1, 6, 5, 4)))
    sums = m.b.ADD(*(m.rescale(x, p, I32) for x, p in zip(operands, pairs)))
    graph = m.finish(narrowed(m, sums))
    count = len(graph.ops)
    apply_workarounds(graph, ETHOS_U["ethos-u55-128"].env, "u55")
    assert len(graph.ops) == count
    assert not problem(graph, m.data, U55)


def test_weights_that_come_too_early_are_not_brought_beforehand() -> None:
    """Vela overwrites an input that a pool may still be reading, and does not wait for it."""
    m = Maker((7,), u85=False)
    x = m.b.CONCAT(m.input(I8, (2, 2, 7, 3)), m.input(I8, (2, 2, 2, 3)), axis=2)
    weights = np.zeros((2, 3, 3, 3), np.int8)
    weights[0] = np.array([[3, 1, 0], [0, 2, 2], [0, 0, 1]])[:, None]  # as a resize has them
    acc = convolve(m, x, weights, op="DEPTHWISE_CONV2D", pad=(0, 0, 0, 0), stride=(1, 2),
                   dilation=(1, 1))  # fmt: skip
    graph = m.finish(narrowed(m, acc))
    assert "before the operation that uses" in problem(graph, m.data, U55)
    emit = ETHOS_U["ethos-u55-128"].emit
    assert emit is not None
    expected = run_reference(flatbuffer.write(graph), m.data)
    assert not difference(simulate(emit(graph).result, m.data, expected), expected)

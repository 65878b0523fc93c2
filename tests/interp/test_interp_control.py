"""Variables keep what is written, loops and branches run what they choose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from judges.corner import reference
from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp.model import Model
from tosaic.ir import Builder, Graph
from tosaic.spec.dtypes import F32, I32, TensorType
from tosaic.spec.env import everything


def accumulator(initial: np.ndarray | None) -> Graph:
    """Adds its input to a variable and gives the variable's new value."""
    b = Builder(everything(level="none"))
    kind = TensorType(F32, (3,))
    given = b.input(F32, (3,), "x")
    start = {} if initial is None else {"initial_value": initial}
    b.op("VARIABLE", name="total", type=kind, **start)
    total = b.op("ADD", b.op("VARIABLE_READ", name="total", out=kind), given)
    b.op("VARIABLE_WRITE", total, name="total")
    b.output(b.op("VARIABLE_READ", name="total", out=kind, names=["result"]))
    return b.graph


def test_a_variable_keeps_its_value_from_run_to_run(tmp_path: Path) -> None:
    initial, step = np.float32([1, 2, 3]), np.float32([10, -20, 0.5])
    model = Model(accumulator(initial))
    state: np.ndarray | None = initial
    for _ in range(3):
        state = reference(accumulator(state), [step], tmp_path)
        (result,) = model.run(step)
        np.testing.assert_array_equal(result, state)
    assert state is not None
    assert not np.array_equal(state, initial)


def test_two_models_of_one_graph_share_no_variables() -> None:
    graph = accumulator(np.float32([0, 0, 0]))
    first, second = Model(graph), Model(graph)
    first.run(np.float32([1, 2, 3]))
    np.testing.assert_array_equal(second.run(np.float32([4, 5, 6]))[0], [4, 5, 6])


def test_a_variable_without_a_value_cannot_be_read() -> None:
    with pytest.raises(Unpredictable, match="variable total is read before"):
        Model(accumulator(None)).run(np.float32([1, 2, 3]))


def test_a_variable_is_nobody_elses_memory() -> None:
    """Not the caller's input, not a result that was given out, not the graph's initial value."""
    b = Builder(everything(level="none"))
    kind, initial = TensorType(F32, (3,)), np.float32([1, 2, 3])
    given = b.input(F32, (3,), "x")
    b.op("VARIABLE", name="last", type=kind, initial_value=initial)
    b.output(b.op("VARIABLE_READ", name="last", out=kind, names=["before"]))
    b.op("VARIABLE_WRITE", given, name="last")
    b.output(b.op("VARIABLE_READ", name="last", out=kind, names=["after"]))
    model = Model(b.graph)
    x = np.float32([4, 5, 6])
    for result in model.run(x):
        result[...] = -1
    x[...] = 9
    np.testing.assert_array_equal(model.run(x)[0], [4, 5, 6])
    np.testing.assert_array_equal(Model(b.graph).run(x)[0], [1, 2, 3])


def test_what_a_branch_leaves_undefined_names_the_operator_in_it() -> None:
    b = Builder(everything(level="none"))
    condition, x = b.input("bool", (), "condition"), b.input(I32, (2,), "x")
    regions = []
    for name in ("ADD", "MAXIMUM"):
        child = b.child(name)
        inner = child.input(I32, (2,), "inner")
        child.output(child.op(name, inner, inner, names=["twice"]))
        regions.append(child.graph)
    b.output(b.op("COND_IF", condition, x, regions=regions, names=["chosen"]))
    large = np.int32([1, 1 << 30])
    assert Model(b.graph).run(np.array(False), large)[0].tolist() == large.tolist()
    with pytest.raises(Unpredictable, match=r"^ADD: the sum overflows \(at ADD twice\)$"):
        Model(b.graph).run(np.array(True), large)


def collatz() -> Graph:
    """A loop with a branch inside: halves or triples n until it is 1, and counts the steps."""
    b = Builder(everything(level="none"))
    n, count = b.input(I32, (1,), "n"), b.const([0], I32, "zero")
    cond, body = b.child("cond"), b.child("body")
    m, _ = cond.input(I32, (1,), "m"), cond.input(I32, (1,), "c")
    cond.output(cond.GREATER(m, cond.const([1], I32, "one"), names=["more"]))
    m, c = body.input(I32, (1,), "m2"), body.input(I32, (1,), "c2")
    regions = []
    for name, odd in (("odd", True), ("even", False)):
        branch = body.child(name)
        k = branch.input(I32, (1,), f"k_{name}")
        if odd:
            shift = branch.const([0], "i8", "shift")
            tripled = branch.MUL(k, branch.const([3], I32, "three"), shift, names=["tripled"])
            branch.output(branch.ADD(tripled, branch.const([1], I32, "plus"), names=["grown"]))
        else:
            branch.output(branch.INTDIV(k, branch.const([2], I32, "two"), names=["half"]))
        regions.append(branch.graph)
    one = body.const([1], I32, "unit")
    is_odd = body.EQUAL(body.BITWISE_AND(m, one, names=["bit"]), one, names=["is_odd"])
    step = body.COND_IF(is_odd, m, regions=regions, names=["next"])
    body.output(step, body.ADD(c, one, names=["counted"]))
    regions = [cond.graph, body.graph]
    _, steps = b.WHILE_LOOP(n, count, regions=regions, names=["last", "steps"])
    b.output(steps)
    return b.graph


@pytest.mark.parametrize("start", [1, 2, 6, 7, 27])
def test_a_loop_with_branches_takes_as_many_steps_as_the_reference_model(
    start: int, tmp_path: Path
) -> None:
    graph = collatz()
    given = np.int32([start])
    expected = reference(graph, [given], tmp_path)
    assert expected is not None
    np.testing.assert_array_equal(Model(graph).run(given)[0], expected)


def test_custom_operators_are_refused_by_name() -> None:
    b = Builder(everything())
    x = b.input(F32, (2,), "x")
    attrs = {"operator_name": "twice", "domain_name": "my.domain", "implementation_attrs": b""}
    b.output(b.op("CUSTOM", x, out=[x.type], **attrs))
    with pytest.raises(Unsupported, match=r"my\.domain\.twice"):
        Model(b.graph)

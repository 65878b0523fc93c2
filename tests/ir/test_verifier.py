"""The verifier finds what is wrong with a whole graph, and says it in a sentence."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tosaic.errors import InvalidGraph
from tosaic.ir import Builder, Graph, Value, problems, verify
from tosaic.spec.dtypes import I8, I32, TensorType


def small() -> Builder:
    b = Builder("TOSA-1.0+INT+var+cf")
    x = b.input("i32", (2, 3), "x")
    y = b.ADD(x, b.const([[1, 2, 3]], "i32", "c"), names=["y"])
    b.output(b.SUB(y, x, names=["z"]))
    return b


def test_a_good_graph_has_no_problem() -> None:
    b = small()
    assert list(problems(b.graph, b.env)) == []


def swap(g: Graph) -> None:
    g.ops.reverse()


def retype(g: Graph) -> None:
    g.ops[0].outs[0].type = TensorType(I8, (2, 3))


def reshape(g: Graph) -> None:
    g.ops[1].outs[0].type = TensorType(I32, (3, 2))


def foreign_output(g: Graph) -> None:
    g.outputs.append(Value(TensorType(I32, (1,)), "ghost"))


def twice(g: Graph) -> None:
    g.ops.append(g.ops[0])


def input_twice(g: Graph) -> None:
    g.inputs.append(g.inputs[0])


def zero_dim(g: Graph) -> None:
    g.inputs.append(Value(TensorType(I32, (2, 0)), "empty"))


def deep(g: Graph) -> None:
    g.inputs.append(Value(TensorType(I32, (1,) * 7), "deep"))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (swap, "SUB reads y before it is computed"),
        (retype, "ADD has no row with t = i32|ADD: output is i8, where i32 is needed"),
        (reshape, r"SUB: output must have shape \[2, 3\], not \[3, 2\]"),
        (foreign_output, "output ghost is computed by no operator"),
        (twice, "y is the result of two operators"),
        (input_twice, "input x is listed twice"),
        (zero_dim, r"value empty has shape \[2, 0\]; every dimension must be 1 or more"),
        (deep, "value deep has rank 7; level 8K allows 6"),
    ],
)
def test_damage_is_found(damage: Callable[[Graph], None], sentence: str) -> None:
    b = small()
    damage(b.graph)
    with pytest.raises(InvalidGraph, match=sentence):
        verify(b.graph, b.env)


def test_a_constant_needs_the_row_of_its_type() -> None:
    b = Builder("TOSA-1.0+INT+int4")
    b.output(b.const([1, 2], "i4", "w"))
    verify(b.graph, b.env)
    with pytest.raises(InvalidGraph, match="constant w of i4 needs extension int4, which TOSA-1.0"):
        verify(b.graph, "TOSA-1.0+INT")


def test_variables_are_declared_once_and_before_use() -> None:
    b = Builder("TOSA-1.0+INT+var")
    kind = TensorType(I8, (2,))
    b.VARIABLE(name="state", type=kind)
    read = b.VARIABLE_READ(name="state", out=kind)
    b.VARIABLE_WRITE(read, name="state")
    b.output(read)
    verify(b.graph, b.env)
    declaration = b.graph.ops.pop(0)
    with pytest.raises(InvalidGraph, match="uses variable state, which is not declared before"):
        verify(b.graph, b.env)
    b.graph.ops[:0] = [declaration, declaration]
    with pytest.raises(InvalidGraph, match="variable state is declared twice"):
        verify(b.graph, b.env)


def test_nesting_is_limited_by_the_level() -> None:
    def nested(depth: int) -> Builder:
        b = Builder("TOSA-1.0+INT+cf")
        x, flag = b.input("i32", (1,)), b.input("bool", (1,))
        if depth == 0:
            b.output(b.ADD(x, x))
            return b
        inner = nested(depth - 1).graph
        b.output(b.COND_IF(flag, x, flag, regions=(inner, inner)))
        return b

    verify(nested(6).graph, "TOSA-1.0+INT+cf")
    with pytest.raises(InvalidGraph, match="COND_IF nests 7 deep; level 8K allows 6"):
        verify(nested(7).graph, "TOSA-1.0+INT+cf")
    verify(nested(7).graph, "TOSA-1.0+INT+cf+level-none")

"""The Builder emits, infers and checks in one step."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.errors import InvalidInput, Unsupported
from tosaic.ir import Builder, Loc, verify
from tosaic.spec.dtypes import F32, I8, I32, TensorType

CONV = {"pad": (1, 1, 1, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": "i32"}


def conv(b: Builder, **changes: object) -> object:
    x = b.input("i8", (1, 8, 8, 3), "x")
    weight = b.const(np.ones((4, 3, 3, 3)), "i8")
    bias, zero = b.const(np.zeros(4), "i32"), b.const([0], "i8")
    return b.CONV2D(x, weight, bias, zero, zero, **{**CONV, **changes})


def test_a_result_has_the_inferred_type() -> None:
    y = conv(Builder("TOSA-1.0+INT"))
    assert y.type == TensorType(I32, (1, 8, 8, 4))


def test_two_spellings_emit_the_same_operator() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (2, 3))
    assert b.ADD(x, x).type == b.op("ADD", x, x).type
    assert [op.name for op in b.graph.ops] == ["ADD", "ADD"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stride": (2, 2)}, "CONV2D: stride 2 leaves a remainder of 1 in H"),
        ({"stride": (0, 1)}, "CONV2D: stride 0 in H must be 1 or more"),
        ({"pad": (0, 0, 0, -1)}, "CONV2D: pad [0, 0, 0, -1] must not be negative"),
        ({"dilation": (9, 9)}, "CONV2D: the window is larger than the padded input in H"),
        ({"pad": (0, 0)}, "CONV2D: attribute pad must have 4 elements, not 2"),
        (
            {"acc_type": "i48"},
            "CONV2D has no row with in = i8, weight = i8, out = i32, acc = i48, in_zp = i8, "
            "weight_zp = i8; the nearest is (in, weight, out, acc, in_zp, weight_zp) = "
            "(i8, i8, i32, i32, i8, i8) with the INT profile",
        ),
        ({"groups": 2}, "CONV2D has no attribute groups"),
    ],
)
def test_a_refusal_says_why(changes: dict[str, object], sentence: str) -> None:
    b = Builder("TOSA-1.0+INT")
    with pytest.raises(Unsupported) as refusal:
        conv(b, **changes)
    assert str(refusal.value) == sentence
    assert not b.graph.ops


def test_a_refusal_names_what_the_environment_lacks() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("bf16", (2, 2))
    with pytest.raises(Unsupported, match="ADD with t = bf16 needs extension bf16, which"):
        b.ADD(x, x)
    y = b.input("i64", (2, 2))
    with pytest.raises(
        Unsupported, match=r"needs TOSA 1\.1 and extension int64, which TOSA-1\.0\+INT lacks"
    ):
        b.ADD(y, y)


def test_a_refusal_carries_the_place() -> None:
    b = Builder("TOSA-1.0+INT")
    b.loc = Loc("aten.add", "encoder.0", "model.py", 12)
    x = b.input("i8", (2,))
    with pytest.raises(Unsupported) as refusal:
        b.ADD(x, x)
    assert str(refusal.value).endswith("(at aten.add, encoder.0, model.py:12)")


def test_scratch_is_dropped_unless_committed() -> None:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i32", (4,))
    with b.scratch():
        b.ADD(x, x)
    assert not b.graph.ops
    with b.scratch() as trial:
        b.ADD(x, x)
        trial.commit()
    assert len(b.graph.ops) == 1

    def fails() -> None:
        with b.scratch():
            b.ADD(x, x)
            b.TABLE(x, x)

    with pytest.raises(Unsupported):
        fails()
    assert len(b.graph.ops) == 1


def test_a_dry_run_does_not_make_a_lazy_constant() -> None:
    b = Builder("TOSA-1.0+INT")
    made = []

    def weight() -> np.ndarray:
        made.append(1)
        return np.ones((4, 1, 1, 3))

    x = b.input("i8", (1, 8, 8, 3))
    lazy = b.const(weight, "i8", shape=(4, 1, 1, 3))
    zero = b.const([0], "i8")
    y = b.CONV2D(x, lazy, b.const([0], "i32"), zero, zero, **{**CONV, "pad": (0, 0, 0, 0)})
    b.output(y)
    verify(b.graph, b.env)
    assert not made
    assert lazy.const is not None
    assert lazy.const.array.dtype == np.int8
    assert made == [1]


def test_the_caller_settles_an_open_result_type() -> None:
    b = Builder("TOSA-1.0+FP")
    x = b.input("i8", (2,))
    assert b.CAST(x, out=F32).dtype is F32
    with pytest.raises(
        Unsupported, match="CAST with in = bool, out = i8 needs the INT profile, which"
    ):
        b.CAST(b.input("bool", (2,)), out=I8)


def test_a_constraint_of_the_target_refuses() -> None:
    b = Builder("TOSA-1.0+INT", constraints=[lambda op: "not here" if op.name == "ADD" else None])
    x = b.input("i32", (4,))
    b.SUB(x, x)
    with pytest.raises(Unsupported, match="ADD: not here"):
        b.ADD(x, x)
    assert [op.name for op in b.graph.ops] == ["SUB"]


def test_numbers_that_do_not_fit_are_refused() -> None:
    b = Builder("TOSA-1.0+INT")
    with pytest.raises(InvalidInput, match="values 0 to 200 do not fit i8"):
        b.const([0, 200], "i8")
    with pytest.raises(InvalidInput, match="values 0 to 200 do not fit i8"):
        b.const([0.0, 200.0], "i8")
    for wrong in (1.5, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="values that are not whole do not fit i8"):
            b.const([0.0, wrong], "i8")
    array = b.const([3.0, -4.0], "i8").const.array
    assert (array.dtype, array.tolist()) == (np.int8, [3, -4])


def test_shape_operators_are_known_at_once() -> None:
    b = Builder("TOSA-1.1+INT+shape")
    x = b.input("i32", (2, 6))
    rows = b.DIM(x, axis=0)
    columns = b.DIM(x, axis=1)
    flat = b.MUL_SHAPE(rows, columns)
    y = b.RESHAPE(x, flat)
    assert y.shape == (12,)
    b.output(y)
    verify(b.graph, b.env)


def test_a_region_gives_its_result_types() -> None:
    b = Builder("TOSA-1.0+INT+cf")
    x, flag = b.input("i32", (3,), "x"), b.input("bool", (1,), "flag")
    regions = []
    for name in ("ADD", "SUB"):
        child = b.child(name)
        a = child.input("i32", (3,))
        child.output(child.op(name, a, a))
        regions.append(child.graph)
    y = b.COND_IF(flag, x, regions=regions)
    assert y.type == x.type
    b.output(y)
    verify(b.graph, b.env)
    with pytest.raises(Unsupported, match="COND_IF needs extension cf, which TOSA-1.0"):
        Builder("TOSA-1.0+INT", b.graph).COND_IF(flag, x, regions=regions)


def test_an_operator_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidInput, match="TOSA has no operator 'SOFTMAX'"):
        Builder("TOSA-1.0+INT").op("SOFTMAX")

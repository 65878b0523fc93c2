"""Indices, writes, orders and whole quotients where samples of random numbers do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tosaic
from judges.rules import finish, run_both
from tosaic.errors import Unsupported
from tosaic.front.registry import RULES
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.spec.dtypes import I8
from tosaic.spec.env import Env

FLOAT, INT, BOTH = (Env.parse(f"TOSA-1.0+{p}") for p in ("FP", "INT", "INT+FP"))


def overload(name: str) -> Any:
    packet, which = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), which)


def lowered(b: Lowering, name: str, arguments: list[Any], **keywords: Any) -> Any:
    schema = overload(name)._schema
    named = {a.name: v for a, v in zip(schema.arguments, arguments)}
    rest = {
        a.name: a.default_value for a in schema.arguments[len(arguments) :] if a.has_default_value()
    }
    return RULES[f"aten.{name}"].lower(b, **{**rest, **named, **keywords})


def check(name: str, env: Env, *arguments: Any, result: int | None = None, **keywords: Any) -> None:
    """Tensors are inputs of the graph; the result is PyTorch's, from both judges."""
    b, arrays = Lowering(env), []

    def value(argument: Any) -> Any:
        if isinstance(argument, list):
            return [value(item) for item in argument]
        if not isinstance(argument, torch.Tensor):
            return argument
        kind = TYPES[argument.dtype]
        arrays.append(argument.numpy().astype(kind.array))
        return b.input(kind, argument.shape, f"x{len(arrays)}")

    made = lowered(b, name, [value(a) for a in arguments], **keywords)
    expected = overload(name)(*arguments, **keywords)
    if result is not None:
        made, expected = made[result], expected[result]
    ours, theirs = run_both(finish(b, made, env), arrays)
    np.testing.assert_array_equal(ours, expected.numpy())
    np.testing.assert_array_equal(theirs, expected.numpy())


TIES = torch.tensor([[2.0, -torch.inf, 2.0, 5.0, -torch.inf], [0.0, 0.0, 1.0, 1.0, 0.0]])


@pytest.mark.parametrize("largest", [True, False])
def test_topk_counts_equal_elements_once_each_infinities_too(largest: bool) -> None:
    expected = torch.sort(TIES, dim=-1, descending=largest, stable=True)
    for place, wanted in enumerate(expected):
        b = Lowering(FLOAT)
        pair = lowered(b, "topk.default", [b.input("f32", TIES.shape, "x"), 5, -1, largest])
        ours, theirs = run_both(finish(b, pair[place], FLOAT), [TIES.numpy()])
        np.testing.assert_array_equal(ours, wanted.numpy())
        np.testing.assert_array_equal(theirs, wanted.numpy())


@pytest.mark.parametrize("descending", [True, False])
def test_a_sort_is_stable(descending: bool) -> None:
    keywords = {"stable": True, "dim": -1, "descending": descending}
    check("sort.stable", FLOAT, TIES, result=1, **keywords)
    check("sort.stable", FLOAT, TIES, result=0, **keywords)


def test_topk_of_int8_takes_the_least_integer_for_a_value_like_others() -> None:
    b = Lowering(INT)
    x = b.with_quant(b.input(I8, (1, 4), "x"), Quant(0.5, 3))
    _, indices = lowered(b, "topk.default", [x, 4])
    given = np.array([[-128, 7, -128, -128]], np.int8)
    ours, theirs = run_both(finish(b, indices, INT), [given])
    assert ours.tolist() == theirs.tolist() == [[1, 0, 2, 3]]


GRID = torch.arange(-7, 8, dtype=torch.int32)
DIVISORS = torch.tensor([-5, -3, -1, 1, 2, 7], dtype=torch.int32).reshape(6, 1)


@pytest.mark.parametrize("env", [INT, FLOAT], ids=str)
@pytest.mark.parametrize("name", ["remainder.Tensor", "fmod.Tensor", "floor_divide.default"])
def test_whole_quotients_are_exact_for_all_signs(name: str, env: Env) -> None:
    check(name, env, GRID.repeat(6, 1), DIVISORS.expand(6, 15).contiguous())


def test_a_remainder_with_the_largest_divisors_does_not_overflow() -> None:
    most = 2**31 - 1
    x = torch.tensor([most, -most, 5, -5], dtype=torch.int32)
    y = torch.tensor([most, most, -most, most - 1], dtype=torch.int32)
    check("remainder.Tensor", INT, x, y)


@pytest.mark.parametrize("env", [INT, FLOAT], ids=str)
def test_a_right_shift_of_negative_numbers_rounds_down(env: Env) -> None:
    check("bitwise_right_shift.Tensor_Scalar", env, GRID, 2)
    check("bitwise_left_shift.Tensor", env, GRID, GRID.abs())


def test_bits_of_integers_and_numbers() -> None:
    for name in ("and", "or", "xor"):
        check(f"bitwise_{name}.Scalar", INT, GRID, 6)
        check(f"bitwise_{name}.Tensor", INT, GRID, GRID.flip(0).contiguous())


def test_a_running_sum_of_integers_is_exact() -> None:
    check("cumsum.default", INT, GRID * 1000003, 0)
    check("cumsum.default", INT, GRID > 2, 0)


def test_numbers_that_are_none_are_found() -> None:
    x = torch.tensor([0.0, torch.nan, torch.inf, -torch.inf, 1.0])
    for name in ("isnan", "isinf", "isfinite"):
        check(f"{name}.default", FLOAT, x)


def test_counts_add_up_where_indices_repeat() -> None:
    index = torch.tensor([[0, 2, 2, 2], [1, 1, 0, 1]])
    check("scatter_add.default", INT, torch.zeros(2, 3, dtype=torch.int32), 1, index,
          torch.arange(8, dtype=torch.int32).reshape(2, 4))  # fmt: skip


def test_a_number_is_written_where_computed_indices_repeat() -> None:
    check("scatter.value", FLOAT, torch.rand(2, 4), 1, torch.tensor([[1, 1, 3], [0, 0, 0]]), 9.0)


def test_masks_are_gathered() -> None:
    x = torch.tensor([[True, False, True], [False, False, True]])
    check("gather.default", INT, x, 1, torch.tensor([[2, 1], [0, 2]]))


MADE = [
    ("eye.default", (3,), {}),
    ("eye.m", (2, 4), {"dtype": torch.int64}),
    ("linspace.default", (-1.0, 2.0, 7), {}),
    ("fill.Scalar", (torch.zeros(2, 3), 1.5), {}),
]


@pytest.mark.parametrize(("name", "arguments", "keywords"), MADE, ids=[m[0] for m in MADE])
def test_a_made_tensor_is_pytorchs(name: str, arguments: Any, keywords: Any) -> None:
    b, expected = Lowering(FLOAT), overload(name)(*arguments, **keywords)
    values = [b.tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    made = lowered(b, name, values, **keywords)
    assert made.dtype is TYPES[expected.dtype]
    np.testing.assert_array_equal(made.const.array, expected.numpy())


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_a_meshgrid_has_its_axes_in_order(indexing: str) -> None:
    lists = [torch.arange(2.0), torch.arange(3.0), torch.arange(4.0)]
    b = Lowering(FLOAT)
    made = lowered(b, "meshgrid.indexing", [[b.tensor(v) for v in lists]], indexing=indexing)
    for ours, theirs in zip(made, torch.meshgrid(*lists, indexing=indexing)):
        np.testing.assert_array_equal(ours.const.array, theirs.numpy())


def inputs(b: Lowering, *kinds: str) -> list[Value]:
    return [b.input(k, (4, 300) if k == "f32" else (4,), f"x{i}") for i, k in enumerate(kinds)]


REFUSED = [
    ("index.Tensor", ("f32", "bool"), lambda x, m: [x, [m]], "use where or masked_fill"),
    ("one_hot.default", ("i32",), lambda x: [x], "give num_classes to one_hot"),
    ("topk.default", ("f32",), lambda x: [x, 65], "topk is lowered up to k = 64"),
    ("sort.default", ("f32",), lambda x: [x], "300 elements are more than 256"),
    (
        "embedding_bag.default",
        ("f32", "i32", "i32"),
        lambda w, i, o: [w, i, o],
        "offsets of the bags must",
    ),
    ("grid_sampler.default", ("f32", "f32"), lambda x, g: [x, g, 2, 0, False], "for images"),
    ("rrelu.default", ("f32",), lambda x: [x, 0.1, 0.3, True], r"call eval\(\)"),
    ("scatter_reduce.two", ("f32", "i32", "f32"), lambda x, i, s: [x, 0, i, s, "prod"], "'prod'"),
]


@pytest.mark.parametrize(("name", "kinds", "make", "reason"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_has_no_form_says_why(name: str, kinds: Any, make: Any, reason: str) -> None:
    b = Lowering(BOTH)
    with pytest.raises(Unsupported, match=reason):
        lowered(b, name, make(*inputs(b, *kinds)))


def test_constant_indices_outside_of_their_axis_are_refused() -> None:
    b = Lowering(FLOAT)
    with pytest.raises(Unsupported, match="outside of an axis of 4"):
        lowered(b, "index.Tensor", [*inputs(b, "f32"), [b.tensor(torch.tensor([4]))]])


class Picks(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20, 8)
        self.layer = torch.nn.Linear(8, 12)
        self.register_buffer("order", torch.tensor([[0, 2], [3, -1]]))

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(self.table(ids))
        values, indices = torch.topk(y, 3)
        return values, indices, y[:, self.order], torch.gather(y, 2, indices), y.argmax(-1)


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "TOSA-1.0+INT"])
def test_a_model_with_indices_is_compiled_whole_and_gives_int64(target: str) -> None:
    torch.manual_seed(0)
    model = Picks().eval()
    batches = [(torch.randint(0, 20, (2, 4)),) for _ in range(8)]
    data = {"calibration": batches} if "INT" in target else {}
    art = tosaic.compile(model, batches[0], target=target, **data)
    assert not art.report.refused
    made, expected = art.run(*batches[0]), model(*batches[0])
    for ours, theirs in zip(made, expected, strict=True):
        assert torch.as_tensor(ours).dtype is theirs.dtype
    step = 0.0 if "FP" in target else 0.05
    for place in (0, 2, 3):
        torch.testing.assert_close(torch.as_tensor(made[place]), expected[place], atol=step + 1e-5,
                                   rtol=0)  # fmt: skip
    np.testing.assert_array_equal(
        np.take_along_axis(np.asarray(made[3]), np.zeros((2, 4, 1), int), 2),
        np.asarray(made[0])[..., :1],
    )
    if "FP" in target:
        assert torch.equal(torch.as_tensor(made[1]), expected[1])
        assert torch.equal(torch.as_tensor(made[4]), expected[4])

"""Tensors of five axes and more get four where no operator tells the others apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from judges.programs import Function, compiled
from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.ir.verify import verify
from tosaic.rewrite.lowest_rank import lower_ranks
from tosaic.spec.env import Env

ENV = Env.parse("TOSA-1.0+INT+int16")
SIZES = (1, 1, 2, 3, 4)


def operator(b: Builder, random: np.random.Generator, x: Value, values: list[Value]) -> Value:
    """One that keeps the axes of its operand."""
    rank, shape = x.type.rank, x.shape
    axis = int(random.integers(rank))
    kind = random.choice(
        ["ADD", "MUL", "SELECT", "ABS", "CLAMP", "NEGATE", "REDUCE_SUM", "REDUCE_MAX", "CONCAT",
         "SLICE", "PAD", "TILE", "REVERSE", "CHANNELS", "CONST"]
    )  # fmt: skip
    if kind in ("ADD", "MUL", "SELECT"):
        fits = [v for v in values if v.type.rank == rank and _broadcasts(v.shape, shape)]
        y = fits[int(random.integers(len(fits)))]
        if kind == "SELECT":
            return b.SELECT(b.GREATER(x, y), x, y)
        return b.ADD(x, y) if kind == "ADD" else b.MUL(x, y, b.const([0], "i8"))
    if kind == "CONST":
        some = tuple(n if random.integers(2) else 1 for n in shape)
        return b.ADD(x, b.const(random.integers(-9, 9, some), "i32"))
    if kind == "ABS":
        return b.ABS(x)
    if kind == "CLAMP":
        return b.MAXIMUM(x, b.const(np.full((1,) * rank, -5), "i32"))
    if kind == "NEGATE":
        zero = b.const([0], "i32")
        return b.NEGATE(x, zero, zero)
    if kind.startswith("REDUCE"):
        return b.op(kind, x, axis=axis)
    if kind == "CONCAT":
        return b.CONCAT(x, b.ABS(x), axis=axis)
    if kind == "SLICE":
        sizes = [int(random.integers(1, n + 1)) if random.integers(2) else n for n in shape]
        starts = [int(random.integers(n - s + 1)) for n, s in zip(shape, sizes)]
        return b.SLICE(x, b.shape(starts), b.shape(sizes))
    if kind == "PAD":
        around = [int(n) for n in random.integers(0, 2, 2 * rank) * random.integers(0, 2, 2 * rank)]
        return b.PAD(x, b.shape(around), b.const([3], "i32"))
    if kind == "TILE":
        return b.TILE(x, b.shape([2 if i == axis else 1 for i in range(rank)]))
    if kind == "CHANNELS":
        count = shape[-1]
        return b.RESCALE(
            x, b.const(random.integers(1 << 29, 1 << 30, count), "i32"),
            b.const(np.full(count, 30), "i8"), b.const([0], "i32"), b.const([0], "i32"),
            out=x.dtype, scale32=True, rounding_mode="SINGLE_ROUND", per_channel=True,
        )  # fmt: skip
    return b.REVERSE(x, axis=axis)


def _broadcasts(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(one, other))


def drawn(seed: int) -> Graph:
    """Operators in a row, with several readers and results, and a RESHAPE or TRANSPOSE between."""
    random = np.random.default_rng(seed)
    b, rank = Builder(ENV), int(random.integers(5, 7))
    values = [b.input("i32", tuple(int(n) for n in random.choice(SIZES, rank)), "x")]
    for _ in range(8):
        x = values[int(random.integers(max(0, len(values) - 3), len(values)))]
        if random.integers(8) == 0:
            perms = [int(n) for n in random.permutation(x.type.rank)]
            values.append(b.TRANSPOSE(x, perms=perms))
        elif random.integers(8) == 0:
            values.append(b.RESHAPE(x, b.shape((*x.shape[2:], *x.shape[:2]))))
        else:
            made = operator(b, random, x, values)
            values.append(made if math.prod(made.shape) < 20000 else x)
    made = [v for v in values[-3:] if v.producer is not None]
    b.output(*dict.fromkeys(made))
    for index, value in enumerate(b.graph.outputs):
        value.name = f"y{index}"
    return b.graph


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_results_are_equal_and_named_as_before(start: int) -> None:
    for seed in range(start, start + 20):
        graph = drawn(seed)
        before = drawn(seed)
        lower_ranks(graph, ENV)
        verify(graph, ENV)
        random = np.random.default_rng(seed)
        x = random.integers(-99, 99, graph.inputs[0].shape).astype(np.int32)
        assert [v.name for v in graph.outputs] == [v.name for v in before.outputs]
        for ours, right in zip(Model(graph).run(x), Model(before).run(x), strict=True):
            assert np.array_equal(ours, right), seed


def ranks(graph: Graph) -> set[int]:
    """Of what is computed; an input may be rescaled in its own shape, part by part."""
    left = ("RESHAPE", "RESCALE", "SLICE")
    return {op.outs[0].type.rank for op in graph.ops if op.name not in left}


def test_a_softmax_of_five_axes_is_one_of_four() -> None:
    x = torch.randn(1, 3, 32, 1, 1, generator=torch.Generator().manual_seed(0))
    art = compiled(Function(lambda x: x.softmax(1)), (x,), "ethos-u55-128", calibration=[(x,)])
    assert not art.report.refused
    assert "defined for all inputs" in art.report.delegates[0].checks
    assert max(ranks(art.graph)) <= 4


FIVE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "softmax": (lambda x: x.softmax(1), (2, 1, 4, 16, 1)),
    "softmax of the last": (lambda x: x.softmax(-1), (3, 2, 3, 2, 8)),
    "log_softmax": (lambda x: x.log_softmax(2), (2, 32, 16, 1, 1)),
    "log_softmax between": (lambda x: x.log_softmax(1), (3, 5, 1, 3, 3)),
    "std": (lambda x: x.std(3), (2, 3, 2, 8, 2)),
    "mean and amax": (lambda x: x - x.mean((2, 4), keepdim=True) + x.amax(1, True),
                      (1, 3, 4, 5, 6)),
    "where": (lambda x: torch.where(x[:, :1] > x, x, x * 2), (2, 3, 4, 2, 5)),
    "parts": (lambda x: torch.cat([x[:, :, 1:], x.flip(3)], 2) * 2, (2, 3, 4, 2, 5)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-2:]), (2, 2, 3, 4, 5)),
    "six axes": (lambda x: x.softmax(3) + x.amax(0, True), (2, 1, 2, 8, 3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize(("target", "scheme"), [("ethos-u55-128", "int8"),
                                                ("ethos-u85-256", "a16w8")])  # fmt: skip
def test_nothing_of_five_axes_goes_to_the_cpu(name: str, target: str, scheme: str) -> None:
    function, shape = FIVE[name]
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    art = compiled(Function(function), (x,), target, scheme=scheme, calibration=[(x,)])
    assert not art.report.refused
    assert "defined for all inputs" in art.report.delegates[0].checks
    assert max(ranks(art.graph)) <= 4
    error = (art.run(x) - function(x)).square().sum()
    assert float(10 * torch.log10(function(x).square().sum() / error)) > 25

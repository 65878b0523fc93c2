"""Transpositions cancel, merge and sink, and never become more; results stay the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tosaic.interp.model import Model
from tosaic.ir import verify
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.rewrite import remove_dead, sink_transposes
from tosaic.rewrite.layout import _Sinker, regrouped
from tosaic.spec.dtypes import F32, I32, DType
from tosaic.spec.env import Env

ENV = Env.parse("TOSA-1.0+INT+FP")
NHWC, NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def count(graph: Graph, name: str = "TRANSPOSE") -> int:
    return Counter(op.name for op in graph.ops)[name]


def rewritten(graph: Graph) -> Graph:
    """The rewritten graph, which verifies and computes the same."""
    given = [
        (np.arange(v.type.size) * 37 % 101 - 50).reshape(v.shape).astype(v.dtype.array)
        for v in graph.inputs
    ]
    before = Model(graph).run(*given)
    made = sink_transposes(graph, ENV)[0]
    verify(made, ENV)
    for ours, theirs in zip(Model(made).run(*given), before, strict=True):
        assert ours.shape == theirs.shape
        assert np.array_equal(ours, theirs)
    assert [v.type for v in made.outputs] == [v.type for v in graph.outputs]
    return made


class Random:
    """A graph of operators that move or compute, on what earlier ones made."""

    def __init__(self, seed: int, kind: DType) -> None:
        self.rng, self.b, self.kind = np.random.default_rng(seed), Builder(ENV), kind
        rank = int(self.rng.integers(2, 5))
        shapes = [self.rng.choice([1, 2, 3], rank) for _ in range(2)]
        self.values = [
            self.b.input(kind, [int(n) for n in s], f"x{i}") for i, s in enumerate(shapes)
        ]
        for _ in range(int(self.rng.integers(4, 14))):
            self.add()
        pool = self.values[2:]
        self.b.output(*dict.fromkeys([pool[-1], pool[int(self.rng.integers(len(pool)))]]))

    def add(self) -> None:
        x = self.values[-int(self.rng.integers(1, min(4, len(self.values)) + 1))]
        step = self.rng.choice(
            ["transpose", "transpose", "transpose", "unary", "pair", "slice", "pad", "concat",
             "reduce", "reshape", "reverse", "tile", "constant"]
        )  # fmt: skip
        made = getattr(self, f"_{step}")(x)
        if made.type.size <= 4000:
            self.values.append(made)

    def axis(self, x: Value) -> int:
        return int(self.rng.integers(x.type.rank))

    def _transpose(self, x: Value) -> Value:
        return self.b.TRANSPOSE(x, perms=[int(p) for p in self.rng.permutation(x.type.rank)])

    def _unary(self, x: Value) -> Value:
        return self.b.ABS(x)

    def _pair(self, x: Value) -> Value:
        fitting = [v for v in self.values if _broadcasts(v, x)]
        return self.b.SUB(x, fitting[int(self.rng.integers(len(fitting)))])

    def _constant(self, x: Value) -> Value:
        shape = [n if self.rng.random() < 0.5 else 1 for n in x.shape]
        numbers = self.rng.integers(-9, 9, shape).astype(self.kind.array)
        return self.b.ADD(x, self.b.const(numbers, self.kind))

    def _slice(self, x: Value) -> Value:
        start = [int(self.rng.integers(n)) for n in x.shape]
        size = [int(self.rng.integers(1, n - s + 1)) for n, s in zip(x.shape, start)]
        return self.b.SLICE(x, self.b.shape(start), self.b.shape(size))

    def _pad(self, x: Value) -> Value:
        around = self.rng.integers(0, 2, 2 * x.type.rank).tolist()
        return self.b.PAD(x, self.b.shape(around), self.b.const([7], self.kind))

    def _concat(self, x: Value) -> Value:
        return self.b.CONCAT(x, self._unary(x), axis=self.axis(x))

    def _reduce(self, x: Value) -> Value:
        return self.b.REDUCE_MAX(x, axis=self.axis(x))

    def _reverse(self, x: Value) -> Value:
        return self.b.REVERSE(x, axis=self.axis(x))

    def _tile(self, x: Value) -> Value:
        return self.b.TILE(x, self.b.shape(self.rng.integers(1, 3, x.type.rank).tolist()))

    def _reshape(self, x: Value) -> Value:
        """Merge two axes, split one, or add one of a single element."""
        shape, axis = list(x.shape), self.axis(x)
        choice = int(self.rng.integers(3))
        if choice == 0 and len(shape) > 2 and axis + 1 < len(shape):
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        elif choice == 1 and len(shape) < 5 and shape[axis] % 2 == 0:
            shape[axis : axis + 1] = [shape[axis] // 2, 2]
        elif len(shape) < 5:
            shape.insert(axis, 1)
        return self.b.RESHAPE(x, self.b.shape(shape))


def _broadcasts(v: Value, x: Value) -> bool:
    """Whether v fits beside x and the result has the shape of x."""
    return v.type.rank == x.type.rank and all(a in (1, n) for a, n in zip(v.shape, x.shape))


@pytest.mark.parametrize("kind", [I32, F32], ids=str)
@pytest.mark.parametrize("block", range(10))
def test_random_graphs_compute_the_same_with_no_more_transpositions(
    kind: DType, block: int
) -> None:
    fewer = 0
    for seed in range(30 * block, 30 * block + 30):
        graph = remove_dead(Random(seed, kind).b.graph)
        before = count(graph)
        after = count(rewritten(graph))
        assert after <= before, f"seed {seed}"
        fewer += after < before
    assert fewer > 5


def test_a_transposition_and_its_inverse_vanish() -> None:
    b = Builder(ENV)
    x = b.input(F32, (1, 2, 3, 4), "x")
    y = b.TRANSPOSE(b.ABS(b.TRANSPOSE(x, perms=NHWC)), perms=NCHW)
    b.output(y)
    assert [op.name for op in rewritten(b.graph).ops] == ["ABS"]


def conv(b: Builder, x: Value, channels: int) -> Value:
    """A 1×1 convolution of a value in NCHW."""
    weight = b.const(np.arange(channels * x.shape[1]).reshape(channels, 1, 1, -1) % 5 - 2.0, F32)
    zero = b.const([0.0], F32)
    made = b.CONV2D(
        b.TRANSPOSE(x, perms=NHWC), weight, b.const(np.arange(channels) * 1.0, F32), zero, zero,
        pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=F32,
    )  # fmt: skip
    return b.TRANSPOSE(made, perms=NCHW)


def test_a_chain_of_convolutions_in_nchw_keeps_one_transposition() -> None:
    b = Builder(ENV)
    x = b.input(F32, (1, 3, 4, 4), "x")
    y = b.CLAMP(conv(b, x, 8), min_val=0.0, max_val=6.0)
    y = b.ADD(y, conv(b, y, 8))
    y = b.PAD(y, b.shape((0, 0, 0, 0, 1, 1, 1, 1)), b.const([0.0], F32))
    y = b.CONCAT(y, conv(b, y, 4), axis=1)
    y = conv(b, b.SLICE(y, b.shape((0, 2, 0, 0)), b.shape((1, 6, 6, 6))), 8)
    y = b.REDUCE_SUM(b.REDUCE_SUM(y, axis=2), axis=3)
    b.output(b.RESHAPE(y, b.shape((1, 8))))
    assert count(b.graph) == 8
    assert count(rewritten(b.graph)) == 1


def test_a_scale_for_each_channel_is_only_reshaped() -> None:
    b = Builder(ENV)
    x, scale = b.input(F32, (1, 3, 4, 4), "x"), b.input(F32, (1, 3), "scale")
    factor = b.RESHAPE(scale, b.shape((1, 3, 1, 1)))
    y = b.MUL(conv(b, x, 3), factor, b.const([0], "i8"))
    b.output(b.RESHAPE(b.REDUCE_MAX(b.REDUCE_MAX(y, axis=2), axis=3), b.shape((1, 3))))
    assert count(rewritten(b.graph)) == 1


def test_a_pixel_shuffle_between_convolutions_costs_one_transposition() -> None:
    b = Builder(ENV)
    y = conv(b, b.input(F32, (1, 3, 4, 4), "x"), 8)
    blocks = b.RESHAPE(y, b.shape((1, 2, 2, 2, 4, 4)))
    pixels = b.TRANSPOSE(blocks, perms=(0, 1, 4, 2, 5, 3))
    y = conv(b, b.RESHAPE(pixels, b.shape((1, 2, 8, 8))), 4)
    b.output(b.REDUCE_SUM(b.REDUCE_SUM(y, axis=2), axis=3))
    made = rewritten(b.graph)
    assert count(b.graph) == 5
    assert count(made) == 2  # the input's, and the shuffle


def test_a_channel_shuffle_between_convolutions_leaves_channels_last() -> None:
    b = Builder(ENV)
    y = conv(b, b.input(F32, (1, 3, 4, 4), "x"), 8)
    for _ in range(2):
        left, right = (b.SLICE(y, b.shape((0, n, 0, 0)), b.shape((1, 4, 4, 4))) for n in (0, 4))
        groups = b.RESHAPE(b.CONCAT(left, conv(b, right, 4), axis=1), b.shape((1, 2, 4, 4, 4)))
        y = b.RESHAPE(b.TRANSPOSE(groups, perms=(0, 2, 1, 3, 4)), b.shape((1, 8, 4, 4)))
    b.output(b.REDUCE_SUM(b.REDUCE_SUM(y, axis=2), axis=3))
    graph = remove_dead(b.graph)
    sinker = _Sinker(graph, ENV, None, {v for op in graph.ops for v in op.outs}, within=True)
    made = sinker.attempt()
    shuffles = [op.attrs["perms"] for op in made.ops if op.name == "TRANSPOSE"]
    assert len(shuffles) == 3  # the input's, and one for each shuffle
    assert all(perms[-2:] == (4, 3) for perms in shuffles[1:])


def test_a_transposed_constant_is_a_constant() -> None:
    b = Builder(ENV)
    x, numbers = b.input(I32, (3, 2), "x"), b.const(np.arange(6).reshape(2, 3), I32)
    b.output(b.ADD(x, b.TRANSPOSE(numbers, perms=(1, 0))))
    assert [op.name for op in rewritten(b.graph).ops] == ["ADD"]


def test_a_value_that_two_read_is_transposed_once() -> None:
    b = Builder(ENV)
    turned = b.TRANSPOSE(b.input(I32, (2, 3), "x"), perms=(1, 0))
    b.output(b.ABS(turned), b.CLZ(turned))
    assert count(rewritten(b.graph)) == 1


def test_an_argmax_sinks_with_one_axis_less() -> None:
    b = Builder(ENV)
    x = b.input(F32, (1, 4, 5, 3), "x")
    b.output(b.ARGMAX(b.TRANSPOSE(x, perms=NCHW), axis=1, nan_mode="PROPAGATE"))
    assert count(rewritten(b.graph)) == 0


@pytest.mark.parametrize(
    ("shape", "perms", "wanted", "order"),
    [
        ((1, 4, 5, 6), NCHW, (1, 2, 3, 4, 5), (0, 3, 4, 1, 2)),  # channels split
        ((1, 4, 5, 6), NCHW, (1, 6, 20), (0, 2, 1)),  # pixels merge
        ((1, 4, 5, 6), NCHW, (6, 4, 5), (1, 2, 0)),  # an axis of one goes
        ((1, 1, 1, 6), NCHW, (1, 6), (0, 1)),
        ((2, 4, 5, 6), NCHW, (2, 120), None),  # what was apart is merged
        ((4, 6), (1, 0), (4, 6), None),
    ],
)
def test_a_reshape_keeps_groups_of_axes_or_is_refused(shape, perms, wanted, order) -> None:
    assert regrouped(shape, perms, wanted) == order

"""Runs of small operators on arrays of their own equal the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import numpy as np
import pytest

from judges.reference import run_reference
from tosaic.errors import Unpredictable
from tosaic.files.flatbuffer import write
from tosaic.interp import static
from tosaic.interp.model import Model
from tosaic.interp.static import StaticRun
from tosaic.ir import Builder
from tosaic.ir.graph import Array, Graph, Value
from tosaic.spec.dtypes import I8, I16, I32, DType
from tosaic.spec.env import everything

WIDTH = 12


class Random:
    """A graph of random operators, each on values that there are."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = Builder(everything(level="none"), Graph("main"))
        self.values = [self.b.input(kind, (1, WIDTH), kind.name) for kind in (I8, I16)]
        for _ in range(40):
            self.values += self.more()
        self.b.output(*self.values[2:])

    def some(self, *kinds: DType) -> Value:
        found = [v for v in self.values if v.dtype in kinds]
        return found[int(self.rng.integers(len(found)))]

    def rescale(self, x: Value, out: DType, channels: int = 1) -> Value:
        """By about as much as the types differ, so that some saturate and none is undefined."""
        grow = out.bits - x.dtype.bits - int(self.rng.integers(0, 6)) + (x.dtype is I32) * 6
        shift = min(max(30 - grow, x.dtype.bits + 2), 60)
        if out is I32:
            shift = max(shift, 31)
        multiplier = self.rng.integers(1 << 29, 1 << 30, channels)
        if self.rng.random() < 0.3:
            multiplier[:] = 1 << 29
        b, zps = self.b, [int(self.rng.integers(-9, 9)) if k is I8 else 0 for k in (x.dtype, out)]
        return b.RESCALE(
            x, b.const(multiplier, I32), b.const([shift] * channels, I8),
            b.const([zps[0]], x.dtype), b.const([zps[1]], out), scale32=True,
            rounding_mode="SINGLE_ROUND", per_channel=channels > 1, out=out,
        )  # fmt: skip

    def more(self) -> list[Value]:
        b, kind = self.b, int(self.rng.integers(9))
        if kind < 2:
            out = (I8, I16, I32)[int(self.rng.integers(3))]
            return [self.rescale(self.some(I8, I16, I32), out)]
        if kind == 2:  # a layer with a scale for each channel
            weight = b.const(self.rng.integers(-127, 128, (WIDTH, 1, 1, WIDTH)), I8)
            bias = b.const(self.rng.integers(-5000, 5000, WIDTH), I32)
            rows = b.RESHAPE(self.some(I8), b.shape((1, 1, 1, WIDTH)))
            zps = b.const([int(self.rng.integers(-9, 9))], I8), b.const([0], I8)
            total = b.CONV2D(rows, weight, bias, *zps, pad=(0, 0, 0, 0), stride=(1, 1),
                             dilation=(1, 1), acc_type=I32)  # fmt: skip
            return [b.RESHAPE(self.rescale(total, I16, WIDTH), b.shape((1, WIDTH)))]
        if kind == 3:
            return [b.MUL(self.some(I16), self.some(I16), b.const([0], I8))]
        if kind == 4:  # sums that cannot overflow
            x, y = (self.rescale(self.some(I8, I16), I32) for _ in range(2))
            return [(b.ADD if self.rng.random() < 0.5 else b.SUB)(x, y)]
        if kind == 5:
            steps = self.rng.integers(-60, 60, 513).cumsum().clip(-32768, 32767)
            return [b.TABLE(self.some(I16), b.const(steps, I16))]
        if kind == 6:  # parts of a value, some of them scaled alike
            x = b.CONCAT(self.some(I16), self.some(I16), axis=1)
            wide = b.REVERSE(x, axis=1) if self.rng.random() < 0.3 else x
            cut = [b.SLICE(wide, b.shape((0, n)), b.shape((1, WIDTH))) for n in (0, 7, WIDTH)]
            return [*cut, self.rescale(cut[0], I32), self.rescale(cut[2], I8)]
        if kind == 7:
            x = self.some(I8, I16)
            turned = b.TRANSPOSE(b.RESHAPE(x, b.shape((3, 4))), perms=[1, 0])
            low = int(self.rng.integers(-100, 0))
            made = b.RESHAPE(turned, b.shape((1, WIDTH)))
            return [made, b.CLAMP(made, min_val=low, max_val=100, nan_mode="PROPAGATE")]
        x, y = self.some(I8), self.some(I8)
        left = b.RESHAPE(x, b.shape((1, 3, 4)))
        zps = b.const([3], I8), b.const([-2], I8)
        total = b.MATMUL(left, b.RESHAPE(y, b.shape((1, 4, 3))), *zps)
        made = self.rescale(b.RESHAPE(b.CONCAT(total, total, axis=2), b.shape((1, 18))), I8)
        return [b.SLICE(made, b.shape((0, 2)), b.shape((1, WIDTH)))]


def inputs(seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    ends = [(kind.range[0], kind.range[1] + 1) for kind in (I8, I16)]
    return [rng.integers(*end, (1, WIDTH)).astype(kind.array)
            for end, kind in zip(ends, (I8, I16))]  # fmt: skip


def runs(model: Model) -> list[StaticRun]:
    return [step.run for step in model._plan.steps if isinstance(step.run, StaticRun)]


def test_scalars_equal_the_reference_model() -> None:
    made = Random.__new__(Random)
    made.rng, made.b = np.random.default_rng(5), Builder(everything(level="none"), Graph("main"))
    x = made.b.input(I8, (), "x")
    wide = [made.rescale(x, I32) for _ in range(5)]
    for value in wide[1:]:
        wide[0] = made.b.ADD(wide[0], made.rescale(made.rescale(value, I16), I32))
    last = made.rescale(wide[0], I16)
    made.b.output(made.b.CLAMP(last, min_val=-99, max_val=9999, nan_mode="PROPAGATE"))
    model = Model(made.b.graph)
    assert runs(model)
    for number in (-128, -1, 77):
        given = np.array(number, np.int8)
        (right,) = run_reference(write(made.b.graph), [given])
        np.testing.assert_array_equal(model.run(given)[0], right)


@pytest.mark.parametrize("seed", range(12))
def test_random_small_graphs_equal_the_reference_model(seed: int) -> None:
    graph = Random(seed).b.graph
    model = Model(graph)
    assert runs(model), "small operators run on arrays of their own"
    for number in range(2):
        given = inputs(100 * seed + number)
        wanted = run_reference(write(graph), given)
        for _ in range(2):
            for ours, right in zip(model.run(*given), wanted, strict=True):
                np.testing.assert_array_equal(ours, right)
                assert ours.dtype == right.dtype
    assert all(run._kernels is not None for run in runs(model))


def small(build: Callable[[Builder, Value], Sequence[Value]], shape: tuple[int, ...]) -> None:
    """A graph of one int8 input, padded to a run, beside the reference model on three inputs."""
    b = Builder(everything(level="none"), Graph("main"))
    x = b.input(I8, shape, "x")
    more = widened(b, x)
    for _ in range(8):
        more = b.MAXIMUM(more, b.const(np.full((1,) * len(shape), -9), I32), nan_mode="PROPAGATE")
    b.output(*build(b, x), more)
    model = Model(b.graph)
    assert len(runs(model)) == 1
    for seed in range(3):
        given = np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)
        for ours, right in zip(model.run(given), run_reference(write(b.graph), [given])):
            np.testing.assert_array_equal(ours, right)


def widened(b: Builder, x: Value) -> Value:
    zero = b.const([-96], I8), b.const([0], I32)
    return b.RESCALE(x, b.const([1 << 30], I32), b.const([30], I8), *zero, scale32=True,
                     rounding_mode="SINGLE_ROUND", per_channel=False, out=I32)  # fmt: skip


def test_reductions_of_reversed_values() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        made = list[Value]()
        for turned, axis in product([b.REVERSE(x, axis=axis) for axis in (0, 1)], (0, 1)):
            made.append(b.REDUCE_MAX(turned, axis=axis, nan_mode="PROPAGATE"))
            made.append(b.REDUCE_MIN(turned, axis=axis, nan_mode="PROPAGATE"))
        return made

    small(build, (7, 4))


def test_equal_functions_of_values_with_other_bounds() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        low = b.REVERSE(b.CLAMP(x, min_val=-9, max_val=9, nan_mode="PROPAGATE"), axis=0)
        zero = b.const([0], I8)
        four = b.const([1 << 30], I32), b.const([28], I8), zero, zero
        return [b.RESCALE(v, *four, scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
                          out=I8) for v in (low, x)]  # fmt: skip

    small(build, (4, 4))


def test_functions_of_parts_that_are_no_views_of_the_result() -> None:
    def build(b: Builder, x: Value) -> list[Value]:
        turned = b.TRANSPOSE(x, perms=[1, 0])
        narrow = b.CLAMP(turned, min_val=-99, max_val=99, nan_mode="PROPAGATE")
        flat = b.RESHAPE(b.TRANSPOSE(narrow, perms=[1, 0]), b.shape((1, 24)))
        return [
            narrow,
            widened(b, flat),
            widened(b, b.SLICE(flat, b.shape((0, 3)), b.shape((1, 9)))),
        ]

    small(build, (4, 6))


def test_threads_share_a_model() -> None:
    model = Model(Random(3).b.graph)
    given = [inputs(n) for n in range(40)]
    wanted = [model.run(*each) for each in given]
    with ThreadPoolExecutor(8) as pool:
        for ours, right in zip(pool.map(lambda each: model.run(*each), given), wanted):
            for a, b in zip(ours, right, strict=True):
                np.testing.assert_array_equal(a, b)


def test_what_is_not_defined_for_all_values_is_checked() -> None:
    b = Builder(everything(level="none"), Graph("main"))
    x = b.input(I32, (1, WIDTH), "x")
    y = x
    for _ in range(10):
        y = b.MAXIMUM(y, x, nan_mode="PROPAGATE")
    b.output(b.ADD(y, x))
    model = Model(b.graph)
    assert len(runs(model)) == 1
    assert not static.takes(b.graph.ops[-1], model._plan.context.bounds)
    model.run(np.full((1, WIDTH), 7, np.int32))
    with pytest.raises(Unpredictable, match="ADD: the sum overflows"):
        model.run(np.full((1, WIDTH), 1 << 30, np.int32))

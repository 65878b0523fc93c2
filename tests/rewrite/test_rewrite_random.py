"""Random graphs full of what rewrites look for, and of what only looks like it.

Every integer result equals that of the reference model on the graph as it was.
"""

from __future__ import annotations

import numpy as np
import pytest

from judges.reference import run_reference
from judges.timing import seconds
from tosaic.files.flatbuffer import write
from tosaic.interp.model import Model
from tosaic.ir import verify
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.rewrite import improve
from tosaic.spec.dtypes import F32, I8, I32, DType
from tosaic.spec.env import Env

ENV = Env.parse("TOSA-1.0+INT+FP")
MOST = 3000  # elements of a value


class Random:
    """A graph of operators on int8 images, or on floats, that often feed one another."""

    def __init__(self, seed: int, kind: DType) -> None:
        self.rng, self.b, self.kind = np.random.default_rng(seed), Builder(ENV), kind
        self.values = [self.b.input(kind, (1, 4, 5, 3), "x"), self.b.input(kind, (1, 4, 5, 3), "z")]
        while len(self.values) < 14:
            x = self.values[-int(self.rng.integers(1, 4)) % len(self.values)]
            made = getattr(self, "_" + str(self.rng.choice(STEPS[kind])))(x)
            if made.type.size <= MOST and made.dtype is kind:
                self.values.append(made)
        last = self.values[-1], self.values[int(self.rng.integers(2, len(self.values)))]
        self.b.output(*dict.fromkeys(last))

    def pick(self, *choices: float) -> float:
        return choices[int(self.rng.integers(len(choices)))]

    def _rescale(self, x: Value) -> Value:
        """One or two in a row, by factors of which some lose nothing."""
        zero = int(self.pick(0, 3))
        wide = self._scaled(x, I32, self.pick(1.0, 2.0, 2.0**10, 0.37), zero, 0)
        return self._scaled(wide, I8, self.pick(1.0, 0.5, 2.0**-10, 0.37), 0, int(self.pick(0, 3)))

    def _narrow(self, x: Value) -> Value:
        return self._scaled(x, I8, self.pick(1.0, 0.5, 1.7), int(self.pick(0, 3)), 3)

    def _scaled(self, x: Value, out: DType, factor: float, zero: int, after: int) -> Value:
        mantissa, exponent = np.frexp(factor)
        b, numbers = self.b, (int(mantissa * (1 << 30)), 30 - int(exponent))
        made: Value = b.RESCALE(
            x, b.const([numbers[0]], "i32"), b.const([numbers[1]], "i8"),
            b.const([zero], x.dtype), b.const([after], out), scale32=True,
            rounding_mode="SINGLE_ROUND", per_channel=False, out=out,
        )  # fmt: skip
        return made

    def _table(self, x: Value) -> Value:
        entries = self.rng.permutation(256) - 128
        made: Value = self.b.TABLE(x, self.b.const(entries, "i8"))
        return made

    def _clamp(self, x: Value) -> Value:
        ends = (-128, 0, -30), (127, 40, 90)
        if x.dtype.is_float:
            ends = (-1.0, 0.0, -0.5), (1.0, 6.0, 0.5)
        low, high = self.pick(*ends[0]), self.pick(*ends[1])
        made: Value = self.b.CLAMP(x, min_val=low, max_val=high)
        return made

    def _pad(self, x: Value) -> Value:
        around = self.rng.integers(0, 2, 8)
        around[[0, 1]] = 0
        around[[6, 7]] *= int(self.rng.random() < 0.2)
        number = self.pick(0, 3, -128) if self.kind is I8 else self.pick(0.0, -1.0)
        pad = self.b.const([number], self.kind)
        made: Value = self.b.PAD(x, self.b.shape(around.tolist()), pad)
        return made

    def _conv(self, x: Value) -> Value:
        b, channels, pad = self.b, int(self.pick(2, 3)), int(self.pick(0, 1))
        size = int(self.pick(1, 2)) if min(x.shape[1:3]) > 1 else 1
        shape = (channels, size, size, x.shape[3])
        common = {"pad": (pad,) * 4, "stride": (1, 1), "dilation": (1, 1)}
        if self.kind is F32:
            weight, bias = self.rng.normal(size=shape) / 3, self.rng.normal(size=channels)
            zero = b.const([0.0], F32)
            made: Value = b.CONV2D(x, b.const(weight, F32), b.const(bias, F32), zero, zero,
                                   acc_type="f32", **common)  # fmt: skip
            return made
        weight, bias = self.rng.integers(-99, 99, shape), self.rng.integers(-99, 99, channels)
        zeros = b.const([int(self.pick(0, 3))], "i8"), b.const([0], "i8")
        sums = b.CONV2D(x, b.const(weight, "i8"), b.const(bias, "i32"), *zeros,
                        acc_type="i32", **common)  # fmt: skip
        return self._scaled(sums, I8, 0.01, 0, int(self.pick(0, 3)))

    def _pool(self, x: Value) -> Value:
        size = [min(2, n) for n in x.shape[1:3]]
        made: Value = self.b.MAX_POOL2D(x, kernel=size, stride=(1, 1), pad=(0, 0, 0, 0))
        return made

    def _slice(self, x: Value) -> Value:
        start = [int(self.rng.integers(n)) // 2 for n in x.shape]
        size = [int(self.rng.integers(1, n - s + 1)) for n, s in zip(x.shape, start)]
        made: Value = self.b.SLICE(x, self.b.shape(start), self.b.shape(size))
        return made

    def _split(self, x: Value) -> Value:
        """Pieces along an axis, joined again, sometimes in another order."""
        axis = int(self.rng.integers(1, 4))
        if x.shape[axis] < 2:
            return self._reverse(x)
        cut, parts = int(self.rng.integers(1, x.shape[axis])), []
        for start, stop in ((0, cut), (cut, x.shape[axis])):
            starts = [start if i == axis else 0 for i in range(4)]
            sizes = [stop - start if i == axis else n for i, n in enumerate(x.shape)]
            parts.append(self.b.SLICE(x, self.b.shape(starts), self.b.shape(sizes)))
        if self.rng.random() < 0.3:
            parts.reverse()
        made: Value = self.b.CONCAT(*parts, axis=axis)
        return made

    def _concat(self, x: Value) -> Value:
        made: Value = self.b.CONCAT(x, self._clamp(x), axis=int(self.rng.integers(1, 4)))
        return made

    def _reverse(self, x: Value) -> Value:
        made: Value = self.b.REVERSE(x, axis=int(self.rng.integers(1, 4)))
        return made

    def _transpose(self, x: Value) -> Value:
        perms = [0, *(int(p) + 1 for p in self.rng.permutation(3))]
        made: Value = self.b.TRANSPOSE(x, perms=perms)
        return made

    def _reshape(self, x: Value) -> Value:
        _, rows, columns, channels = x.shape
        shape = self.rng.permutation([rows, columns, channels]).tolist()
        made: Value = self.b.RESHAPE(x, self.b.shape((1, *shape)))
        return made

    def _again(self, x: Value) -> Value:
        """An operator that is there already."""
        op = x.producer
        if op is None:
            return self._table(x) if self.kind is I8 else self._clamp(x)
        made: Value = self.b.op(op.name, *op.ins, out=op.outs[0].dtype, **op.attrs)
        return made

    def _add(self, x: Value) -> Value:
        """A sum with a repetition, a constant or zeros."""
        term = self._beside(x, 0)
        if self.kind is F32:
            return self.b.ADD(x, term)
        parts = (self._scaled(v, I32, 1.0, 0, 0) for v in (x, term))
        return self._scaled(self.b.ADD(*parts), I8, 0.5, 0, 0)

    def _multiply(self, x: Value) -> Value:
        factor = self._beside(x, 1)
        product: Value = self.b.MUL(x, factor, self.b.const([0], "i8"))
        return product if self.kind is F32 else self._scaled(product, I8, 0.01, 0, 0)

    def _beside(self, x: Value, neutral: int) -> Value:
        choice, axis = int(self.rng.integers(4)), int(self.rng.integers(1, 4))
        ones = [n if i == axis else 1 for i, n in enumerate(x.shape)]
        if choice == 0:
            return self.b.const(np.full(ones, neutral), self.kind)
        if choice == 1:
            numbers = self.rng.uniform(0.5, 2, ones) if self.kind is F32 else np.full(ones, 3)
            return self.b.const(numbers, self.kind)
        if choice == 2:
            return x
        small = self.b.SLICE(x, self.b.shape((0,) * 4), self.b.shape(
            [1 if i == axis else n for i, n in enumerate(x.shape)]))  # fmt: skip
        times = [n if i == axis else 1 for i, n in enumerate(x.shape)]
        made: Value = self.b.TILE(small, self.b.shape(times))
        return made

    def _identity(self, x: Value) -> Value:
        made: Value = self.b.IDENTITY(x)
        return made


_BOTH = [
    "clamp", "clamp", "pad", "pad", "conv", "conv", "pool", "slice", "split", "concat", "reverse",
    "transpose", "transpose", "reshape", "again", "add", "add", "multiply", "multiply", "identity",
]  # fmt: skip
STEPS = {I8: [*_BOTH, "rescale", "rescale", "narrow", "table", "table"], F32: _BOTH}


def given(graph: Graph, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [
        rng.normal(size=v.shape).astype(np.float32) if v.dtype is F32
        else rng.integers(-128, 128, v.shape).astype(np.int8)
        for v in graph.inputs
    ]  # fmt: skip


@pytest.mark.parametrize("block", range(6))
def test_random_int8_graphs_stay_bit_exact_and_become_smaller(block: int) -> None:
    before = after = distinct = 0
    for seed in range(40 * block, 40 * block + 40):
        graph = Random(seed, I8).b.graph
        data, arrays = write(graph), given(graph, seed)
        before += len(graph.ops)
        made = improve(graph, ENV)
        verify(made, ENV)
        after += len(made.ops)
        expected = run_reference(data, arrays)
        for theirs, ours in zip(expected, run_reference(write(made), arrays), strict=True):
            assert np.array_equal(theirs, ours), f"seed {seed}"
            distinct += len(np.unique(theirs)) > 8
        again = len(made.ops)
        assert len(improve(made, ENV).ops) <= again, f"seed {seed}"
    assert after < 0.75 * before
    assert distinct > 30


@pytest.mark.parametrize("block", range(3))
def test_random_float_graphs_stay_close_and_become_smaller(block: int) -> None:
    before = after = 0
    for seed in range(40 * block, 40 * block + 40):
        graph = Random(seed, F32).b.graph
        arrays = given(graph, seed)
        expected = Model(graph).run(*arrays)
        before += len(graph.ops)
        made = improve(graph, ENV)
        verify(made, ENV)
        after += len(made.ops)
        for theirs, ours in zip(expected, Model(made).run(*arrays), strict=True):
            scale = float(np.abs(theirs).max()) or 1.0
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-5, atol=1e-5 * scale, err_msg=str(seed)
            )
    assert after < 0.75 * before


def chain(count: int) -> Graph:
    """Convolutions in NCHW with batch norms, residual sums and padding: work for every rewrite."""
    b = Builder(ENV)
    zero, shift = b.const([0.0], F32), b.const([0], "i8")
    x = b.input(F32, (1, 4, 4, 4), "x")
    while len(b.graph.ops) < count:
        y = b.PAD(b.TRANSPOSE(x, perms=(0, 2, 3, 1)), b.shape((0, 0, 1, 1, 1, 1, 0, 0)), zero)
        y = b.CONV2D(
            y, b.const(np.full((4, 3, 3, 4), 0.1), F32), b.const(np.ones(4), F32), zero, zero,
            pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type="f32",
        )  # fmt: skip
        y = b.TRANSPOSE(y, perms=(0, 3, 1, 2))
        factor = b.const(np.arange(1.0, 5.0).reshape(1, 4, 1, 1), F32)
        y = b.ADD(b.MUL(y, factor, shift), factor)
        x = b.ADD(x, b.CLAMP(b.IDENTITY(y), min_val=0.0, max_val=6.0))
    b.output(x)
    return b.graph


def test_time_grows_with_the_graph() -> None:
    def spent(count: int) -> float:
        graph = chain(count)
        assert len(improve(graph, ENV).ops) < 0.4 * count
        return seconds(lambda: improve(graph, ENV), 2)

    assert spent(4000) < 25 * spent(400)

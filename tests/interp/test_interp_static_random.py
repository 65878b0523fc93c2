"""Runs of small operators give what the same graphs give without them, also when run again."""

from __future__ import annotations

import numpy as np
import pytest

from judges.reference import run_reference
from tosaic.files.flatbuffer import write
from tosaic.interp import plan
from tosaic.interp.model import Model
from tosaic.interp.static import StaticRun
from tosaic.ir import Builder
from tosaic.ir.graph import Array, Graph, Value
from tosaic.spec.dtypes import I8, I16, I32, DType
from tosaic.spec.env import everything

SHAPES = [(2, 3, 4), (1, 4, 6), (3, 8), (24,)]
KINDS = (I8, I16)


class Views:
    """A graph of views, of views of those, and of equal functions of values of other bounds."""

    def __init__(self, seed: int, size: int = 45) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = Builder(everything(level="none"), Graph("main"))
        self.values = [self.b.input(kind, SHAPES[self.pick(len(SHAPES))], f"{kind}{i}")
                       for i, kind in enumerate(KINDS * 2)]  # fmt: skip
        # Few functions, so that values share them.
        self.scales = [(1 << 30, 30), (1 << 30, 31), (3 << 28, 29), (1 << 30, 28), (1 << 29, 33)]
        self.ends = [(-20, 25), (-90, 60), (0, 127)]
        steps = self.rng.integers(-60, 60, 513).cumsum().clip(-32768, 32767)
        self.tables = {I8: self.b.const(self.rng.integers(-128, 128, 256), I8),
                       I16: self.b.const(steps, I16)}  # fmt: skip
        for _ in range(size):
            self.values.append(self.more())
        made = self.values[len(KINDS) * 2 :]
        kept = [v for v in made if self.rng.random() < 0.3]
        self.b.output(*dict.fromkeys((*kept, made[-1])))

    def pick(self, count: int) -> int:
        return int(self.rng.integers(count))

    def some(self, *kinds: DType) -> Value:
        """Mostly one of the last, so that views are made of views."""
        found = [v for v in self.values if v.dtype in (kinds or (I8, I16, I32))]
        found = found[-6:] if self.rng.random() < 0.6 else found
        return found[self.pick(len(found))]

    def rescale(self, x: Value, out: DType) -> Value:
        b, (multiplier, shift) = self.b, self.scales[self.pick(len(self.scales))]
        if x.dtype is I32:
            multiplier, shift = 1 << 30, 40 + self.pick(2)
        numbers = b.const([multiplier], I32), b.const([shift], I8)
        points = b.const([0], x.dtype), b.const([5 if out is I8 else 0], out)
        return b.RESCALE(x, *numbers, *points, scale32=True, rounding_mode="SINGLE_ROUND",
                         per_channel=False, out=out)  # fmt: skip

    def more(self) -> Value:
        b, x, kind = self.b, self.some(), self.pick(14)
        rank = x.type.rank
        if kind < 2:
            sizes = [s for s in SHAPES if np.prod(s) == x.type.size] or [(x.type.size,)]
            return b.RESHAPE(x, b.shape(sizes[self.pick(len(sizes))]))
        if kind < 4:
            return b.TRANSPOSE(x, perms=[int(n) for n in self.rng.permutation(rank)])
        if kind < 6:
            return b.REVERSE(x, axis=self.pick(rank))
        if kind == 6:
            starts = [self.pick(n) // 2 for n in x.shape]
            sizes = [max(1, n - s - self.pick(2)) for n, s in zip(x.shape, starts)]
            return b.SLICE(x, b.shape(tuple(starts)), b.shape(tuple(sizes)))
        if kind == 7:
            name = ("REDUCE_MAX", "REDUCE_MIN")[self.pick(2)]
            reduce = getattr(b, name)
            made: Value = reduce(x, axis=self.pick(rank), nan_mode="PROPAGATE")
            return made
        if kind == 8:
            alike = [v for v in self.values if v.shape == x.shape and v.dtype is x.dtype]
            y = alike[self.pick(len(alike))]
            if x.dtype is not I32 or self.rng.random() < 0.3:
                return b.CONCAT(x, y, axis=self.pick(rank)) if x.type.size < 200 else x
            return b.MAXIMUM(x, y, nan_mode="PROPAGATE")
        if kind == 9:
            low, high = self.ends[self.pick(len(self.ends))]
            return b.CLAMP(self.some(*KINDS), min_val=low, max_val=high, nan_mode="PROPAGATE")
        if kind == 10:
            x = self.some(*KINDS)
            return b.TABLE(x, self.tables[x.dtype])
        if kind == 11:
            x = self.some(I16)
            return b.MUL(x, x, b.const([0], I8))
        return self.rescale(x, KINDS[self.pick(2)])

    def inputs(self, seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [rng.integers(v.dtype.range[0], v.dtype.range[1] + 1, v.shape).astype(v.dtype.array)
                for v in self.b.graph.inputs]  # fmt: skip


def wrong(made: Views, seed: int) -> tuple[list[str], bool]:
    """Where three runs differ from those without arrays of their own; whether there were any."""
    model = Model(made.b.graph)
    used = any(isinstance(step.run, StaticRun) for step in model._plan.steps)
    given = [made.inputs(10 * seed + n) for n in range(3)]
    ours = [model.run(*each) for each in given]  # all are kept: no run may change another's
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "static_runs", lambda found, bounds: found)
        plain = Model(made.b.graph)
    found = []
    for number, each in enumerate(given):
        for place, (a, b) in enumerate(zip(ours[number], plain.run(*each), strict=True)):
            if a.dtype != b.dtype or not np.array_equal(a, b):
                found.append(f"graph {seed}, run {number}, output {place}")
    return found, used


@pytest.mark.parametrize("block", range(4))
def test_equal_to_runs_without(block: int) -> None:
    found, used = list[str](), 0
    for seed in range(75 * block, 75 * block + 75):
        differing, is_used = wrong(Views(seed), seed)
        found += differing
        used += is_used
    assert not found
    assert used > 50, "most graphs have runs of small operators"


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_equal_to_the_reference_model(seed: int) -> None:
    made = Views(seed)
    model, given = Model(made.b.graph), made.inputs(seed)
    for ours, right in zip(model.run(*given), run_reference(write(made.b.graph), given)):
        np.testing.assert_array_equal(ours, right)
        assert ours.dtype == right.dtype

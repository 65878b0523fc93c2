"""Heads of attention without transpositions, and values that are read in one shape alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from judges.improved import Case, Random, conv, emitted, names, rescale, same
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.rewrite import improve
from tosaic.spec.dtypes import I8, I32
from tosaic.targets.ethosu.target import ETHOS_U


def apart(b: Builder, random: Random, x: Value, heads: int, size: int, way: int) -> list[Value]:
    """Query, key and value as [heads, rows, size], as people write it."""
    rows = x.shape[2]
    if way == 0:  # a layer for each of them
        parts = [conv(b, random, x, heads * size, (1, 1)) for _ in range(3)]
        split = [b.RESHAPE(p, b.shape((rows, heads, size))) for p in parts]
        return [b.TRANSPOSE(p, perms=(1, 0, 2)) for p in split]
    whole = conv(b, random, x, 3 * heads * size, (1, 1))
    if way == 1:  # reshape, permute, unbind
        y = b.TRANSPOSE(b.RESHAPE(whole, b.shape((rows, 3, heads, size))), perms=(1, 2, 0, 3))
        pieces = [
            b.SLICE(y, b.shape((i, 0, 0, 0)), b.shape((1, heads, rows, size))) for i in range(3)
        ]
    elif way == 2:  # chunk, then reshape and transpose
        chunks = [
            b.SLICE(whole, b.shape((0, 0, 0, i * heads * size)),
                    b.shape((1, 1, rows, heads * size))) for i in range(3)
        ]  # fmt: skip
        split = [b.RESHAPE(c, b.shape((1, rows, heads, size))) for c in chunks]
        pieces = [b.TRANSPOSE(c, perms=(0, 2, 1, 3)) for c in split]
    else:  # each head has its own three side by side
        y = b.TRANSPOSE(b.RESHAPE(whole, b.shape((rows, heads, 3, size))), perms=(2, 1, 0, 3))
        pieces = [
            b.SLICE(y, b.shape((i, 0, 0, 0)), b.shape((1, heads, rows, size))) for i in range(3)
        ]
    return [b.RESHAPE(p, b.shape((heads, rows, size))) for p in pieces]


def attention(b: Builder, random: Random) -> Value:
    heads, size, rows = (int(random.integers(low, high)) for low, high in ((2, 5), (3, 20), (4, 9)))
    x = b.input(I8, (1, 1, rows, 24))
    query, key, value = apart(b, random, x, heads, size, int(random.integers(4)))
    zero = b.const([3], I8)
    scores = b.MATMUL(query, b.TRANSPOSE(key, perms=(0, 2, 1)), zero, zero, out=I32)
    shares = rescale(b, scores, random, bits=9 + int(math.log2(size)) // 2)
    sums = b.MATMUL(shares, value, zero, zero, out=I32)
    mixed = b.RESHAPE(rescale(b, sums, random, bits=7), b.shape((1, heads, rows, size)))
    turned = b.TRANSPOSE(mixed, perms=(0, 2, 1, 3))
    return conv(b, random, b.RESHAPE(turned, b.shape((1, 1, rows, heads * size))), 16, (1, 1))


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5])
def test_heads_are_multiplied_one_by_one_and_nothing_is_moved(seed: int) -> None:
    old, new = same("ethos-u85-256", attention, seed)
    heads = next(op for op in old.ops if op.name == "MATMUL").ins[0].shape[0]
    assert names(new)["MATMUL"] == 2 * heads
    for op in new.ops:  # but for keys, next to their product, where it is none on the NPU
        turns = op.name == "TRANSPOSE"
        assert not turns or op.outs[0] in {o.ins[1] for o in new.ops if o.name == "MATMUL"}


def test_an_npu_that_turns_no_matrix_multiplies_all_heads_at_once() -> None:
    _, new = same("ethos-u55-128", attention, 0)
    assert names(new)["MATMUL"] == 2


def two_shapes(b: Builder, random: Random) -> Value:
    """A value as an image for a convolution, and as rows for what works on rows."""
    x = conv(b, random, b.input(I8, (1, 1, 7, 24)), 24, (1, 1))
    rows = b.RESHAPE(x, b.shape((7, 24)))
    sums = b.REDUCE_SUM(b.MUL(rows, rows, b.const([0], I8), out=I32), axis=1)
    level = rescale(b, sums, random, bits=10)
    wide = [wider(b, v) for v in (rows, level)]
    centred = rescale(b, b.SUB(*wide), random, bits=1)
    image = b.RESHAPE(centred, b.shape((1, 1, 7, 24)))
    both = [wider(b, v) for v in (image, conv(b, random, x, 24, (1, 1)))]
    return rescale(b, b.ADD(*both), random, bits=1)


def wider(b: Builder, x: Value) -> Value:
    return b.RESCALE(
        x, b.const([1 << 30], I32), b.const([30], I8), b.const([0], x.dtype), b.const([0], I32),
        scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False, out=I32,
    )  # fmt: skip


def copied(graph: Graph) -> int:
    """RESHAPE of values that somebody else reads too."""
    uses = graph.uses()
    return sum(op.name == "RESHAPE" and len(uses[op.ins[0]]) > 1 for op in graph.ops)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("seed", range(2))
def test_a_value_is_read_in_one_shape(target: str, seed: int) -> None:
    old, new = same(target, two_shapes, seed)
    assert copied(old)
    assert not copied(new)


def scores(b: Builder, random: Random) -> Value:
    """Rows that are turned, and read as they are."""
    x = conv(b, random, b.input(I8, (1, 3, 5, 8)), 24, (1, 1))
    turned = b.TRANSPOSE(b.RESHAPE(x, b.shape((15, 24))), perms=(1, 0))
    largest = b.RESHAPE(b.REDUCE_MAX(turned, axis=0), b.shape((1, 3, 5, 1)))
    return rescale(b, b.SUB(wider(b, x), wider(b, largest)), random, bits=1)


def test_a_transposition_takes_a_value_in_its_own_shape() -> None:
    old, new = same("ethos-u55-128", scores, 1)
    assert copied(old)
    assert not copied(new)


@pytest.mark.parametrize(("case", "seed"), [(attention, 3), (scores, 1)])
def test_what_vela_finds_slower_in_parts_stays_whole(case: Case, seed: int) -> None:
    """Heads of few rows, and a RESHAPE that is a copy and still less than a TRANSPOSE of images."""
    cycles, target = [], ETHOS_U["ethos-u85-256"]
    for known, forms in ((target, True), (replace(target, judge=None), True), (target, False)):
        b = Builder(target.env, Graph("case"))
        b.output(case(b, np.random.default_rng(seed)))
        made = emitted(target.name, known.improve(b.graph, forms=forms))
        cycles.append(made.result.performance.total_cycles)
    judged, by_formulas, without = cycles
    assert judged <= without < by_formulas


def test_shapes_are_left_alone_without_costs() -> None:
    b = Builder(ETHOS_U["ethos-u85-256"].env, Graph("case"))
    b.output(two_shapes(b, np.random.default_rng(0)))
    assert copied(improve(b.graph, b.env))

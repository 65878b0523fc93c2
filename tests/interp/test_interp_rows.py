"""Chains of row-local operators, digits of products and scalar rescaling equal the definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from judges.reference import run_reference
from tosaic.errors import Unpredictable
from tosaic.files.flatbuffer import write
from tosaic.interp import int_matmul, row_chains
from tosaic.interp.bounds import Bounds
from tosaic.interp.kernel import TORCH
from tosaic.interp.model import Model
from tosaic.interp.rescale import Rescale
from tosaic.interp.rescale_scalar import scalar_rescale
from tosaic.interp.row_chains import RowChain
from tosaic.ir import Builder
from tosaic.ir.graph import Graph, TensorType, Value
from tosaic.spec.dtypes import I8, I16, I32, DType
from tosaic.spec.env import everything

RNG = np.random.default_rng(5)


def rescale(
    b: Builder, x: Value, multiplier: int, shift: int, out: DType, zps: tuple[int, int] = (0, 0)
) -> Value:
    return b.RESCALE(
        x, b.const([multiplier], I32), b.const([shift], I8), b.const([zps[0]], x.dtype),
        b.const([zps[1]], out), scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
        out=out,
    )  # fmt: skip


def softmax(rows: tuple[int, ...], width: int) -> Graph:
    """What a softmax is made of, with a residual sum, a constant of many rows and two results."""
    b = Builder(everything(level="none"), Graph("main"))
    x = b.input(I16, (*rows, width), "x")
    wide = rescale(b, x, 1 << 30, 30, I32)
    halves = [b.SLICE(wide, b.shape((*(0,) * len(rows), n)), b.shape((*rows, width // 2)))
              for n in (0, width // 2)]  # fmt: skip
    top = b.REDUCE_MAX(b.MAXIMUM(*halves, nan_mode="PROPAGATE"), axis=len(rows),
                       nan_mode="PROPAGATE")  # fmt: skip
    below = b.SUB(wide, top)
    index = rescale(b, below, 1540092563, 32, I16)
    entries = np.linspace(0, 32000, 513).astype(np.int16)
    looked = b.TABLE(index, b.const(entries, I16))
    exps = rescale(b, looked, 1 << 30, 37, I16)
    flat = b.RESHAPE(exps, b.shape((int(np.prod(rows)), width)))
    whole = rescale(b, flat, 1 << 30, 30, I32)
    total = b.REDUCE_SUM(whole, axis=1)
    offsets = b.const(RNG.integers(-9, 10, (int(np.prod(rows)), width)), I32)
    mixed = b.ADD(b.MUL(whole, total, b.const([10], I8)), offsets)
    b.output(rescale(b, mixed, 1 << 30, 51, I8, (0, -3)), flat)
    return b.graph


@pytest.mark.parametrize("block", [1 << 9, 1 << 12, 1 << 20])
def test_a_chain_of_rows_equals_the_reference_model(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_chains, "BLOCK", block)
    graph = softmax((3, 180), 500)
    model = Model(graph)
    chains = [step.run for step in model._plan.steps if isinstance(step.run, RowChain)]
    assert len(chains) == 1, "all of it is one chain"
    x = RNG.integers(-16000, 16000, (3, 180, 500)).astype(np.int16)
    wanted = run_reference(write(graph), [x])
    for ours, right in zip(model.run(x), wanted, strict=True):
        np.testing.assert_array_equal(ours, right)
        assert len(np.unique(right)) > 15


def test_a_sum_that_overflows_in_one_block_is_named() -> None:
    b = Builder(everything(level="none"), Graph("main"))
    x = b.input(I32, (400, 256), "x")
    b.output(b.ADD(b.SUB(x, b.const([[5]], I32)), x, names=["twice"]))
    model = Model(b.graph)
    given = np.full((400, 256), 7, np.int32)
    model.run(given)
    given[399, 255] = (1 << 30) + 9
    with pytest.raises(Unpredictable, match="ADD: the sum overflows"):
        model.run(given)


def test_what_writes_variables_keeps_its_order() -> None:
    b = Builder(everything(level="none"), Graph("main"))
    x = b.input(I32, (300, 256), "x")
    kind = TensorType(I8, (300, 256))
    b.op("VARIABLE", name="state", type=kind)
    old = b.op("VARIABLE_READ", name="state", out=kind)
    b.output(b.ADD(b.SUB(x, b.const([[5]], I32)), rescale(b, old, 1 << 30, 30, I32)))
    assert not any(g.kind for g in row_chains.row_chains(b.graph, {}))


@pytest.mark.parametrize("kind", [I8, I16, I32])
@pytest.mark.parametrize("out", [I8, I16, I32])
def test_a_rescale_by_one_number_equals_the_definition(kind: DType, out: DType) -> None:
    """Over shifts and zero points, at the ends of what may come and at random."""
    ways = set()
    for number in range(160):
        shift = int(RNG.integers(2, 60))
        multiplier = int(RNG.integers(0, 1 << 31)) >> int(RNG.integers(0, 31))
        if number % 3 == 0:
            multiplier = 1 << int(RNG.integers(0, 31))
        points = [int(RNG.integers(*t.range)) if t is I8 else 0 for t in (kind, out)]
        reach = int(RNG.integers(1, kind.range[1])) >> int(RNG.integers(0, kind.bits - 2))
        ends = max(-reach + points[0], kind.range[0]), min(reach + points[0], kind.range[1])
        b = Builder(everything(level="none"), Graph("main"))
        x = b.input(kind, (2, 400), "x")
        op = rescale(b, x, multiplier, shift, out, (points[0], points[1])).producer
        assert op is not None
        run = scalar_rescale(op, ends)
        if run is None:
            continue
        ways.add(run.__qualname__)
        values = RNG.integers(ends[0], ends[1] + 1, (2, 400))
        values[0, :2] = ends
        given = torch.from_numpy(values).to(TORCH[kind])
        definition = Rescale(
            torch.tensor([multiplier]), torch.tensor([shift]), input=TORCH[kind],
            output=TORCH[out], input_zp=points[0], output_zp=points[1],
        )  # fmt: skip
        assert torch.equal(run(given), definition.exact(given)), (multiplier, shift, ends, points)
    assert len(ways) == 3, "each way was taken"


@pytest.mark.parametrize(("a_ends", "b_ends"), [
    ((-128, 127), (-128, 127)), ((0, 32766), (-124, 131)), ((-32768, 32767), (-32768, 32767)),
    ((-300, 300), (0, 255)),
])  # fmt: skip
def test_products_by_digits_equal_those_in_float64(
    a_ends: tuple[int, int], b_ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int_matmul, "_LARGE", 1)
    monkeypatch.setattr(int_matmul, "_WIDE", 1)
    if not int_matmul.available():
        pytest.skip("this processor's int8 products are not exact")
    kind = torch.int8 if a_ends == (-128, 127) else torch.int16
    a = torch.from_numpy(RNG.integers(a_ends[0], a_ends[1] + 1, (2, 33, 70))).to(kind)
    b = torch.from_numpy(RNG.integers(b_ends[0], b_ends[1] + 1, (2, 70, 19))).to(kind)
    a[0, 0], b[0, :, 0], a[1, 0], b[1, :, 0] = a_ends[0], b_ends[0], a_ends[1], b_ends[1]
    points = (5, -9) if kind is torch.int8 else (0, 0)
    found = int_matmul.matmul(
        a, b, a_zp=points[0], b_zp=points[1], accumulator=torch.int64, a_ends=a_ends,
        b_ends=b_ends,
    )  # fmt: skip
    assert torch.equal(found.double(), (a.double() - points[0]) @ (b.double() - points[1]))


@pytest.mark.parametrize("kind", [I8, I16])
def test_a_column_that_is_read_as_a_row_is_multiplied_as_one(kind: DType) -> None:
    """Its stride along the one row is 1, with which oneDNN computes nothing at all."""
    b = Builder(everything(level="none"), Graph("main"))
    left, right = b.input(kind, (1, 1024, 1), "a"), b.input(kind, (1, 1024, 1200), "b")
    zero = b.const([0], kind)
    b.output(b.MATMUL(b.TRANSPOSE(left, perms=(0, 2, 1)), right, zero, zero))
    low, high = kind.range
    x, y = (RNG.integers(low, high + 1, v.shape).astype(kind.array) for v in (left, right))
    (found,) = Model(b.graph).run(x, y)
    assert np.array_equal(found, x.transpose(0, 2, 1).astype(np.int64) @ y.astype(np.int64))


def test_bounds_hold_what_comes() -> None:
    graph = softmax((2, 40), 60)
    bounds = Bounds()
    bounds.add(graph)
    narrow = [v for op in graph.ops for v in op.outs if bounds.of(v) != v.dtype.range]
    assert len(narrow) > 8
    seen = Graph("main", inputs=graph.inputs, outputs=narrow, ops=graph.ops)
    for reach in (30, 32767):
        x = RNG.integers(-reach, reach + 1, (2, 40, 60)).astype(np.int16)
        for value, array in zip(narrow, Model(seen).run(x), strict=True):
            low, high = bounds.of(value)
            assert low <= int(array.min()), value
            assert int(array.max()) <= high, value


@pytest.mark.parametrize("points", [(0, 0), (-128, 127), (5, -9)])
def test_bounds_of_a_product_are_its_extremes(points: tuple[int, int]) -> None:
    b = Builder(everything(level="none"), Graph("main"))
    left, right = b.input(I8, (1, 4, 9), "a"), b.input(I8, (1, 9, 4), "b")
    product = b.MATMUL(left, right, *(b.const([zp], I8) for zp in points))
    b.graph.outputs.append(product)
    bounds = Bounds()
    bounds.add(b.graph)
    ends = np.array([-128, 127, -128, 127], np.int8)
    given = np.repeat(ends, 9).reshape(1, 4, 9), np.tile(ends[[0, 0, 1, 1]], 9).reshape(1, 9, 4)
    (found,) = Model(b.graph).run(*given)
    assert bounds.of(product) == (int(found.min()), int(found.max()))

"""Results that the graph itself reads again."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.files.flatbuffer import write
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.lowering.builder import Lowering
from tosaic.sim import ethosu
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env
from tosaic.targets.ethosu.vela import VelaConfig, run_vela
from tosaic.targets.ethosu.vela_workarounds import apply_workarounds

ENV = Env.parse("TOSA-1.0+INT")


def turned_matrix(shape: tuple[int, ...] = (1, 3, 8, 8)) -> Graph:
    """Two results, both of which a product reads turned."""
    b = Lowering(ENV)
    both = [b.CLAMP(b.input("i8", shape, f"x{i}"), min_val=-90, max_val=90) for i in range(2)]
    zero = b.const([0], d.I8)
    turned = [b.reshape(b.permute(y, (0, 1, 3, 2)), shape[1:]) for y in both]
    product = b.MATMUL(*turned, zero, zero, out=d.I32)
    for result in (*both, b.rescale(product, [0.01], 0, d.I8)):
        b.output(result)
    return b.graph


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_a_result_that_is_the_second_matrix_of_a_product_is_not_lost(target: str) -> None:
    random = np.random.default_rng(0)
    inputs = [random.integers(-128, 128, (1, 3, 8, 8)).astype(np.int8) for _ in range(2)]
    lost = ethosu.load(run_vela(write(turned_matrix()), VelaConfig(target))).run(*inputs)
    assert len(lost) == 2, "Vela keeps all three: its row is needless"
    graph = turned_matrix()
    apply_workarounds(graph, ENV, target[6:9])
    found = ethosu.load(run_vela(write(graph), VelaConfig(target))).run(*inputs)
    for mine, right in zip(found, Model(turned_matrix()).run(*inputs), strict=True):
        np.testing.assert_array_equal(mine.reshape(right.shape), right)


def chosen(way: str) -> Graph:
    """A bool that is a result and that a choice or a reduction reads, in one shape or in two."""
    b = Lowering(Env.parse("TOSA-1.0+INT"))
    mask = b.GREATER(b.input("i32", (3, 4), "x"), b.const([[2]], d.I32))
    turned = b.RESHAPE(mask, b.shape((2, 6)))
    if way == "any":
        results = mask, b.REDUCE_ANY(mask, axis=1)
    else:
        one = mask if way == "same" else turned
        picked = b.SELECT(one, *(b.input("i8", one.shape, name) for name in "yz"))
        results = turned if way == "shaped" else mask, picked
    for result in results:
        b.output(result)
    return b.graph


@pytest.mark.parametrize("way", ["same", "turned", "shaped", "any"])
def test_a_bool_that_is_a_result_chooses_as_well(way: str) -> None:
    random, target = np.random.default_rng(0), "ethos-u85-256"
    inputs = [random.integers(-9, 9, v.shape).astype(v.dtype.array) for v in chosen(way).inputs]
    wanted = Model(chosen(way)).run(*inputs)

    def right(graph: Graph) -> bool:
        found = ethosu.load(run_vela(write(graph), VelaConfig(target))).run(*inputs)
        return all(np.array_equal(f.reshape(w.shape), w) for f, w in zip(found, wanted))

    graph = chosen(way)
    apply_workarounds(graph, ENV, "u85")
    assert right(graph)
    assert not right(chosen(way)), "Vela keeps the two apart: its row is needless"


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_input_that_is_an_output_is_copied(target: str) -> None:
    b = Lowering(ENV)
    b.output(b.input("i8", (3, 4), "x"))
    apply_workarounds(b.graph, ENV, target[6:9])
    data = np.arange(12, dtype=np.int8).reshape(3, 4)
    (found,) = ethosu.load(run_vela(write(b.graph), VelaConfig(target))).run(data)
    np.testing.assert_array_equal(found.reshape(3, 4), data)

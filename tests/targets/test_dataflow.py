"""The dataflow of a stream is that of its graph; where it is not, the check names the operator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu.convolutions import convolve, layer
from npu.maker import Maker
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8
from tosaic.targets.ethosu.check import Fault, check_stream, expected_of, trial
from tosaic.targets.ethosu.dataflow import Misread, check_dataflow
from tosaic.targets.ethosu.delegate import compile_graph, origins
from tosaic.targets.ethosu.vela import VelaConfig

TARGETS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-256")


def depthwise(b: Builder, x: Value, zero_point: int) -> Value:
    """A product of each channel by 1 less the zero point."""
    weight = b.const(np.ones((1, 1, x.shape[3], 1)), "i8")
    zero = b.const([0], "i8")
    acc = b.DEPTHWISE_CONV2D(
        x, weight, b.const([0], "i32"), zero, b.const([zero_point], "i8"), pad=(0, 0, 0, 0),
        stride=(1, 1), dilation=(1, 1), acc_type="i32",
    )  # fmt: skip
    return b.RESCALE(
        acc, b.const([1 << 30], "i32"), b.const([36], "i8"), b.const([0], "i32"), zero,
        out=I8, scale32=True, rounding_mode="SINGLE_ROUND", per_channel=False,
    )  # fmt: skip


def twins(zero_points: tuple[int, int]) -> Graph:
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 8, 8, 128), "x")
    b.output(*(depthwise(b, x, zero) for zero in zero_points))
    return b.graph


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_weights_that_differ_by_their_zero_points_and_are_encoded_once_are_seen(
    target: str,
) -> None:
    made = compile_graph(twins((0, -126)), VelaConfig(target))
    with pytest.raises(Misread, match="DEPTHWISE_CONV2D .*is given the weights of DEPTHWISE"):
        check_dataflow(made.graph, made.simulation, origins(made.graph, made.result.database))


@pytest.mark.parametrize("target", TARGETS)
def test_a_stream_with_the_weights_of_another_operator_is_a_fault(target: str) -> None:
    found = trial(twins((0, -126)), VelaConfig(target))
    assert isinstance(found, Fault)
    assert found.failure.reason.startswith("Vela compiles the graph wrongly")


@pytest.mark.parametrize("target", TARGETS)
def test_weights_that_are_equal_may_be_shared(target: str) -> None:
    assert not isinstance(trial(twins((-126, -126)), VelaConfig(target)), Fault)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("dilation", "stride", "pad"),
    [
        ((3, 2), (1, 3), (6, 1, 0, 2)),
        ((4, 1), (2, 3), (4, 0, 0, 2)),
        ((3, 1), (1, 1), (3, 3, 0, 0)),
    ],
)
def test_a_dilated_convolution_may_read_and_write_every_so_many_rows(
    target: str, dilation: tuple[int, int], stride: tuple[int, int], pad: tuple[int, ...]
) -> None:
    """Vela takes dilation of 3 and more apart by rows; layers before and after it have all rows."""
    m = Maker((7,), "u85" in target)
    x = layer(m, m.input(I8, (1, 17, 17, 4)), 20, 1, rounding="SINGLE_ROUND", per_channel=False)
    acc = convolve(m, x, m.draw(I8, (20, 3, 1, 20)), pad=pad, stride=stride, dilation=dilation)
    x = m.settle(acc, I8, per_channel=False, rounding="SINGLE_ROUND")
    graph = m.finish(layer(m, x, 5, 1, rounding="SINGLE_ROUND", per_channel=False))
    assert not isinstance(trial(graph, VelaConfig(target), m.data), Fault)


@pytest.mark.parametrize("stride", [(2, 1), (4, 1), (1, 2), (3, 2)])
def test_a_transposed_convolution_may_write_every_so_many_rows(stride: tuple[int, int]) -> None:
    m = Maker((7,), u85=True)
    x, kernel = m.input(I8, (1, 4, 5, 3)), m.draw(I8, (20, 5, 4, 3))
    acc = convolve(m, x, kernel, op="TRANSPOSE_CONV2D", out_pad=(0, 0, -1, -1), stride=stride)
    graph = m.finish(m.settle(acc, I8, per_channel=True, rounding="SINGLE_ROUND"))
    assert not isinstance(trial(graph, VelaConfig("ethos-u85-256"), m.data), Fault)


@pytest.mark.parametrize("target", TARGETS)
def test_a_copy_of_constants_may_be_read_for_the_constants(target: str) -> None:
    b = Builder("TOSA-1.0+INT")
    numbers = b.RESHAPE(b.const(np.arange(28), "i8"), b.shape((28,)))
    piece = b.SLICE(numbers, b.shape((11,)), b.shape((4,)))
    column, row = b.RESHAPE(piece, b.shape((4, 1))), b.RESHAPE(piece, b.shape((4,)))
    b.output(column, b.TILE(row, b.shape((2,))))
    assert not isinstance(trial(b.graph, VelaConfig(target)), Fault)


def test_where_vela_says_nothing_of_its_commands_the_report_says_that() -> None:
    made = compile_graph(twins((0, 0)), VelaConfig(TARGETS[0]))
    bare = replace(made, result=replace(made.result, database={}), checks=[])
    told, _ = check_stream(bare, expected_of(bare.model, bare.graph))
    assert told.startswith("dataflow was not checked: Vela does not say")

"""Forms that Vela 5.2 compiles wrongly and that Tosaic writes otherwise, at no cost.

Each is wrong on the simulator as it stands, beside the reference model, and right as it is emitted.
"""

from __future__ import annotations

import numpy as np
import pytest

from npu.configurations import Configuration, compile_stream
from npu.convolutions import convolve
from npu.maker import UNIT, Maker
from npu.test_simulator_pieces import problem
from npu.wrong_forms import U55, U85
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I4, I8, I16, I32, I48, DType
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela_workarounds import apply_workarounds

U65 = Configuration("u65-256", "Ethos_U65_High_End", "Dedicated_Sram_384KB")
LARGE = [Configuration(f"u85-{n}", "Ethos_U85_SYS_DRAM_Mid", "Sram_Only") for n in (1024, 2048)]
EACH = pytest.mark.parametrize("machine", [U55, U65, U85], ids=["u55", "u65", "u85"])
OLDER = pytest.mark.parametrize("machine", [U55, U65], ids=["u55", "u65"])


def prepared(graph: Graph, machine: Configuration) -> Graph:
    env = ETHOS_U[f"ethos-{machine.accelerator}"].env
    apply_workarounds(graph, env, machine.accelerator[:3])
    return graph


def assert_repaired(m: Maker, machine: Configuration, *outputs: Value) -> Graph:
    graph = m.finish(*outputs)
    assert problem(graph, m.data, machine)
    assert not problem(prepared(graph, machine), m.data, machine)
    return graph


@EACH
def test_a_value_that_two_consumers_read_in_two_shapes(machine: Configuration) -> None:
    """The mean of a normalised series: taken off at the start, and added behind a transposition."""
    m = Maker((7,), machine is U85)
    mean = m.rescale(m.input(I32, (1, 1, 3)), (1182410055, 24), I8, (0, -128))
    first = m.b.SUB(m.rescale(m.input(I8, (1, 64, 3)), (1 << 30, 11), I32),
                    m.rescale(mean, (1950121279, 15), I32, (-128, 0)))  # fmt: skip
    turned = m.b.RESHAPE(m.rescale(mean, (1853656650, 14), I32, (-128, 0)), m.b.shape((1, 3, 1)))
    last = m.b.ADD(m.rescale(m.input(I8, (1, 3, 16)), (1 << 30, 11), I32), turned)
    parts = [m.rescale(sums, (1 << 30, 49), I8) for sums in (first, last)]
    graph = assert_repaired(m, machine, *parts)
    assert len(graph.ops) == 10, "no copy is needed"


@OLDER
@pytest.mark.parametrize("name", ["ADD", "SUB", "MAXIMUM", "ARITHMETIC_RIGHT_SHIFT"])
def test_a_first_operand_of_one_element_at_rank_5(machine: Configuration, name: str) -> None:
    m = Maker((7,), u85=False)
    least = 1 if "SHIFT" in name else 1 << 20
    x = m.input(I32, (2, 3, 2, 4, 5), m.rng.integers(0, 31 if least == 1 else 999, (2, 3, 2, 4, 5)))
    more = {"round": True} if least == 1 else {}
    one = m.b.const(np.full((1,) * 5, 1 << 29 if least == 1 else 400), I32)
    assert_repaired(m, machine, m.b.op(name, one, x, **more))


@OLDER
@pytest.mark.parametrize("kind", [I8, I16])
def test_an_operand_in_32_bits_that_is_a_result_as_well(
    machine: Configuration, kind: DType
) -> None:
    """As when an inner value of a softmax is cut out: its partner is a piece, and not fused."""
    m = Maker((7,), u85=False)
    x = m.input(kind, (1, 4, 10))
    half = m.b.SLICE(x, m.b.shape((0, 0, 5)), m.b.shape((1, 4, 5)))
    wide, other = m.rescale(half, UNIT, I32), m.rescale(m.input(kind, (1, 4, 5)), UNIT, I32)
    assert_repaired(m, machine, m.rescale(m.b.MAXIMUM(wide, other), UNIT, kind), wide)


@OLDER
def test_a_result_between_two_transpositions(machine: Configuration) -> None:
    m = Maker((7,), u85=False)
    turned = m.b.TRANSPOSE(m.input(I8, (6, 6, 3, 8)), perms=(3, 2, 0, 1))
    graph = m.finish(turned, m.b.TRANSPOSE(turned, perms=(2, 0, 3, 1)))
    assert len(compile_stream(flatbuffer.write(graph), machine).outputs) == 1
    assert not problem(prepared(graph, machine), m.data, machine)


@EACH
@pytest.mark.parametrize("kind", [I8, I16, I32])
def test_a_result_between_an_axis_of_one_element_and_a_transposition(
    machine: Configuration, kind: DType
) -> None:
    """Vela makes a TRANSPOSE of the RESHAPE, then one of both, and forgets what is between them."""
    m = Maker((7,), machine is U85)
    shaped = m.b.RESHAPE(m.input(kind, (10, 3)), m.b.shape((1, 10, 3)))
    graph = m.finish(shaped, m.b.TRANSPOSE(shaped, perms=(0, 2, 1)))
    assert len(compile_stream(flatbuffer.write(graph), machine).outputs) == 1
    assert not problem(prepared(graph, machine), m.data, machine)


@EACH
@pytest.mark.parametrize("via", [(5, 1, 2), (10,), (2, 5)])
def test_a_rescaled_tensor_that_two_consumers_read_in_another_shape(
    machine: Configuration, via: tuple[int, ...]
) -> None:
    m = Maker((7,), machine is U85)
    x = m.b.RESHAPE(m.rescale(m.input(I8, via), (1273507745, 31), I8), m.b.shape((5, 2)))
    products = [m.b.MUL(x, m.input(I8, (5, 2)), m.zero(I8)) for _ in range(2)]
    graph = assert_repaired(m, machine, *products)
    assert [op.name for op in graph.ops] == ["RESCALE", "RESHAPE", "MUL", "RESHAPE", "MUL"]


@EACH
def test_a_piece_of_a_rescaled_tensor_in_another_shape_that_is_read_twice(
    machine: Configuration,
) -> None:
    m = Maker((7,), machine is U85)
    x = m.rescale(m.input(I8, (4, 1, 3, 2, 1)), (1771712275, 31), I8, (0, 9))
    x = m.b.RESHAPE(x, m.b.shape((4, 1, 3, 2)))
    x = m.b.SLICE(x, m.b.shape((0, 0, 1, 0)), m.b.shape((4, 1, 1, 2)))
    graph = assert_repaired(m, machine, m.b.MUL(x, x, m.zero(I8)))
    names = ["RESCALE", "RESHAPE", "SLICE", "RESHAPE", "SLICE", "MUL"]
    assert [op.name for op in graph.ops] == names


@OLDER
@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
def test_two_pieces_of_a_tensor_in_another_shape(machine: Configuration, name: str) -> None:
    """As in a maximum by halves; each piece has a RESHAPE of its own."""
    m = Maker((7,), u85=False)
    x = m.b.RESHAPE(m.rescale(m.input(I16, (8, 3, 1)), (1271712275, 31), I16), m.b.shape((4, 6)))
    halves = [m.b.SLICE(x, m.b.shape((0, n)), m.b.shape((4, 3))) for n in (0, 3)]
    most = m.b.op(name, *(m.rescale(half, UNIT, I32) for half in halves))
    graph = assert_repaired(m, machine, m.rescale(most, UNIT, I16))
    assert [op.name for op in graph.ops].count("RESHAPE") == 2


@EACH
@pytest.mark.parametrize("kind", [I8, I16])
def test_a_result_between_a_transposition_and_a_sum(machine: Configuration, kind: DType) -> None:
    """Vela turns what it sums so that the sum is over channels, which is turned back here."""
    m = Maker((7,), machine is U85)
    turned = m.b.TRANSPOSE(m.input(kind, (9, 12, 6)), perms=(0, 2, 1))
    sums = m.b.REDUCE_SUM(m.rescale(turned, UNIT, I32), axis=1)
    graph = m.finish(turned, sums)
    assert len(compile_stream(flatbuffer.write(graph), machine).outputs) == 1
    assert not problem(prepared(graph, machine), m.data, machine)


@OLDER
def test_sums_of_48_bits_that_two_read_are_made_for_each(machine: Configuration) -> None:
    m = Maker((7,), u85=False)
    x, weight = m.input(I16, (1, 4, 3, 5), reach=900), m.draw(I8, (5, 1, 1, 5), reach=3)
    acc = m.b.CONV2D(x, m.b.const(weight, I8), m.zero(I48), m.zero(I16), m.zero(I8),
                     pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=I48)  # fmt: skip
    parts = [m.rescale(acc, (22857, shift), I16, scale32=False) for shift in (16, 17)]
    graph = m.finish(*parts)
    assert "could not run on NPU" in problem(graph, m.data, machine)
    assert not problem(prepared(graph, machine), m.data, machine)


@pytest.mark.parametrize("machine", LARGE, ids=["u85-1024", "u85-2048"])
@pytest.mark.parametrize("kind", [I8, I16])
def test_channels_that_are_turned_round_are_not_fused_with_their_product(
    machine: Configuration, kind: DType
) -> None:
    m = Maker((7,), u85=True)
    x = m.input(kind, (1, 3, 4, 5), reach=100)
    acc = convolve(m, x, m.draw(I8, (9, 1, 1, 5)), pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))
    y = m.settle(acc, kind, per_channel=False, rounding="SINGLE_ROUND")
    graph = m.finish(m.b.REVERSE(y, axis=3))
    assert "block configuration" in problem(graph, m.data, machine)
    env = ETHOS_U[f"ethos-{machine.accelerator}"].env
    apply_workarounds(graph, env, machine.accelerator)
    assert not problem(graph, m.data, machine)


def test_two_rescales_by_one_of_a_48_bit_sum_are_kept_apart() -> None:
    """Vela ends the process where they are not, so that is not tried here."""
    m = Maker((7,), u85=True)
    x, weight = m.input(I16, (1, 4, 3, 5), reach=900), m.draw(I8, (5, 1, 1, 5), reach=3)
    acc = m.b.CONV2D(x, m.b.const(weight, I8), m.zero(I48), m.zero(I16), m.zero(I8),
                     pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type=I48)  # fmt: skip
    sums = m.b.RESHAPE(m.rescale(acc, (1 << 14, 14), I16, scale32=False), m.b.shape((12, 5)))
    graph = m.finish(m.b.ABS(m.rescale(sums, UNIT, I32)))
    names = [op.name for op in prepared(graph, U85).ops]
    assert names == ["CONV2D", "RESCALE", "RESHAPE", "CLAMP", "RESCALE", "ABS"]
    assert not problem(graph, m.data, U85)


@EACH
def test_ones_with_unequal_zero_points_are_two_weights(machine: Configuration) -> None:
    m, parts = Maker((7,), machine is U85), []
    for zero in (-126, 0):
        sums = m.b.DEPTHWISE_CONV2D(
            m.input(I8, (1, 8, 8, 128)), m.b.const(np.ones((1, 1, 128, 1)), I8),
            m.b.const([0], I32), m.zero(I8), m.zero(I8, zero), pad=(0, 0, 0, 0), stride=(1, 1),
            dilation=(1, 1), acc_type=I32,
        )  # fmt: skip
        parts.append(m.rescale(sums, (1 << 30, 37), I8))
    assert_repaired(m, machine, *parts)


@EACH
def test_equal_bytes_in_a_convolution_over_three_axes_and_of_int4(machine: Configuration) -> None:
    """One array as weights of CONV2D and CONV3D, and of int4 and int8, each with a bias."""
    m, parts = Maker((7,), machine is U85), []
    array = m.rng.integers(-7, 8, (6, 3, 3, 5))
    for kind, name, bias in ((I8, "CONV2D", 0), (I4, "CONV2D", 900), (I8, "CONV3D", -900)):
        deep = name == "CONV3D"
        weight = m.b.const(array.reshape(6, 1, 3, 3, 5) if deep else array, kind)
        x = m.input(I8, (1, 1, 7, 6, 5) if deep else (1, 7, 6, 5))
        sums = m.b.op(name, x, weight, m.b.const([bias], I32), m.zero(I8), m.zero(kind),
                      pad=(0,) * (6 if deep else 4), stride=(1,) * (3 if deep else 2),
                      dilation=(1,) * (3 if deep else 2), acc_type=I32)  # fmt: skip
        parts.append(m.rescale(sums, (1 << 30, 34), I8))
    assert_repaired(m, machine, *parts)

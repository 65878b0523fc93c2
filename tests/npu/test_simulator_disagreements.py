"""Forms that Vela 5.2 compiles into bytes that do something else than TOSA says.

The simulator does what the registers say, so it must differ from the reference model here, as the
device would. If one of these tests fails, Vela or the simulator has changed its mind, and what
keeps the form from being emitted must be looked at again.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from judges.reference import run_reference
from npu.configurations import Configuration, compile_stream
from npu.convolutions import convolve
from npu.families import build, difference
from npu.maker import UNIT, Maker
from npu.runner import simulate
from tosaic.errors import TosaicError, Unsupported
from tosaic.files import flatbuffer
from tosaic.ir.graph import Value
from tosaic.spec.dtypes import BOOL, I8, I32
from tosaic.targets.ethosu.target import ETHOS_U, with_options

U55 = Configuration("u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram")
U85 = Configuration("u85-256", "Ethos_U85_SYS_DRAM_Mid", "Sram_Only")


def outcome(make: Callable[[Maker], Value], where: Configuration) -> str:
    """How the simulated bytes differ from the reference model."""
    maker = Maker((7,), where is U85)
    data = flatbuffer.write(maker.finish(make(maker)))
    expected = run_reference(data, maker.data)
    try:
        actual = simulate(compile_stream(data, where), maker.data, expected)
    except TosaicError as problem:  # the bytes are not even a correct program
        return f"{type(problem).__name__}: {problem}"
    return difference(actual, expected)


def padded(before: int, where: str = "top") -> Callable[[Maker], Value]:
    """A convolution with much padding before its input."""

    def make(m: Maker) -> Value:
        x = m.input(I8, (1, 4, 4, 3))
        pad, kernel = ((before, 0, 0, 0), (before + 1, 1)) if where == "top" else (
            (0, 0, before, 0), (1, before + 1)
        )  # fmt: skip
        acc = convolve(m, x, m.draw(I8, (6, *kernel, 3)), pad=pad, stride=(1, 1), dilation=(1, 1))
        return m.settle(acc, I8, per_channel=False)

    return make


@pytest.mark.parametrize("machine", [U55, U85], ids=["u55", "u85"])
@pytest.mark.parametrize("edge", ["top", "left"])
def test_padding_of_128_before_the_input_is_cut_to_seven_bits(
    machine: Configuration, edge: str
) -> None:
    assert outcome(padded(128, edge), machine)
    assert not outcome(padded(127, edge), machine)


def whole_scales(left: int, right: int) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        scaled = [
            m.rescale(m.input(I8, (1, 5, 6, 9)), (scale << 20, 20), I32) for scale in (left, right)
        ]
        return m.settle(m.b.ADD(*scaled), I8, per_channel=False, rounding="SINGLE_ROUND")

    return make


def test_a_sum_of_unequal_whole_scales_is_read_in_another_precision_on_u55() -> None:
    assert outcome(whole_scales(1, 2), U55)
    assert not outcome(whole_scales(2, 2), U55)
    assert not outcome(whole_scales(1, 2), U85)


def narrowed(reach: float) -> Callable[[Maker], Value]:
    return lambda m: m.b.CAST(m.input(I32, (1, 4, 5, 8), reach=reach), out=I8)


def test_a_narrowing_cast_saturates_on_u55() -> None:
    assert outcome(narrowed(5000), U55)
    assert not outcome(narrowed(50), U55)
    assert not outcome(narrowed(5000), U85)


def shifted(rounds: bool) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x = m.input(I32, (1, 4, 5, 8))
        amount = m.b.const(m.rng.integers(1, 9, (1, 4, 5, 8)), I32)
        return m.b.ARITHMETIC_RIGHT_SHIFT(x, amount, round=rounds)

    return make


def test_a_shift_to_the_right_always_rounds_on_u55() -> None:
    assert outcome(shifted(False), U55)
    assert not outcome(shifted(True), U55)
    assert not outcome(shifted(False), U85)


def enlarged(*out_pad: int) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x = m.input(I8, (1, 4, 4, 5))
        acc = convolve(
            m, x, m.draw(I8, (6, 3, 3, 5)), op="TRANSPOSE_CONV2D", out_pad=out_pad, stride=(2, 2)
        )
        return m.settle(acc, I8, per_channel=False)

    return make


def test_output_padding_before_a_transposed_convolution_is_lost_on_u55() -> None:
    assert outcome(enlarged(1, 0, 0, 0), U55)
    assert outcome(enlarged(0, 0, 1, 0), U55)
    assert not outcome(enlarged(0, 1, 0, 1), U55)
    assert not outcome(enlarged(1, 0, 1, 0), U85)


def test_a_transposed_convolution_cut_to_one_column_starts_at_the_wrong_place() -> None:
    def make(width: int) -> Callable[[Maker], Value]:
        def cut(m: Maker) -> Value:
            x, weight = m.input(I8, (1, 9, width, 5)), m.draw(I8, (6, 3, 3, 5))
            acc = convolve(m, x, weight, op="TRANSPOSE_CONV2D", out_pad=(0, 0, -2, -2),
                           stride=(2, 2))  # fmt: skip
            return m.settle(acc, I8, per_channel=False)

        return cut

    for machine in (U55, U85):
        assert outcome(make(2), machine)
        assert not outcome(make(3), machine)


@pytest.mark.parametrize("row", [True, False], ids=["row", "column"])
def test_a_transposed_convolution_of_one_row_cut_to_one_is_not_taken_on_u55(row: bool) -> None:
    size, cut = ((1, 4), (-1, -1, 0, 0)) if row else ((4, 1), (0, 0, -1, -1))

    def make(m: Maker) -> Value:
        x, weight = m.input(I8, (1, *size, 5)), m.draw(I8, (6, 3, 3, 5))
        acc = convolve(m, x, weight, op="TRANSPOSE_CONV2D", out_pad=cut, stride=(2, 2))
        return m.settle(acc, I8, per_channel=False)

    assert "could not run on NPU" in outcome(make, U55)
    assert not outcome(make, U85)
    maker = Maker((7,), u85=False)
    maker.b.constraints = ETHOS_U["ethos-u55-128"].constraints
    with pytest.raises(Unsupported, match="one row or column"):
        make(maker)


def doubled(border: tuple[int, int]) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        shapes = [m.b.shape(s) for s in ([4, 2, 4, 2], (-1, -1), border)]
        return m.b.RESIZE(m.input(I8, (1, 5, 6, 4)), *shapes, mode="NEAREST_NEIGHBOR", out=I8)

    return make


def test_a_wider_border_of_a_doubling_is_lost_on_u55() -> None:
    assert outcome(doubled((1, 3)), U55)
    assert not outcome(doubled((1, 1)), U55)


def test_the_rescale_behind_a_bilinear_resize_of_scale_one_is_lost_on_u85() -> None:
    def make(m: Maker) -> Value:
        shapes = [m.b.shape(s) for s in ([1, 1, 1, 1], (0, 0), (0, 0))]
        x = m.b.RESIZE(m.input(I8, (1, 5, 6, 4)), *shapes, mode="BILINEAR", out=I32)
        return m.rescale(x, (1 << 30, 31), I8)

    assert outcome(make, U85)


def given_weights(per_channel: bool) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x, weight = m.input(I8, (1, 5, 6, 9)), m.input(I8, (8, 1, 1, 9))
        acc = convolve(m, x, weight, pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1))
        return m.settle(acc, I8, per_channel=per_channel)

    return make


def test_scales_by_channel_are_lost_where_weights_are_an_input() -> None:
    """Vela takes the first channel's scale for all."""
    assert outcome(given_weights(True), U85)
    assert not outcome(given_weights(False), U85)


def multiplied(per_channel: bool) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x, y = m.input(I8, (2, 5, 9)), m.input(I8, (2, 9, 8))
        acc = m.b.MATMUL(x, y, m.zero(I8), m.zero(I8), out=I32)
        return m.settle(acc, I8, per_channel=per_channel)

    return make


def test_scales_by_column_of_a_product_are_those_of_the_first_on_u85() -> None:
    assert outcome(multiplied(True), U85)
    assert not outcome(multiplied(False), U85)
    assert not outcome(multiplied(True), U55)


def dilated(width: int) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x = m.input(I8, (1, 15, width, 8))
        acc = convolve(
            m, x, m.draw(I8, (12, 1, 3, 8)), pad=(0, 0, 6, 1 + 3 - width), stride=(1, 1),
            dilation=(1, 3),
        )  # fmt: skip
        return m.settle(acc, I8, per_channel=False)

    return make


@pytest.mark.parametrize("machine", [U55, U85], ids=["u55", "u85"])
def test_a_dilation_above_the_width_makes_an_operation_without_input(
    machine: Configuration,
) -> None:
    assert "leaves no input" in outcome(dilated(1), machine)
    assert not outcome(dilated(3), machine)


def test_a_loop_with_memory_of_its_own_uses_bytes_that_vela_does_not_ask_for() -> None:
    flags = ("--disable-chaining",)
    where = Configuration("u85-256", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram_384KB", flags)
    maker, graph = build("loop", "u85", 24)
    data = flatbuffer.write(graph)
    compiled = compile_stream(data, where)
    assert compiled.scratch_fast_size == 0
    with pytest.raises(TosaicError, match="region 2"):
        simulate(compiled, maker.data, run_reference(data, maker.data))


def test_so_does_a_branch_with_values_of_its_own() -> None:
    where = Configuration("u85-256", "Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram_384KB")
    m, arms = Maker((7,), u85=True), []
    for name in ("then", "else"):
        arm = m.b.child(name)
        x = arm.ABS(arm.TRANSPOSE(arm.input(I32, (6, 5), f"x_{name}"), perms=(1, 0)))
        arm.output(arm.REDUCE_SUM(x, axis=0))
        arms.append(arm.graph)
    flag = m.input(BOOL, (1,))
    graph = m.finish(m.b.COND_IF(flag, m.input(I32, (6, 5)), regions=arms))
    data = flatbuffer.write(graph)
    compiled = compile_stream(data, where)
    assert compiled.scratch_fast_size == 0
    with pytest.raises(TosaicError, match="region 2"):
        simulate(compiled, m.data, run_reference(data, m.data))


@pytest.mark.parametrize("name", ["loop", "branch"])
def test_both_are_refused_beforehand_where_the_npu_has_memory_of_its_own(name: str) -> None:
    _, graph = build(name, "u85", 24)
    op = graph.ops[-1]
    assert op.regions
    assert ETHOS_U["ethos-u85-256"].refuses(op) is None
    dedicated = with_options("ethos-u85-256", {"memory_mode": "Dedicated_Sram_384KB"})
    assert "memory that Vela does not ask for" in (dedicated.refuses(op) or "")


def narrowed_into(make: Callable[[Maker, Value], Value]) -> Callable[[Maker], Value]:
    """A RESCALE from 32 bits that no operator before it takes along, then something behind it."""

    def whole(m: Maker) -> Value:
        x = m.settle(m.input(I32, (1, 3, 14, 2)), I8, per_channel=False, rounding="SINGLE_ROUND")
        return make(m, x)

    return whole


def copied(m: Maker, shape: tuple[int, ...] = (1, 3, 14, 2)) -> Value:
    x = m.input(I8, shape)
    return m.b.MAX_POOL2D(x, kernel=(1, 1), stride=(1, 1), pad=(0, 0, 0, 0))


BEHIND_A_RESCALE = {
    "second in a CONCAT": lambda m, x: m.b.CONCAT(copied(m), x, axis=3),
    "PAD before": lambda m, x: m.b.PAD(x, m.b.shape((0, 0, 1, 0, 0, 0, 0, 0)), m.zero(I8)),
}


@pytest.mark.parametrize("form", BEHIND_A_RESCALE)
def test_a_rescale_of_32_bits_is_written_to_the_wrong_place_on_u55(form: str) -> None:
    """CONCAT and PAD let operators write to where the result belongs; this one starts at 0."""
    make = narrowed_into(BEHIND_A_RESCALE[form])
    assert outcome(make, U55)
    assert not outcome(make, U85)


def test_a_rescale_of_32_bits_may_be_the_first_of_a_concat() -> None:
    make = narrowed_into(lambda m, x: m.b.CONCAT(x, copied(m), axis=3))
    assert not outcome(make, U55)


def test_a_maximum_over_an_axis_does_not_survive_a_concat_on_u55() -> None:
    """Vela gives the reduction the shape of the whole CONCAT."""

    def make(m: Maker) -> Value:
        largest = m.b.REDUCE_MAX(m.input(I8, (1, 3, 14, 2)), axis=1)
        return m.b.CONCAT(copied(m, (1, 1, 14, 2)), largest, axis=3)

    assert outcome(make, U55)
    assert not outcome(make, U85)


def unsigned_behind(zero_point: int) -> Callable[[Maker], Value]:
    def make(m: Maker) -> Value:
        x = m.settle(m.input(I8, (1, 5, 5, 6)), I8, per_channel=False, zero_points=(3, zero_point))
        return m.rescale(x, UNIT, I8, (zero_point, 128), unsigned=(False, True))

    return make


@pytest.mark.parametrize("machine", [U55, U85], ids=["u55", "u85"])
def test_a_step_to_uint8_behind_a_zero_point_of_0_loses_the_upper_half(
    machine: Configuration,
) -> None:
    """Vela makes one RESCALE of two and limits the result to what both types hold: 0 to 127."""
    assert outcome(unsigned_behind(0), machine)
    assert not outcome(unsigned_behind(5), machine)


def test_a_product_of_int8_with_a_shift_is_refused_before_vela_ignores_the_shift() -> None:
    m = Maker((1,), u85=True)
    x, y = m.input(I8, (4, 8)), m.input(I8, (4, 8))
    with pytest.raises(Unsupported, match="shift must be 0"):
        m.b.MUL(x, y, m.zero(I8, 4))


def test_rounding_that_may_be_inexact_is_not_claimed() -> None:
    """INEXACT_ROUND allows several results; no family uses it."""
    m = Maker((1,), u85=True)
    with pytest.raises(Unsupported, match="inexactround"):
        m.rescale(m.input(I8, (4, 8)), UNIT, I8, rounding="INEXACT_ROUND")


def test_outcome_sees_a_single_wrong_element() -> None:
    right = np.arange(60, dtype=np.int8).reshape(5, 12)
    wrong = right.copy()
    wrong[3, 4] += 1
    assert difference([wrong], [right]).startswith("result 0: 1 of 60 differ, first at [3, 4]")
    assert not difference([right], [right.copy()])

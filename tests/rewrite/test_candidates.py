"""What decides between a region as it is and equal forms of a part of it."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.ir.build import Builder
from tosaic.rewrite.candidates import Candidate, Figures, Site, best_of, cut
from tosaic.spec.dtypes import I8, I32
from tosaic.spec.env import Env


def _site(count: int) -> Site:
    b = Builder(Env.parse("TOSA-1.0+INT"))
    x = b.input(I8, (2, 3), "x")
    y = b.TRANSPOSE(x, perms=(1, 0))
    return Site(y.producer, [Candidate(y, [], []) for _ in range(count)], [])


@pytest.mark.parametrize(
    ("there", "tried", "formed", "formed_tried", "chosen"),
    [
        (100, [90, 80], 100, [95, 97], 1),
        (100, [90, 80], 100, [70, 97], 0),  # by what it makes possible
        (100, [110, 105], 100, [110, 105], None),
        (100, [90, 80], 40, [60, 70], None),  # forms of its neighbours are worth more without it
        (100, [90, 80], 60, [60, 70], 0),  # the candidate itself is what forms choose
        (100, [None, 80], None, [None, None], 1),
    ],
)  # fmt: skip
def test_a_candidate_has_to_beat_the_region_with_the_forms_that_it_could_have_without(
    there: int, tried: list[int | None], formed: int | None, formed_tried: list[int | None],
    chosen: int | None,
) -> None:  # fmt: skip
    at = _site(len(tried))
    cycles = [there, *tried, formed, *formed_tried]
    figures = [None if n is None else Figures(n, 0) for n in cycles]
    best = best_of(at, figures)
    assert best is (None if chosen is None else at.candidates[chosen])


def test_a_scale_of_one_stays_one_in_what_is_judged() -> None:
    """Vela leaves such a RESCALE out, or fuses it with others."""
    b = Builder(Env.parse("TOSA-1.0+INT"))
    y = b.input(I8, (1, 4, 4, 2), "x")
    for shift in (30, 37):
        zero, weight = b.const([0], I8), b.const(np.eye(2).reshape(2, 1, 1, 2), I8)
        y = b.CONV2D(y, weight, b.const([0], I32), zero, zero, pad=(0, 0, 0, 0),
                     stride=(1, 1), dilation=(1, 1), acc_type=I32)  # fmt: skip
        y = b.RESCALE(y, b.const([1 << 30], I32), b.const([shift], I8), b.const([0], I32),
                      zero, out=I8, scale32=True, rounding_mode="SINGLE_ROUND",
                      per_channel=False, input_unsigned=False, output_unsigned=False)  # fmt: skip
    ops = b.graph.ops
    judged = cut(ops, lambda op: op.ins, {y}, set(ops))
    shifts = [op.ins[2].const for op in judged.ops if op.name == "RESCALE"]
    assert [int(const.array[0]) == 30 for const in shifts if const] == [True, False]

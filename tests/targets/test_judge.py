"""Vela as the judge of forms: no form makes a network slower than it is without."""

from __future__ import annotations

import numpy as np
import pytest

from judges.improved import Case, Random, conv
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8
from tosaic.targets.ethosu.judge import judge
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig


def cropped(b: Builder, random: Random) -> Value:
    """The middle rows of an image, then a convolution: a SLICE in front of it."""
    x = b.input(I8, (1, 112, 96, 3))
    middle = b.SLICE(x, b.shape((0, 8, 0, 0)), b.shape((1, 95, 96, 3)))
    return conv(b, random, middle, 16, (3, 3), (2, 2), (1, 1, 1, 0))


def unpadded(b: Builder, random: Random) -> Value:
    """A convolution that leaves the last row out."""
    x = b.input(I8, (1, 64, 96, 3))
    whole = b.SLICE(x, b.shape((0, 0, 0, 0)), b.shape((1, 63, 96, 3)))
    return conv(b, random, whole, 16, (3, 3), (2, 2), (0, 0, 1, 0))


def cycles(name: str, case: Case, forms: bool) -> int:
    target, random = ETHOS_U[name], np.random.default_rng(0)
    b = Builder(target.env, Graph("case"))
    b.output(case(b, random))
    made = target.improve(b.graph, forms)
    (found,) = judge(VelaConfig(name), target.env, [made])
    assert found is not None
    return found.cycles


@pytest.mark.parametrize("name", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
@pytest.mark.parametrize("case", [cropped, unpadded])
def test_a_convolution_behind_a_slice_is_no_slower_by_forms(case: Case, name: str) -> None:
    assert cycles(name, case, True) <= cycles(name, case, False)

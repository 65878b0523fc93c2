"""Generated C equals the interpreter bit by bit: conformance tests, samples, random graphs."""

from __future__ import annotations

import pytest

from cortexm.build import has_compiler
from cortexm.compare import QUICK, conformance, differences, random_graphs, samples

pytestmark = pytest.mark.skipif(not has_compiler(), reason="gcc is not installed")


def test_conformance_tests_agree_and_sanitizers_find_nothing() -> None:
    agreed, wrong = differences(conformance(every=18))
    assert not wrong, wrong[0]
    assert agreed >= 30


def test_samples_of_rules_agree_and_sanitizers_find_nothing() -> None:
    cores = ("cortex-m4", "cortex-m55", "c")
    agreed, wrong = differences(samples("cortex-m4", every=97, first=7), cores)
    assert not wrong, wrong[0]
    assert agreed >= 30


def test_200_random_graphs_agree() -> None:
    agreed, wrong = differences(random_graphs("cortex-m4", range(200)), ("cortex-m4",), QUICK)
    assert not wrong, wrong[0]
    assert agreed >= 180


def test_convolutions_of_tiny_rows_and_of_one_channel_read_nothing_behind_them() -> None:
    agreed, wrong = differences(random_graphs("cortex-m4", (20002, 20043)), ("cortex-m4",))
    assert not wrong, wrong[0]
    assert agreed == 2

"""What is called supported for VGF, the model converter takes, and Vulkan computes the same."""

from __future__ import annotations

import pytest
import torch

from judges.generate import cases as generated
from judges.recipes import FLOAT, INTEGER
from judges.suite import work
from judges.vgf import is_expected, outcome
from judges.vgf_samples import KINDS, count, part
from judges.vgf_zoo import compared
from judges.vulkan import needs_converter, needs_vulkan, vulkan_problem
from tosaic.spec.dtypes import DType

SHARE = 10  # one in ten of each type, drawn by a seed; make vgf has all
pytestmark = needs_converter


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind or "float"))
def test_a_supported_sample_converts_and_is_the_same_on_vulkan(kind: DType | None) -> None:
    found = count(part(SHARE, KINDS.index(kind)), kind, vulkan=0 if vulkan_problem() else 1)
    print(found)
    assert found.all > 90
    assert not found.wrong, found.wrong
    assert not found.refused, found.refused


WORK = [each for number, each in enumerate(work((*INTEGER, *FLOAT))) if number % 4 == 1]


def test_conformance_tests_are_exact_through_the_file() -> None:
    """One test of every fourth operator; ``make vgf`` has all, on Vulkan too."""
    done = 0
    for recipe, operator in WORK:
        for case in generated(recipe, operator, "small")[:1]:
            found, done = outcome(case, "file"), done + 1
            kind = found.split(":")[0]
            assert is_expected("file", operator, str(case), kind), f"{case}: {found}"
    assert done > 40


@needs_vulkan
@pytest.mark.parametrize(
    ("name", "way"), [("ds_cnn", "int8"), ("super_resolution", "fp32"), ("ssd", "bf16")]
)
def test_a_network_is_the_same_on_vulkan(name: str, way: str) -> None:
    with torch.no_grad():
        right, told = compared(name, way)
    print(told)
    assert right, told

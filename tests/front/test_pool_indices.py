"""Calls that run on the NPU by their parts: indices of pools, truth of numbers, powers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tosaic

TARGETS = ["ethos-u55-128", "ethos-u85-256", "TOSA-1.0+INT+int16"]


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def distinct(shape: Sequence[int]) -> Tensor:
    """Numbers two steps of int8 apart, so that rounding keeps their order."""
    count = torch.Size(shape).numel()
    draw = torch.Generator().manual_seed(count)
    return (torch.randperm(count, generator=draw) - count // 2).float().reshape(*shape) / count


def compiled(function: Callable[[Tensor], Any], x: Tensor, target: str) -> Any:
    scheme = "a16w8" if "int16" in target else "int8"
    made = tosaic.compile(Net(function), (x,), target=target, scheme=scheme, calibration=[(x,)])
    assert not made.report.refused
    return made


POOLS: list[tuple[Callable[[Tensor], Any], tuple[int, ...]]] = [
    (lambda x: F.max_pool2d(x, 2, return_indices=True), (1, 2, 8, 6)),
    (lambda x: F.max_pool2d(x, (3, 2), (2, 1), 1, ceil_mode=True, return_indices=True),
     (1, 2, 9, 6)),
    (lambda x: F.max_pool2d(x, 2, 2, dilation=(1, 2), return_indices=True), (2, 1, 6, 9)),
    (lambda x: F.max_pool2d(x, 3, 3, return_indices=True), (1, 9, 9)),
    (lambda x: F.max_pool1d(x, 4, 3, 2, return_indices=True), (1, 3, 17)),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", range(len(POOLS)))
def test_a_pool_says_where_its_largest_elements_are(number: int, target: str) -> None:
    function, shape = POOLS[number]
    x = distinct(shape)
    value, places = compiled(function, x, target).run(x)
    real, where = function(x)
    assert torch.equal(places, where)
    assert places.dtype == where.dtype
    assert float((value - real).abs().max()) <= 0.01


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("height", "width"), [(2, 2), (2, 3)])
def test_an_unpooling_puts_values_back_where_a_pool_found_them(
    height: int, width: int, target: str
) -> None:
    def there_and_back(x: Tensor) -> Tensor:
        value, places = F.max_pool2d(x, (height, width), return_indices=True)
        return F.max_unpool2d(value * 0.5, places, (height, width), output_size=x.shape[-2:])

    x = distinct((1, 2, 7, 8))
    assert (
        float((compiled(there_and_back, x, target).run(x) - there_and_back(x)).abs().max()) < 0.01
    )


def test_windows_that_overlap_write_one_element_once() -> None:
    def there_and_back(x: Tensor) -> Tensor:
        value, places = F.max_pool1d(x, 3, 2, return_indices=True)
        return F.max_unpool1d(value, places, 3, 2)

    x = distinct((1, 3, 9))
    for target in TARGETS:
        off = compiled(there_and_back, x, target).run(x) - there_and_back(x)
        assert float(off.abs().max()) < 0.1


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_are_true_where_they_are_not_zero(target: str) -> None:
    def truth(x: Tensor) -> tuple[Tensor, ...]:
        return x.all(1), x.any(0), x.any(), x.all(1, keepdim=True)

    x = (distinct((6, 7)) * 4).round() / 4
    for ours, real in zip(compiled(truth, x, target).run(x), truth(x), strict=True):
        assert torch.equal(ours, real)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_true_is_counted_as_a_real_number(target: str) -> None:
    def counted(x: Tensor) -> tuple[Tensor, ...]:
        return (x > 0).sum(1, dtype=torch.float32), x.norm(0, 0), (x > 0).sum(1).float() * 0.5

    x = (distinct((6, 7)) * 4).round() / 4
    for ours, real in zip(compiled(counted, x, target).run(x), counted(x), strict=True):
        assert torch.equal(ours, real)


@pytest.mark.parametrize("target", TARGETS)
def test_a_power_with_few_exponents_or_bases_is_as_many_functions(target: str) -> None:
    exponents, bases = torch.tensor([0.5, 1.0, 2.0, -1.0]), torch.tensor([2.0, 0.5, 1.0, 3.0])

    def powers(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x.abs() + 0.5) ** exponents, bases**x

    x = distinct((3, 5, 4)) * 2
    for ours, real in zip(compiled(powers, x, target).run(x), powers(x), strict=True):
        error = (ours - real).square().sum() / real.square().sum()
        assert -10 * torch.log10(error) > (50 if "int16" in target else 30)

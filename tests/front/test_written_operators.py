"""Operators that PyTorch has no parts for are lowered as what they are written with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from judges.programs import Function, agrees_with_reference, compiled

WEIGHT = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(5))
VOLUME = torch.randn(4, 2, 3, 3, 2, generator=torch.Generator().manual_seed(6))
PLANE = torch.randn(3, 2, 3, 3, generator=torch.Generator().manual_seed(7))
SPREAD = torch.tensor([0.5, 1.0, 2.0])
PLACES = torch.tensor([0, 2, 1, 1, 0, 2, 2, 0]).expand(4, 8)
LIMITS = torch.tensor([-1.0, 0.0, 0.5, 1.0])
ROWS = LIMITS.expand(4, 4).contiguous()
Given = tuple[tuple[int, ...], ...]
REAL: dict[str, tuple[Callable[..., Tensor], Given]] = {
    "hypot": (torch.hypot, ((4, 8), (8,))),
    "copysign": (torch.copysign, ((4, 8), (4, 8))),
    "heaviside": (lambda x: torch.heaviside(x, torch.full((8,), 0.5)), ((4, 8),)),
    "xlogy": (lambda x: torch.special.xlogy(x, 2.0), ((4, 8),)),
    "bilinear": (lambda x, y: F.bilinear(x, y, WEIGHT, torch.ones(3)), ((4, 8), (4, 8))),
    "addbmm": (lambda x, y, z: torch.addbmm(x, y, z, beta=0.5), ((3, 5), (2, 3, 4), (2, 4, 5))),
    "block_diag": (torch.block_diag, ((2, 3), (2, 2), (4,))),
    "pdist": (F.pdist, ((5, 8),)),
    "cross": (torch.linalg.cross, ((4, 3), (4, 3))),
    "cross along another axis": (lambda x, y: torch.cross(x, y, dim=0), ((3, 4), (3, 4))),
    "prelu with a computed weight": (lambda x, w: F.prelu(x, w.abs()), ((2, 4, 5), (4,))),
    "batch norm by its own batch": (lambda x: F.batch_norm(x, None, None, training=True),
                                    ((2, 4, 3, 3),)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x, 1), ((4, 8, 2),)),
    "logcumsumexp of few": (lambda x: torch.logcumsumexp(x, -2), ((4, 3, 2),)),
    "scatter_reduce amax": (lambda x: torch.full((4, 3), -1.0).scatter_reduce(
        1, PLACES, x, "amax"), ((4, 8),)),
    "scatter_reduce mean": (lambda x: torch.zeros(4, 3).scatter_reduce(
        1, PLACES, x, "mean", include_self=False), ((4, 8),)),
    "scatter_reduce amin of what is there": (lambda x, y: y.scatter_reduce(
        1, PLACES, x, "amin"), ((4, 8), (4, 3))),
    "scatter_reduce sum of others alone": (lambda x, y: y.scatter_reduce(
        1, PLACES, x, "sum", include_self=False), ((4, 8), (4, 3))),
    "scatter_reduce prod": (lambda x: torch.ones(4, 3).scatter_reduce(
        1, PLACES, 1 + 0.2 * x, "prod"), ((4, 8),)),
    "vander": (lambda x: torch.vander(x, 4), ((6,),)),
    "vander that rises": (lambda x: torch.linalg.vander(x), ((2, 3),)),
    "as_strided": (lambda x: torch.as_strided(x * 2, (3, 4, 3), (8, 2, 1), 1), ((4, 8),)),
    "nanmean": (lambda x: torch.nanmean(x, 1), ((4, 8),)),
    "nanmean of all": (torch.nanmean, ((4, 8),)),
    "diagonal_scatter": (torch.diagonal_scatter, ((4, 8), (4,))),
    "diagonal_scatter beside": (lambda x, y: torch.diagonal_scatter(x, y, -1, 2, 0),
                                ((3, 2, 4), (2, 3))),
    "fill_diagonal_": (lambda x: (x * 2).fill_diagonal_(0.5), ((4, 6),)),
    "circular padding": (lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), ((1, 3, 4, 5),)),
    "circular padding of volumes": (lambda x: F.pad(x, (1, 2, 0, 1, 1, 1), mode="circular"),
                                    ((1, 2, 3, 4, 5),)),
    "reflected volumes": (lambda x: F.pad(x, (1, 2, 0, 1, 1, 1), mode="reflect"),
                          ((1, 2, 3, 4, 5),)),
    "replicated volumes": (lambda x: F.pad(x, (1, 2, 0, 1, 1, 1), mode="replicate"),
                           ((1, 2, 3, 4, 5),)),
    "ndtri": (lambda x: torch.special.ndtri(torch.sigmoid(x)), ((4, 8),)),
    "log_ndtr": (lambda x: torch.special.log_ndtr(x), ((4, 8),)),
    "erfcx": (lambda x: torch.special.erfcx(x.abs()), ((4, 8),)),
    "spherical_bessel_j0": (torch.special.spherical_bessel_j0, ((4, 8),)),
    "multigammaln": (lambda x: torch.special.multigammaln(x.abs() + 2, 2), ((4, 8),)),
    "quantile": (lambda x: torch.quantile(x, 0.3, 1), ((4, 9),)),
    "antialiased bilinear": (lambda x: F.interpolate(x, (3, 9), mode="bilinear", antialias=True),
                             ((1, 2, 8, 7),)),
    "antialiased bicubic": (lambda x: F.interpolate(
        x, (4, 9), mode="bicubic", antialias=True, align_corners=True), ((1, 2, 8, 7),)),
    "a pool of uneven windows": (lambda x: F.adaptive_avg_pool2d(x, (20, 9)), ((1, 2, 7, 5),)),
    "transposed convolution over three axes": (lambda x: F.conv_transpose3d(
        x, VOLUME, torch.ones(4), 2, 1, 1, groups=2), ((1, 4, 2, 3, 3),)),
    "limits that are computed": (lambda x, y: torch.clamp(x, y, y + 1), ((4, 8), (4, 8))),
    "a layer between limits that are computed": (lambda x, y: torch.clamp(
        F.linear(x, WEIGHT[0]), y), ((4, 8), (4, 8))),
    "convolution with computed weights": (lambda x, w, b: F.conv2d(
        x, w, b, (2, 1), (0, 2), (1, 2), groups=2), ((2, 4, 7, 6), (6, 2, 3, 2), (6,))),
    "convolution with computed weights, padded alike": (lambda x, w: F.conv2d(
        x, w, padding="same"), ((1, 2, 5, 6), (3, 2, 2, 3))),
    "convolution with a computed bias": (lambda x, b: F.conv2d(
        x, PLANE, b), ((1, 2, 5, 6), (3,))),
    "correlation by channel": (lambda x, z: F.conv2d(
        x, z.reshape(3, 1, 3, 2), groups=3), ((1, 3, 6, 6), (1, 3, 3, 2))),
    "convolution without a batch": (F.conv1d, ((2, 9), (3, 2, 3))),
    "convolution over volumes with computed weights": (lambda x, w: F.conv3d(
        x, w, stride=2), ((1, 2, 4, 5, 4), (3, 2, 2, 2, 2))),
    "transposed convolution with computed weights": (lambda x, w, b: F.conv_transpose2d(
        x, w, b, 2, 1, 1, 2), ((1, 4, 4, 3), (4, 2, 3, 3), (4,))),
    "transposed convolution of rows with computed weights": (lambda x, w: F.conv_transpose1d(
        x, w, stride=3), ((2, 2, 5), (2, 3, 4))),
    "layer norm with a computed weight": (lambda x, w, b: F.layer_norm(
        x, (8,), w, b), ((4, 8), (8,), (8,))),
    "batch norm with a computed weight": (lambda x, w: F.batch_norm(
        x, SPREAD - 1, SPREAD, w), ((2, 3, 4, 4), (3,))),
}  # fmt: skip
WHOLE: dict[str, Callable[[Tensor], Tensor]] = {
    "bucketize": lambda x: torch.bucketize(x, LIMITS),
    "bucketize from the right": lambda x: torch.bucketize(x, LIMITS, right=True, out_int32=True),
    "searchsorted": lambda x: torch.searchsorted(LIMITS, x),
    "searchsorted for each row": lambda x: torch.searchsorted(ROWS, x, side="right"),
    "isin": lambda x: torch.isin(torch.bucketize(x, LIMITS), torch.tensor([1, 3])).int(),
    "count_nonzero": lambda x: torch.count_nonzero(torch.relu(x), 1),
}


def data(given: Given, count: int = 6) -> list[tuple[Tensor, ...]]:
    """Noise, but nothing so near to 0 that int8 has no sign for it."""
    random = torch.Generator().manual_seed(1)

    def noise(shape: tuple[int, ...]) -> Tensor:
        x = torch.randn(*shape, generator=random)
        return x + 0.2 * x.sign()

    return [tuple(map(noise, given)) for _ in range(count)]


@pytest.mark.parametrize("name", REAL)
def test_a_written_operator_is_what_pytorch_computes(name: str) -> None:
    function, given = REAL[name]
    inputs = data(given)
    art = compiled(Function(function), inputs[0])
    assert not art.report.refused
    for x in inputs:
        torch.testing.assert_close(art.run(*x), function(*x), rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128"])
@pytest.mark.parametrize("name", REAL)
def test_a_written_operator_runs_in_int8(name: str, target: str) -> None:
    """Three roundings in a row of noise with 36 dB each leave 31, of magnitudes less."""
    function, given = REAL[name]
    inputs = data(given, 10)
    art = compiled(Function(function), inputs[0], target, calibration=inputs)
    assert not art.report.refused
    real = torch.stack([function(*x) for x in inputs])
    error = torch.stack([art.run(*x) for x in inputs]) - real
    assert float(10 * torch.log10(real.square().sum() / error.square().sum())) > 24
    if target == "TOSA-1.0+INT":
        agrees_with_reference(art.graph)


def test_few_sums_of_exponentials_are_not_rounded_before_their_logarithm() -> None:
    """In int8 the sum of one exponential, 1, would be 128/255 of 2, and its logarithm not 0."""
    inputs = [(0.01 * x,) for (x,) in data(((8, 2, 4),))]
    art = compiled(
        Function(lambda x: torch.logcumsumexp(x, 1)), inputs[0], "TOSA-1.0+INT", calibration=inputs
    )
    quant = art.graph.outputs[0].quant
    assert quant is not None
    for (x,) in inputs:
        off = (art.run(x)[:, 0] - x[:, 0]).abs().max() / quant.one_scale
        assert float(off) < 0.6


@pytest.mark.parametrize("name", WHOLE)
def test_places_are_counted_in_integers(name: str) -> None:
    """Away from the limits by more than a step of int8 all of them are PyTorch's."""
    function, (first, *more) = WHOLE[name], data(((4, 32),))
    art = compiled(Function(function), first, "TOSA-1.0+INT", calibration=[first, *more])
    assert not art.report.refused
    for (x,) in (first, *more):
        near = ((x.unsqueeze(-1) - LIMITS).abs() < 0.05).any(-1)
        x = torch.where(near, torch.full_like(x, 0.25), x)
        made: Any = art.run(x)
        assert made.dtype is function(x).dtype
        assert torch.equal(made, function(x))


def test_places_are_counted_in_float() -> None:
    (x,), *_ = data(((4, 32),))
    for function in (WHOLE["bucketize"], WHOLE["searchsorted"]):
        art = compiled(Function(function), (x,))
        assert not art.report.refused
        assert torch.equal(art.run(x), function(x))


def test_a_number_is_counted_among_others() -> None:
    (x,), *_ = data(((32,),))
    x = torch.where((x - 0.5).abs() < 0.05, torch.full_like(x, 0.25), x)
    for function in (lambda x: torch.searchsorted(x.sort().values, 0.5, right=True),
                     lambda x: torch.bucketize(0.5, x.sort().values)):  # fmt: skip
        art = compiled(Function(function), (x,), "TOSA-1.0+INT", calibration=[(x,)])
        assert not art.report.refused
        assert torch.equal(art.run(x), function(x))


@pytest.mark.parametrize("keepdim", [False, True])
def test_the_middle_of_what_is_known_is_pytorchs(keepdim: bool) -> None:
    (x,), *_ = data(((5, 9),))
    for dim in (0, 1):
        net = Function(lambda x, dim=dim: torch.nanmedian(x, dim, keepdim).values)
        art = compiled(net, (x,), "TOSA-1.0+INT", calibration=[(x,)])
        assert not art.report.refused
        assert float((art.run(x) - net(x)).abs().max()) < 2 * 8 / 255


def test_a_mask_chooses_where_the_next_element_goes() -> None:
    def scattered(x: Tensor, y: Tensor) -> Tensor:
        return x.masked_scatter(x > 0, y)

    inputs = data(((4, 8), (4, 8)))
    art = compiled(Function(scattered), inputs[0], "TOSA-1.0+INT", calibration=inputs)
    assert not art.report.refused
    real = torch.stack([scattered(*x) for x in inputs])
    error = torch.stack([art.run(*x) for x in inputs]) - real
    assert float(error.abs().max()) < 2 * 8 / 255

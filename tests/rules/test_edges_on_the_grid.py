"""Functions of one value and comparisons at the points where they break, end or jump.

A constant input is calibrated to a grid that it lies on up to rounding: results are those of the
point itself, or of one that the same integer stands for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from judges.programs import Function, compiled

OF_TORCH = """
    floor ceil trunc round frac sign asin acos acosh atanh erfinv logit log log2 log10 log1p sqrt
    rsqrt reciprocal exp exp2 expm1 tanh sigmoid erf erfc sin cos tan sinh cosh asinh atan abs
    square lgamma digamma i0 sinc relu
"""
OF_LAYERS = """
    relu6 hardtanh hardsigmoid hardswish hardshrink softshrink gelu silu mish softplus elu selu
    celu leaky_relu logsigmoid softsign
"""
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(home, name)
    for home, names in ((torch, OF_TORCH), (F, OF_LAYERS))
    for name in names.split()
}
FUNCTIONS |= {
    "threshold": lambda x: F.threshold(x, 1.0, 20.0),
    "where": lambda x: torch.where(x >= 1.0, 1.0, 0.0),
    "fmod": lambda x: torch.fmod(x, 1.0),
    "remainder": lambda x: torch.remainder(x, 1.0),
    "floor_divide": lambda x: torch.div(x, 0.5, rounding_mode="floor"),
    "power of 0": lambda x: x**0,
    "clamp": lambda x: x.clamp(-1, 1),
}
for _test in (torch.ge, torch.gt, torch.le, torch.lt, torch.eq, torch.ne):
    for _number in (0.0, 1.0, -1.0, 0.5, 0.3, 2.0):
        FUNCTIONS[f"{_test.__name__} {_number}"] = lambda x, f=_test, n=_number: f(x, n)
POINTS = (0.0, 1.0, -1.0, 0.5, -0.5, 0.3, 2.0, 3.0, 6.0, -3.0)
POLES = ("atanh", "erfinv", "logit", "lgamma", "digamma", "threshold")  # half a step is far there
BESIDE = (1 + 1e-6, 1 - 1e-6, -1 - 1e-6, 3 - 1e-6, 3 + 1e-6, 1e-6, -1e-6)


class Everything(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return [function(x) for function in FUNCTIONS.values()]


def is_right(function: Callable[[Tensor], Tensor], point: float, got: float, step: float) -> bool:
    """Within 2 % of the function at the point, or of its slope within half a step of the input."""
    exact, *near = (
        float(function(torch.tensor([p])))
        for p in (point, float(round(point)), *(point + s for s in (-step / 2, step / 2)))
    )
    if not math.isfinite(exact):
        return not math.isnan(got)
    values = [exact, near[0]] if 0 < abs(point - round(point)) < 1e-5 else [exact]
    slopes = [abs(v - exact) for v in near[1:] if math.isfinite(v)]
    slack = max((s for s in slopes if s < 0.2), default=0.0)  # more is a jump
    return any(abs(got - v) <= 0.004 + 0.02 * abs(v) + slack for v in values if math.isfinite(v))


CASES = [("int8", p) for p in POINTS + BESIDE]
CASES += [("a16w8", p) for p in (1.0, -1.0, 3.0)]


@pytest.mark.parametrize(("scheme", "point"), CASES)
def test_constants_at_break_points_have_the_values_of_these(
    scheme: str, point: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOSAIC_VERIFY", raising=False)  # a hundred outputs, after every phase
    x = torch.full((4,), point)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant data
        art = compiled(
            Everything(), (x,), "TOSA-1.0+INT+int16", scheme=scheme, calibration=[(x,)], check=False
        )
    step = 1.6 * abs(point) / 32767 if scheme == "a16w8" else 0.0
    wrong = {
        name: (float(y[0]), float(function(x)[0]))
        for (name, function), y in zip(FUNCTIONS.items(), art.run(x), strict=True)
        if not is_right(function, point, float(y[0]), step)
        if math.isnan(float(y[0])) or not (point in BESIDE and name in POLES)
    }
    assert not wrong


def test_functions_of_floats_have_their_values_at_the_ends() -> None:
    def ends(x: Tensor) -> tuple[Tensor, ...]:
        return torch.erfinv(x), x**0, x**-2, torch.pow(x, torch.tensor([0.0, -1.0, 3.0, 2.0, 0.5]))

    x = torch.tensor([0.0, -1.0, 1.0, 0.5, -0.25])
    art = compiled(Function(ends), (x,), check=False)
    assert not art.report.refused
    for got, real in zip(art.run(x), ends(x), strict=True):
        torch.testing.assert_close(got, real, equal_nan=True, rtol=1e-5, atol=1e-5)

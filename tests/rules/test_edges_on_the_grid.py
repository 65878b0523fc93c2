"""Functions of one value and comparisons at the points where they break, end or jump.

What was a break point before it was quantized is that point behind; what lies within 1e-6 of it
becomes the result of the point, or of the side that it lies on: nothing that float does not have.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from judges.programs import compiled

Call = Callable[[Tensor], Tensor]
WHOLE: dict[str, Call] = {
    **{n: getattr(torch, n) for n in ("floor", "ceil", "trunc", "round", "frac", "sign")},
    "fmod": lambda x: torch.fmod(x, 1.0),
    "remainder": lambda x: torch.remainder(x, 1.0),
    "floor_divide": lambda x: torch.div(x, 1.0, rounding_mode="floor"),
    "int": lambda x: x.to(torch.int32).float() * 0.5,
}
ENDS = ("asin", "acos", "atanh", "acosh", "erfinv", "logit", "log1p", "asinh")
SMOOTH = """
    exp exp2 expm1 tanh sigmoid erf erfc sin cos sinh cosh asinh atan abs square i0 sinc relu
    log log2 log10 sqrt rsqrt reciprocal digamma lgamma tan
"""
LAYERS = """
    relu6 hardtanh hardsigmoid hardswish softshrink gelu silu mish softplus elu selu celu
    leaky_relu logsigmoid softsign
"""
TESTS = (torch.ge, torch.gt, torch.le, torch.lt, torch.eq, torch.ne)


def comparisons(number: float) -> dict[str, Call]:
    return {f.__name__: lambda x, f=f: torch.where(f(x, number), 1.0, 0.0) for f in TESTS}


FAMILIES: dict[str, tuple[dict[str, Call], tuple[float, ...]]] = {
    "whole": (WHOLE, (0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 3.0, -3.0)),
    "ends": ({n: getattr(torch, n) for n in ENDS}, (0.0, 1.0, -1.0)),
    "smooth": ({n: getattr(torch, n) for n in SMOOTH.split()}, (0.0, 1.0, -1.0, 2.0)),
    "layers": ({n: getattr(F, n) for n in LAYERS.split()}, (0.0, 3.0, -3.0, 6.0, 0.5, -0.5, 1.0)),
    "shrink": ({"hardshrink": F.hardshrink}, (0.5, -0.5, 0.0)),
    "threshold": ({"threshold": lambda x: F.threshold(x, 1.0, 4.0)}, (1.0, 0.0)),
    **{f"comparison {n}": (comparisons(n), (n,)) for n in (0.0, 1.0, -1.0, 0.5, 0.3, 2.0, 77.7)},
}
CASES = [(family, point) for family, (_, points) in FAMILIES.items() for point in points]


class All(nn.Module):
    def __init__(self, functions: dict[str, Call]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: Tensor) -> list[Tensor]:
        return [function(x) for function in self.functions.values()]


def fits(function: Call, at: float, point: float, got: float, step: float, off: float) -> bool:
    """Whether float has a result, but for 2 % and ``off``, within a step of the input.

    At a jump these are the results of both sides, and at a pole all on the side of that; integers
    have no infinity, and saturate.
    """
    near = torch.linspace(-step, step, 33, dtype=torch.float64) + at
    real = function(torch.cat([torch.tensor([at, point], dtype=torch.float64), near])).double()
    known = real[~real.isnan()]
    if math.isnan(got) or bool(real[0].isnan()):
        return not math.isnan(got)
    low, high = float(known.min()), float(known.max())
    low, high = (
        min(low, 0.0) if high == math.inf else low,
        max(high, 0.0) if low == -math.inf else high,
    )
    off += 0.004 + 0.02 * max((abs(end) for end in (low, high) if math.isfinite(end)), default=0.0)
    return low - off <= got <= high + off


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "spread"])
@pytest.mark.parametrize(("family", "point"), CASES)
def test_break_points_have_the_values_of_float(
    family: str, point: float, is_constant: bool, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOSAIC_VERIFY", raising=False)
    functions = FAMILIES[family][0]
    beside = (point, point - 1e-6, point + 1e-6)
    for at in beside:
        x = torch.full((8,), at)
        data = x if is_constant else torch.cat([x[:1], torch.linspace(-4, 4, 7) + point])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            art = compiled(
                All(functions),
                (data,),
                "TOSA-1.0+INT+int16",
                scheme=scheme,
                calibration=[(data,)],
                check=False,
            )
        widest = 16 * float(data.abs().max()) + 2.0**-6  # as much room as there may be
        step, wrong = widest / (65535 if scheme == "a16w8" else 255), {}
        for (name, function), y in zip(functions.items(), art.run(x), strict=True):
            got, real = float(y[0]), float(function(x)[0])
            exact = at == point and (family == "whole" or "comparison" in family)
            seen = function(data).float().nan_to_num(0.0, 0.0, 0.0)
            off = 4 * float(seen.abs().max()) / (65535 if scheme == "a16w8" else 255)
            fitting = fits(function, at, point, got, step / 2, off)
            right = abs(got - real) < 0.01 if exact else fitting
            if not right:
                wrong[name] = got, real
        assert not wrong, f"{at}: {wrong}"

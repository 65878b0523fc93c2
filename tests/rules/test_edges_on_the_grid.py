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
from judges.rules import Case, cases
from tosaic.front import torchapi
from tosaic.passes.importer import import_model

Call = Callable[[Tensor], Tensor]
WHOLE: dict[str, Call] = {
    **{n: getattr(torch, n) for n in ("floor", "ceil", "trunc", "round", "frac", "sign")},
    "fmod": lambda x: torch.fmod(x, 1.0),
    "remainder": lambda x: torch.remainder(x, 1.0),
    "floor_divide": lambda x: torch.div(x, 1.0, rounding_mode="floor"),
    "int": lambda x: x.to(torch.int32).float() * 0.5,
    "truncated": lambda x: torch.div(x, 1.0, rounding_mode="trunc"),
    "floored": lambda x: x // 0.5,
    "sgn": torch.sgn,
    "not": torch.logical_not,
}
ENDS = ("asin", "acos", "atanh", "acosh", "erfinv", "logit", "log1p", "asinh")
SMOOTH = """
    exp exp2 expm1 tanh sigmoid erf erfc sin cos sinh cosh asinh atan abs square i0 sinc relu
    log log2 log10 sqrt rsqrt reciprocal digamma lgamma tan
"""
POWERS: dict[str, Call] = {
    **{f"power {n}": lambda x, n=n: x**n for n in (0, 0.5, -1, 2, 3)},
    **{f"{n} to the power": lambda x, n=n: n**x for n in (0.5, 2.0)},
}
AFFINE: dict[str, Call] = {
    "add": lambda x: x + 1.0, "sub": lambda x: x - 1.0, "rsub": lambda x: torch.rsub(x, 1.0),
    "mul": lambda x: x * 3.0, "div": lambda x: x / 3.0, "neg": torch.neg,
    "rad2deg": torch.rad2deg,
}  # fmt: skip
BESSEL = {name: getattr(torch.special, name) for name in ("i0e", "i1", "i1e")}
CLAMPS: dict[str, Call] = {
    "clamp": lambda x: x.clamp(-0.5, 1.0), "clamp_min": lambda x: x.clamp_min(0.5),
    "clamp_max": lambda x: x.clamp_max(-0.5), "rrelu": lambda x: F.rrelu(x, 0.1, 0.3),
}  # fmt: skip
LAYERS = """
    relu6 hardtanh hardsigmoid hardswish softshrink gelu silu mish softplus elu selu celu
    leaky_relu logsigmoid softsign
"""
PAIRS = (torch.ge, torch.gt, torch.le, torch.lt, torch.eq, torch.ne, torch.logical_and,
         torch.logical_or, torch.logical_xor, torch.maximum, torch.minimum)  # fmt: skip
TESTS = (torch.ge, torch.gt, torch.le, torch.lt, torch.eq, torch.ne)


def comparisons(number: float) -> dict[str, Call]:
    return {f.__name__: lambda x, f=f: torch.where(f(x, number), 1.0, 0.0) for f in TESTS}


FAMILIES: dict[str, tuple[dict[str, Call], tuple[float, ...]]] = {
    "whole": (WHOLE, (0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 3.0, -3.0)),
    "ends": ({n: getattr(torch, n) for n in ENDS}, (0.0, 1.0, -1.0)),
    "smooth": (
        {n: getattr(torch, n) for n in SMOOTH.split()} | POWERS | AFFINE | BESSEL,
        (0.0, 1.0, -1.0, 2.0),
    ),
    "layers": (
        {n: getattr(F, n) for n in LAYERS.split()} | CLAMPS,
        (0.0, 3.0, -3.0, 6.0, 0.5, -0.5, 1.0),
    ),
    "beside": ({f.__name__: lambda x, f=f: f(x, x.roll(1, 0)) for f in PAIRS}, (0.0, 1.0)),
    "poles": ({"left over": lambda x: torch.remainder(3.0, x)}, (1.0, -1.0, 2.0)),
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
            if family == "beside":  # two values of the same grid: as they are, or as the point is
                sides = (function(torch.full_like(x, a)) for a in (at, point))
                right = any(abs(got - float(side[0])) < 0.01 for side in sides)
            if not right:
                wrong[name] = got, real
        assert not wrong, f"{at}: {wrong}"


def of_one_value(case: Case) -> bool:
    """Whether a sample is a function of each element alone, and not the element itself."""
    try:
        (x,) = case.tensors()
        if not x.is_floating_point() or x.numel() < 3:
            return False
        order, other = torch.randperm(x.numel()), x.clone()
        other.view(-1)[0] = x.view(-1)[1]
        y, mixed, changed = (case.call([t]) for t in (x, x.view(-1)[order].view(x.shape), other))
        if y.shape != x.shape or torch.equal(y.float(), x):
            return False
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError):
        return False  # it takes several tensors, integers, or gives several
    pairs = (mixed.view(-1), y.view(-1)[order]), (changed.view(-1)[1:], y.view(-1)[1:])
    return all(torch.allclose(a.double(), b.double(), equal_nan=True) for a, b in pairs)


def is_comparison(case: Case) -> bool:
    """Whether a sample says yes or no to each pair of elements."""
    tensors = case.tensors()
    if not all(t.is_floating_point() for t in tensors) or not 1 <= len(tensors) <= 2:
        return False
    try:
        result = case.call(tensors)
    except (RuntimeError, TypeError):
        return False
    return isinstance(result, Tensor) and result.dtype is torch.bool and result.dim() > 0


# What float says of numbers alone, and a cast, which is aten.to.dtype in the list.
OTHERS = {"aten.isnan.default", "aten.isinf.default", "aten._to_copy.default"}


def test_the_list_has_every_function_of_one_value_and_every_comparison_of_the_registry() -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = {c.target for c in cases() if of_one_value(c) or is_comparison(c)}
        tried = set[str]()
        for functions, _ in FAMILIES.values():
            program = import_model(All(functions), (torch.rand(8),)).model
            tried |= {torchapi.target_name(node) for node in program.graph.nodes}
    assert len(wanted) > 80
    assert wanted - tried - OTHERS == set()

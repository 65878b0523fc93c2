"""Break points: numbers at which the calls that read a value jump or end, as multiples of a step.

A comparison with 1.0, a floor, an asin: what was 1.0 before it was quantized has to be 1.0 behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from torch import fx

from tosaic.front import torchapi
from tosaic.front.roles import is_real
from tosaic.passes.match import CASTS

_FEWEST = 4  # steps up to the least point: with n of them, a range grows by one in n at most
_SHORT = 1 << 10
_EXACT = 1000  # denominators of numbers that people write
Given = Mapping[str, Any]


def _argument(name: str) -> Callable[[Given], Any]:
    return lambda given: given[name] if isinstance(given[name], (int, float)) else None


def _always(point: float) -> Callable[[Given], Any]:
    return lambda given: point


_POINTS: dict[str, Callable[[Given], Any]] = {
    **dict.fromkeys(("floor", "ceil", "trunc", "frac", "asin", "acos", "acosh"), _always(1)),
    **dict.fromkeys(("atanh", "erfinv", "special_erfinv", "logit", "log1p"), _always(1)),
    **{f"{name}.Scalar": _argument("other") for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{name}.Scalar": _argument("other") for name in ("fmod", "remainder")},
    **dict.fromkeys(("floor_divide", "div.Tensor_mode", "div.Scalar_mode"), _argument("other")),
    "round": _always(0.5),
    "round.decimals": lambda given: 0.5 / 10 ** given["decimals"],
    "threshold": _argument("threshold"),
    "hardshrink": _argument("lambd"),
}  # fmt: skip


def break_points(edges: Iterable[tuple[fx.Node, fx.Node]]) -> tuple[float, ...]:
    """Where calls that read values jump or end; of one that does everywhere, its period."""
    found = set[float]()
    for source, user in edges:
        name = torchapi.target_name(user)
        if name in CASTS:
            point = None if is_real(user) else 1
        else:
            short = name.removeprefix("aten.").removesuffix(".default")
            given = torchapi.bound_arguments(user) if short in _POINTS else {}
            point = _POINTS[short](given) if short in _POINTS else None
            if given and next(iter(given.values())) is not source:
                point = None
        if point and math.isfinite(point):
            found.add(abs(float(point)))
    return tuple(sorted(found))


def on_grid(scale: float, points: tuple[float, ...]) -> float:
    """The next larger scale that all points are multiples of, if that is little larger.

    Products of float32 give these multiples without an error.
    """
    unit = points[0] if len(points) == 1 else float(reduce(_divisor, map(_fraction, points)))
    most = int(unit / scale * (1 + 2.0**-20))
    for steps in range(most, max(_FEWEST, most * 3 // 4) - 1, -1):
        made, times = np.float32(unit / steps), np.rint(np.array(points) / unit)
        if unit * _SHORT % 1 == 0:  # float32 has its multiples
            times = np.arange(1, (1 << 15) // steps + 2)
        found = (times * steps).astype(np.float32) * made
        if np.array_equal(found, (times * unit).astype(np.float32)):
            return float(made)
    return scale


def _fraction(number: float) -> Fraction:
    near = Fraction(number).limit_denominator(_EXACT)
    return near if abs(near - Fraction(number)) <= abs(number) * 1e-9 else Fraction(number)


def _divisor(x: Fraction, y: Fraction) -> Fraction:
    """The largest number that both are multiples of."""
    below = math.lcm(x.denominator, y.denominator)
    return Fraction(math.gcd(int(x * below), int(y * below)), below)

"""Stored ranges of a network in few characters, from which it compiles alike on every processor.

Both ends of a range are rounded outward to five bits, and its histogram is made up from them. A
line holds the ranges of a network, a word for each: four characters of the hash of its name, two
for each end. What compiling asks for and the line lacks is calibrated anew.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable
from typing import Any

import torch

from tosaic.quant.calibration import Calibration
from tosaic.quant.statistics import Statistics

_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_BITS, _LEAST = 4, -40  # of a mantissa; the least exponent
_OUTLIERS = "!"


def _key(name: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()[:3]).decode()


def coded(size: float) -> str:
    """A magnitude, rounded up, in two characters."""
    number = 0
    if size:
        exponent = max(math.frexp(size)[1] - 1 - _BITS, _LEAST)
        mantissa = math.ceil(size / 2.0**exponent)
        number = min(max(((exponent - _LEAST) << _BITS) + mantissa, 1), len(_DIGITS) ** 2 - 1)
    return _DIGITS[number >> 6] + _DIGITS[number & 63]


def decoded(code: str) -> float:
    number = _DIGITS.index(code[0]) << 6 | _DIGITS.index(code[1])
    if number < 2 << _BITS:
        return number * 2.0**_LEAST
    exponent, mantissa = (number >> _BITS) - 1, (number & (1 << _BITS) - 1) + (1 << _BITS)
    return math.ldexp(mantissa, exponent + _LEAST)


def _statistics(code: str) -> Statistics:
    """Many values near zero and few near the ends, all of them multiples of powers of two."""
    seen, shares = Statistics(), (torch.arange(65) / 64) ** 2
    seen.see(torch.cat([-decoded(code[:2]) * shares, decoded(code[2:4]) * shares]))
    return seen


class Ranges(Calibration):
    """The ranges of one network; ``new`` counts those that had to be calibrated."""

    def __init__(self, line: str, calibrated: Callable[[], Calibration]) -> None:
        super().__init__([], 1)
        self.codes = {word[:4]: word[4:] for word in line.split()}
        self.calibrated, self.is_new, self.new = calibrated, not line, 0
        self.found: Calibration | None = None
        self.tensors, self.outliers = _Tensors(self), _Outliers(self)

    @property
    def line(self) -> str:
        return " ".join(key + code for key, code in sorted(self.codes.items()))

    def check(self, program: Any) -> None:
        """The names say whether the ranges are of this program."""

    def seen(self, name: str) -> Statistics:
        return _statistics(self.code(name, is_needed=True))

    def code(self, name: str, is_needed: bool = False) -> str:
        """The stored range of a value, or that of calibration; "" for what it has not seen."""
        key = _key(name)
        if key not in self.codes and (is_needed or self.is_new):
            self.found = self.found or self.calibrated()
            if name in self.found.tensors or is_needed:
                seen = self.found.seen(name)
                mark = _OUTLIERS if name in self.found.outliers else ""
                self.codes[key] = coded(-seen.low) + coded(seen.high) + mark
                self.new += 1
        return self.codes.get(key, "")


class _Tensors(dict[str, Statistics]):
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def get(self, name: str, default: Any = None) -> Any:
        code = self.ranges.code(name)
        return _statistics(code) if code else default


class _Outliers(set[str]):
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def __contains__(self, name: object) -> bool:
        return self.ranges.code(str(name)).endswith(_OUTLIERS)

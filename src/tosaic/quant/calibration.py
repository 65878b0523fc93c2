"""Stored calibration: statistics of the values of a float program, as a text file.

One line a tensor, with extremes and a histogram, one line a layer, with the mean of each input
channel, and one with how the inputs go together, for weights that are coarser than they. It holds
for every target and scheme, and what is compiled from it does not depend on the processor.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput
from tosaic.files.whole import write_whole
from tosaic.quant.correlation import Spread, read_spread
from tosaic.quant.statistics import BINS, FAR, NO_PEAK, PEAKS, Statistics

FORMAT = "tosaic ranges 1"
_MOST = 1 << 28  # bytes of a file
_PARTS = 64  # of the largest magnitude of a mean, rounded up to a power of two
_COUNT = 1 << 53


@dataclass(frozen=True, slots=True)
class Means:
    """The means of input channels, as multiples of a unit: coarse, so that they seldom differ."""

    unit: float
    multiples: tuple[int, ...]

    @classmethod
    def of(cls, means: Tensor) -> Means:
        most = float(means.abs().max()) if means.numel() else 0.0
        unit = math.ldexp(1.0, math.frexp(most)[1]) / _PARTS if most else 1.0
        return cls(unit, tuple(int(n) for n in (means / unit).round().flatten().tolist()))

    def tensor(self) -> Tensor:
        return torch.tensor(self.multiples, dtype=torch.float64) * self.unit


@dataclass(slots=True)
class Calibration:
    """What calibration saw of a model: ``tosaic.calibrate`` makes it, ``compile`` takes it.

    ``program`` is the structure of the model, ``count`` the number of inputs that were seen,
    ``outliers`` the sums of which few elements are far larger than all others. ``path`` is the
    file that it is from. ``form`` is a program of another size that has the names it is kept under.
    """

    program: list[str]
    count: int = 0
    tensors: dict[str, Statistics] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    layers: dict[str, Means] = field(default_factory=dict)
    spreads: dict[str, Spread] = field(default_factory=dict)
    outliers: set[str] = field(default_factory=set)
    path: str = "the calibration"
    form: fx.GraphModule | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file, whole or not at all: JSON with one line a tensor."""
        write_whole(path, self.text().encode())

    def text(self) -> str:
        """The file as text."""
        parts = {
            "format": json.dumps(FORMAT),
            "inputs": json.dumps(self.count),
            "program": _lines("[]", [_dumped(line) for line in self.program]),
            "outliers": _lines("[]", [_dumped(name) for name in sorted(self.outliers)]),
            "tensors": _lines("{}", [
                f"{_dumped(name)}: {_dumped(self._entry(name))}" for name in self.tensors
            ]),
            "layers": _lines("{}", [
                f'{_dumped(name)}: {_dumped({"unit": m.unit, "means": list(m.multiples)})}'
                for name, m in self.layers.items()
            ]),
            "spreads": _lines("{}", [
                f"{_dumped(name)}: {_dumped(s.data())}" for name, s in self.spreads.items()
            ]),
        }  # fmt: skip
        return "{\n" + ",\n".join(f'"{key}": {value}' for key, value in parts.items()) + "\n}\n"

    def _entry(self, name: str) -> dict[str, Any]:
        seen = self.tensors[name]
        found: dict[str, Any] = {
            "shape": list(self.shapes.get(name, ())), "low": seen.low, "high": seen.high,
            "zeros": seen.zeros,
        }  # fmt: skip
        if seen.bad:
            found["nan"] = seen.bad
        if seen.peaks:
            found["peaks"] = seen.peaks
        if not seen.is_empty:
            found |= {"width": seen.width, "first": seen.first,
                      "counts": seen.counts.tolist()}  # fmt: skip
        return found

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read a file that ``save`` has written; InvalidInput says what is wrong with another."""
        place = os.fspath(path)
        try:
            if os.path.getsize(place) > _MOST:
                raise InvalidInput(f"'{place}' has more than {_MOST >> 20} MiB: no ranges have")
            with open(place, encoding="utf-8") as file:
                found = json.load(file, parse_constant=_no_number)
        except OSError as problem:
            raise InvalidInput(f"cannot read '{place}': {problem.strerror}") from None
        except (ValueError, RecursionError) as problem:
            raise InvalidInput(
                f"'{place}' is no JSON of ranges: {problem}; a path is what `calibrate` has "
                "written, data is given as it is"
            ) from None
        return _Reader(place).read(found)

    def seen(self, name: str) -> Statistics:
        """What was seen of a value."""
        if name not in self.tensors:
            raise InvalidInput(
                f"{self.path} has no range of '{name}', which this target needs: calibrate again, "
                "and name the target"
            )
        return self.tensors[name]

    def check(self, program: Sequence[str]) -> None:
        """Refuse the ranges of another model; InvalidInput says where the two first differ."""
        if self.program == list(program):
            return
        pairs = zip([*self.program, "its end"], [*program, "its end"], strict=False)
        theirs, ours = next((a, b) for a, b in pairs if a != b)
        raise InvalidInput(
            f"{self.path} is of another model: where it has '{theirs}', this model has '{ours}'; "
            "calibrate again"
        )


def row_name(name: str, axis: int, below: float) -> str:
    """The name of a value as a softmax reads it: raised to so much below the largest of a row."""
    return f"{name} above {-below:g} in axis {axis}"


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _lines(brackets: str, lines: list[str]) -> str:
    if not lines:
        return brackets
    return brackets[0] + "\n" + ",\n".join(lines) + "\n" + brackets[1]


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


class _Reader:
    """Checks a file of ranges part by part."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, found: Any) -> Calibration:
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            kind = found.get("format") if isinstance(found, dict) else None
            raise self.wrong(f"its format is {kind!r}, not {FORMAT!r}: calibrate again")
        made = Calibration(
            self._names(found, "program"), self._whole(found, "inputs", "the file"),
            outliers=set(self._names(found, "outliers")), path=f"'{self.path}'",
        )  # fmt: skip
        for name, entry in self._entries(found, "tensors"):
            made.tensors[name] = self._statistics(name, entry)
            made.shapes[name] = tuple(self._integers(entry, "shape", name, 0))
        for name, entry in self._entries(found, "layers"):
            unit = self._number(entry, "unit", name)
            if unit <= 0:
                raise self.wrong(f"the unit of '{name}' is {unit}, and must be positive")
            made.layers[name] = Means(
                unit, tuple(self._integers(entry, "means", name, -_PARTS, _PARTS))
            )
        for name, entry in self._entries(found, "spreads"):
            try:
                made.spreads[name] = read_spread(entry)
            except ValueError as problem:
                raise self.wrong(f"the spread of '{name}': {problem}") from None
        return made

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(f"'{self.path}' is no file of ranges: {what}")

    def _names(self, found: Mapping[str, Any], key: str) -> list[str]:
        names = found.get(key)
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise self.wrong(f"its {key} is no list of names")
        return names

    def _entries(self, found: Mapping[str, Any], key: str) -> list[tuple[str, dict[str, Any]]]:
        entries = found.get(key)
        if not isinstance(entries, dict):
            raise self.wrong(f"it has no {key}")
        for name, entry in entries.items():
            if not isinstance(entry, dict):
                raise self.wrong(f"'{name}' of its {key} is no entry")
        return list(entries.items())

    def _statistics(self, name: str, entry: dict[str, Any]) -> Statistics:
        low, high = (self._number(entry, key, name) for key in ("low", "high"))
        if not -FAR <= low <= 0 <= high <= FAR:
            raise self.wrong(f"'{name}' is from {low} to {high}: 0 must lie between")
        bad = self._whole(entry, "nan", name) if "nan" in entry else 0
        zeros = self._whole(entry, "zeros", name)
        if low == high:
            return Statistics(zeros=zeros, bad=bad)
        width = self._number(entry, "width", name)
        if width <= 0 or math.frexp(width)[0] != 0.5:
            raise self.wrong(f"the bins of '{name}' are {width} wide, which is no power of two")
        first = self._integers({"first": [entry.get("first")]}, "first", name, -BINS)[0]
        counts = self._integers(entry, "counts", name, 0)
        if first != math.floor(low / width) or first + len(counts) - 1 != math.floor(high / width):
            raise self.wrong(f"the bins of '{name}' do not reach from {low} to {high}")
        if len(counts) > BINS or zeros > counts[-first]:
            raise self.wrong(f"'{name}' has more zeros or bins than there can be")
        peaks = self._integers(entry, "peaks", name, NO_PEAK, -NO_PEAK) if "peaks" in entry else []
        return Statistics(
            low, high, zeros, bad, width, first, np.array(counts, np.int64), peaks[:PEAKS],
            len(peaks),
        )  # fmt: skip

    def _number(self, entry: Mapping[str, Any], key: str, name: str) -> float:
        value = entry.get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= FAR:
            return float(value)
        raise self.wrong(f"the {key} of '{name}' is {str(value)[:40]}, no number that fits")

    def _whole(self, entry: Mapping[str, Any], key: str, name: str) -> int:
        return self._integers({key: [entry.get(key)]}, key, name, 0)[0]

    def _integers(
        self, entry: Mapping[str, Any], key: str, name: str, least: int, most: int = _COUNT
    ) -> list[int]:
        values = entry.get(key)
        if not isinstance(values, list) or not all(
            isinstance(v, int) and not isinstance(v, bool) and least <= v <= most for v in values
        ):
            raise self.wrong(f"the {key} of '{name}' is not made of integers from {least} on")
        return values

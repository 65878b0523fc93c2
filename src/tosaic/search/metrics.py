"""Metrics: what is kept of each sample, what all of them amount to, and how sure that is.

A metric of one's own is a function of an output and a label that gives a number, whose mean is
taken, or a ``Metric``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tosaic.errors import InvalidInput
from tosaic.search.functions import Own, own, source_digest

_Z = 1.959963984540054  # of 95 %
_DRAWS = 200  # of the bootstrap
_OVERLAP = 0.5  # intersection over union from which a box is found


@dataclass(frozen=True)
class Metric:
    """``each`` gives a number, or a record for ``total``; ``answer`` is what outputs disagree in.

    ``each`` takes the output for one sample and its label, or the original's output where
    ``is_relative``. ``digest`` tells two metrics apart, so that results of one are not the other's.
    """

    name: str
    each: Callable[[Any, Any], Any]
    total: Callable[[Sequence[Any]], float] | None = None
    answer: Callable[[Any], Any] | None = None
    is_relative: bool = False
    is_lower_better: bool = False
    digest: str = ""

    def __call__(self, output: Any, label: Any) -> Any:
        return self.each(output, label)

    @property
    def key(self) -> str:
        return self.digest or self.name

    def score(self, records: Sequence[Any]) -> float:
        """What the records of all samples amount to."""
        if self.total is not None:
            return float(self.total(records))
        return float(np.mean(np.asarray(records, float))) if len(records) else math.nan

    def interval(self, records: Sequence[Any]) -> tuple[float, float]:
        """The interval of 95 % confidence: of shares by Wilson, of means normal, else bootstrap."""
        count = len(records)
        if not count:
            return math.nan, math.nan
        if self.total is not None:
            return self._bootstrap(records)
        values = np.asarray(records, float)
        mean = float(values.mean())
        if not math.isfinite(mean):
            return mean, mean
        if np.isin(values, (0.0, 1.0)).all():
            middle = (mean + _Z * _Z / (2 * count)) / (1 + _Z * _Z / count)
            spread = mean * (1 - mean) / count + _Z * _Z / (4 * count * count)
            half = _Z * math.sqrt(spread) / (1 + _Z * _Z / count)
            return min(middle - half, mean), max(middle + half, mean)
        half = _Z * float(values.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
        return mean - half, mean + half

    def _bootstrap(self, records: Sequence[Any]) -> tuple[float, float]:
        draws, count = np.random.default_rng(0), len(records)
        found = [
            self.score([records[i] for i in draws.integers(0, count, count)]) for _ in range(_DRAWS)
        ]
        low, high = np.quantile(found, (0.025, 0.975))
        return float(low), float(high)


def _scores(output: Any) -> Tensor:
    first = output[0] if isinstance(output, (tuple, list)) else output
    if not isinstance(first, Tensor):
        kind = type(first).__name__
        raise InvalidInput(f"scores are a tensor, not a {kind}: name a function that decodes it")
    return first.detach().reshape(-1)


def _label(label: Any, scores: Tensor) -> int:
    while isinstance(label, (list, tuple)) and len(label) == 1:
        (label,) = label
    try:
        found = int(label)
        if not isinstance(label, str) and found != label:
            raise ValueError
    except (TypeError, ValueError):
        raise InvalidInput(f"a class is a whole number, not {label!r}") from None
    if not 0 <= found < len(scores):
        raise InvalidInput(f"the class {found} is none of the {len(scores)} that the model has")
    return found


def _top1(output: Any, label: Any) -> float:
    scores = _scores(output)
    return float(int(scores.argmax()) == _label(label, scores))


def _class_of(output: Any) -> int:
    return int(_scores(output).argmax())


def _top5(output: Any, label: Any) -> float:
    scores = _scores(output)
    wanted = _label(label, scores)
    before = (scores > scores[wanted]).sum() + (scores[:wanted] == scores[wanted]).sum()
    return float(int(before) < 5)  # of equal scores, as of an int8 SOFTMAX, the first counts


def _noise(output: Any, real: Any) -> list[float]:
    """Power of noise and signal of all float results."""
    pairs = [(a, b) for a, b in zip(_leaves(output), _leaves(real)) if b.is_floating_point()]
    noise = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs)
    return [noise, sum(float(b.double().square().sum()) for _, b in pairs)]


def _leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    items = value if isinstance(value, (tuple, list)) else []
    return [leaf for item in items for leaf in _leaves(item)]


def _decibels(records: Sequence[Any]) -> float:
    noise, power = np.asarray(records, float).sum(0)
    return 10 * math.log10(max(power, 1e-30) / max(noise, 1e-12 * power, 1e-30))


def _words(value: Any) -> list[Any]:
    """Words of a text, or tokens: of scores by step, the likeliest without repeats and blanks."""
    if isinstance(value, str):
        return value.split()
    if isinstance(value, (list, tuple)) and any(isinstance(word, str) for word in value):
        return list(value)
    made = torch.as_tensor(value)
    if made.dim() == 2:
        best = torch.unique_consecutive(made.argmax(-1))
        return [int(token) for token in best if token != 0]
    if made.dim() > 2 or not torch.equal(made, made.round()):
        raise InvalidInput("wer takes a text, tokens, or scores of tokens by step: decode to them")
    return [int(token) for token in made.reshape(-1)]


def _edits(output: Any, label: Any) -> list[float]:
    """Words that must be changed, put in or left out, and how many there should be."""
    told, wanted = _words(output), _words(label)
    if told and wanted and isinstance(told[0], str) is not isinstance(wanted[0], str):
        raise InvalidInput("one of output and label is a text, the other tokens: decode to both")
    row = list(range(len(wanted) + 1))
    for count, word in enumerate(told, 1):
        before, row = row, [count]
        for place, right in enumerate(wanted):
            row.append(min(before[place + 1] + 1, row[-1] + 1, before[place] + (word != right)))
    return [float(row[-1]), float(len(wanted))]


def _error_rate(records: Sequence[Any]) -> float:
    wrong, words = np.asarray(records, float).sum(0)
    return float(wrong / max(words, 1.0))


def _said(output: Any) -> Any:
    return output if isinstance(output, str) else _words(output)


def _ranked(output: Any, label: Any) -> list[list[float]]:
    """Scores of all classes, and which of them are there."""
    scores, wanted = _scores(output), torch.as_tensor(label).reshape(-1)
    if len(scores) != len(wanted):
        raise InvalidInput(f"a label of {len(wanted)} classes is not one for {len(scores)} scores")
    return [scores.double().tolist(), wanted.double().tolist()]


def _mean_precision(records: Sequence[Any]) -> float:
    table = np.asarray(records, float)
    found = [
        _average_precision(scores, wanted > 0.5, int((wanted > 0.5).sum()))
        for scores, wanted in zip(table[:, 0].T, table[:, 1].T)
        if (wanted > 0.5).any()
    ]
    return float(np.mean(found)) if found else math.nan


def _average_precision(
    scores: np.ndarray[Any, Any], right: np.ndarray[Any, Any], wanted: int, best: bool = False
) -> float:
    """Precision at each threshold, or the best at as much recall, weighted by its gain in recall.

    Equal scores, as of 8 bits, are above a threshold or below it together.
    """
    if not len(scores):
        return 0.0
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    hits = np.cumsum(right[order])[ends]
    precision = hits / (ends + 1)
    if best:
        precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((precision * np.diff(hits, prepend=0)).sum() / wanted)


def _boxes(output: Any, label: Any) -> list[list[float]]:
    """Found boxes as class, score and whether right, and the classes of those to be found.

    An output is boxes (corners), scores and classes; a label is boxes and classes.
    """
    boxes, scores, classes = (torch.as_tensor(part) for part in _parts(output, 3))
    wanted, kinds = (torch.as_tensor(part) for part in _parts(label, 2))
    free = [True] * len(wanted)
    found = []
    for place in scores.argsort(descending=True, stable=True).tolist():
        best, most = -1, _OVERLAP
        for other in range(len(wanted)):
            if free[other] and int(kinds[other]) == int(classes[place]):
                overlap = _intersection(boxes[place].tolist(), wanted[other].tolist())
                if overlap >= most:
                    best, most = other, overlap
        if best >= 0:
            free[best] = False
        found += [float(classes[place]), float(scores[place]), float(best >= 0)]
    return [found, [float(kind) for kind in kinds]]


def _parts(value: Any, count: int) -> Sequence[Any]:
    names = ("boxes", "scores", "classes") if count == 3 else ("boxes", "classes")
    if isinstance(value, dict) and all(name in value for name in names):
        return [value[name] for name in names]
    if isinstance(value, (tuple, list)) and len(value) == count:
        return value
    raise InvalidInput(f"map50 takes {', '.join(names)}, by name or in this order: decode to them")


def _intersection(a: Sequence[float], b: Sequence[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0.0) * max(height, 0.0)
    areas = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    return both / max(areas - both, 1e-12)


def _mean_box_precision(records: Sequence[Any]) -> float:
    found = np.asarray([r for each in records for r in zip(*[iter(each[0])] * 3)]).reshape(-1, 3)
    wanted = np.asarray([kind for each in records for kind in each[1]])
    scores = []
    for kind in np.unique(wanted):
        own = found[found[:, 0] == kind]
        count = int((wanted == kind).sum())
        scores.append(_average_precision(own[:, 1], own[:, 2], count, best=True))
    return float(np.mean(scores)) if scores else math.nan


KNOWN = {
    metric.name: metric
    for metric in (
        Metric("top1", _top1, answer=_class_of),
        Metric("top5", _top5, answer=_class_of),
        Metric("map", _ranked, _mean_precision, _class_of),
        Metric("map50", _boxes, _mean_box_precision),
        Metric("wer", _edits, _error_rate, _said, is_lower_better=True),
        Metric("sqnr", _noise, _decibels, is_relative=True),
    )
}


def metric_of(given: Any) -> Metric:
    """A metric by its name, a ``Metric``, or a function whose mean is one."""
    if isinstance(given, Metric):
        parts = given.each, given.total, given.answer
        told = given.digest or source_digest(parts)
        each, total, answer = (own(part, given.name) for part in parts)
        assert each is not None
        return replace(given, each=each, total=total, answer=answer, digest=told)
    if isinstance(given, str):
        if given not in KNOWN:
            raise InvalidInput(
                f"there is no metric '{given}'; there are {', '.join(KNOWN)}, or file.py:name"
            )
        return KNOWN[given]
    if not callable(given):
        raise InvalidInput(f"a metric is a function of output and label, not {given!r}")
    name = getattr(given, "__name__", type(given).__name__)
    return Metric(name, Own(given, name), digest=source_digest(given))

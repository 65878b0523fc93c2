"""Judges of a fuzzed program on one configuration: compiled, run, and compared."""

from __future__ import annotations

import math
import re
import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tosaic
from judges.fuzz.edges import FakeQuant, noisy, precise, run_with
from judges.fuzz.generate import SEEDS
from judges.fuzz.program import Loaded, load
from judges.reference import run_reference
from tosaic.errors import TosaicError, Unpredictable, first_line
from tosaic.front import torchapi
from tosaic.front.partition import Partition, Piece
from tosaic.front.writes import is_functional
from tosaic.targets.artifact import Artifact

CONFIGURATIONS: dict[str, tuple[str, str | None]] = {
    "fp": ("TOSA-1.0+FP", None),
    "int8": ("TOSA-1.0+INT", "int8"),
    "a16w8": ("TOSA-1.0+INT+int16", "a16w8"),
    "u55": ("ethos-u55-128", "int8"),
    "u65": ("ethos-u65-256", "int8"),
    "u85": ("ethos-u85-256", "int8"),
    "u55-a16w8": ("ethos-u55-128", "a16w8"),
    "u65-a16w8": ("ethos-u65-256", "a16w8"),
    "u85-a16w8": ("ethos-u85-256", "a16w8"),
}

# Calls whose result jumps: two right answers may be on its two sides.
JUMPS = re.compile(
    r"floor|ceil|round|trunc|frac|sign|sgn|heaviside|[<>]|==|\b(eq|ne|lt|gt|le|ge)\(|isclose|"
    r"logical|isfinite|arg(max|min|sort)|bucketize|searchsorted|\bany|\ball|nonzero|remainder|"
    r"fmod|%|//|histc|sort|topk|kthvalue|median|quantile|cummax|hardshrink|softshrink|threshold|"
    r"\.int\(|\.long\(|\.bool\(|copysign|2: .*max\(|, v\d+ = |torch\.cond|int32|one_hot|max_pool|"
    r"nextafter|half"
)
EVALUATED = range(4)  # seeds of the inputs that results are compared on
CONFIRMED = range(12)  # those on which too much noise is confirmed
DECIBELS = 3.0
REFUSALS = (  # of programs that eager PyTorch runs
    "nothing of the model runs on",
    "torch does not find a form of this program without writes in place",
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, with the key by which equal faults are recognised."""

    kind: str
    told: str
    key: str = ""


@dataclass(slots=True)
class Verdict:
    """Faults of a program on a configuration, what is listed only, and where its calls went."""

    faults: list[Finding] = field(default_factory=list)
    listed: list[Finding] = field(default_factory=list)
    whole: bool = False


class Case:
    """A program with what its judgements share: eager results, references, one export."""

    def __init__(self, text: str, path: str = "<program>") -> None:
        self.text = text
        self.loaded = load(text, path)
        self.has_jumps = JUMPS.search(_body(text)) is not None
        self._references: dict[int, FakeQuant] = {}
        self._exported: Any = None

    @cached_property
    def expected(self) -> list[list[Tensor]]:
        return self.loaded.results(CONFIRMED)

    def reference(self, bits: int) -> FakeQuant:
        if bits not in self._references:
            self._references[bits] = FakeQuant(self.loaded, SEEDS, bits)
        return self._references[bits]

    @property
    def model(self) -> Any:
        """The module, and for further configurations the program that was exported of it.

        To make a program with writes functional takes PyTorch seconds.
        """
        if self._exported is None:
            self._exported = False
            return self.loaded.make()
        if self._exported is False:
            made = torchapi.captured(self.loaded.make(), self.loaded.inputs(0), None)
            known = is_functional(made.graph_module)
            self._exported = made if known else torchapi.functional(made)
        return self._exported


def _body(text: str) -> str:
    return text.partition("def forward")[2].partition("def inputs")[0]


def judge(case: Case, configuration: str) -> Verdict:
    """Every judgement that applies to the configuration."""
    verdict = Verdict()
    target, scheme = CONFIGURATIONS[configuration]
    options: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if scheme is not None:
            data = [case.loaded.inputs(s) for s in SEEDS]
            options = {"calibration": data, "scheme": scheme}
        try:
            art = tosaic.compile(case.model, case.loaded.inputs(0), target=target, **options)
            verdict.whole = not art.report.refused
            for refusal in art.report.refused:
                if "Vela compiles" in refusal.reason:
                    verdict.listed.append(Finding("late", f"{refusal.op}: {refusal.reason}"))
        except TosaicError as refusal:
            key = re.sub(r"\d+|'.*?'", "N", refusal.reason)[:80]
            finding = Finding("refused", str(refusal), key)
            expected = any(sentence in str(refusal) for sentence in REFUSALS)
            (verdict.listed if expected else verdict.faults).append(finding)
            return verdict
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            verdict.faults.append(internal("internal", error))
            return verdict
        _results(verdict, case, art, scheme)
        if not verdict.faults:
            _extremes(verdict, case.loaded, art)
    return verdict


def internal(kind: str, error: BaseException) -> Finding:
    """The fault of an exception: its type and the innermost frame of the product."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/tosaic/" in f.filename] or frames
    place = f"{own[-1].filename.rpartition('/tosaic/')[2]}:{own[-1].name}"
    told = f"{type(error).__name__}: {first_line(error)} in {place}:{own[-1].lineno}"
    return Finding(kind, told, f"{type(error).__name__} in {place}")


def _unpredictable(error: Unpredictable, kind: str) -> Finding:
    """The fault of an operator without a result: its sentence and the ATen operator."""
    origin = re.search(r"\(aten\.(\w+)", str(error))
    key = f"{error.reason} of {origin.group(1) if origin else 'a graph'}"
    return Finding("unpredictable", f"{error} on {kind}", re.sub(r"\d+", "N", key))


def _run(art: Artifact, given: Sequence[Tensor], engine: str | None = None) -> list[Tensor]:
    """Results, and behind them the inputs, which may be written to."""
    copies = [t.clone() for t in given]
    return [*art.run(*copies, engine=engine), *copies]


def _results(v: Verdict, case: Case, art: Artifact, scheme: str | None) -> None:
    """Shapes, types and numbers on inputs like those of calibration; the stream on one."""
    try:
        got = _runs(art, case, EVALUATED)
        if art.delegates and not _equal(_run(art, case.loaded.inputs(0), "npu"), got[0]):
            v.faults.append(Finding("stream", "the stream's results are not TOSA's"))
            return
    except Unpredictable as error:
        v.faults.append(_unpredictable(error, "an input like calibration's"))
        return
    except Exception as error:  # noqa: BLE001 - a run may refuse nothing that fits
        v.faults.append(internal("run", error))
        return
    expected = case.expected
    for mine, theirs in zip(got[0], expected[0], strict=True):
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            told = f"{mine.dtype} {list(mine.shape)} for {theirs.dtype} {list(theirs.shape)}"
            v.faults.append(Finding("shape", told))
            return
    if not all(bool(t.double().isfinite().all()) for row in expected for t in row):
        return  # eager itself overflows on the inputs behind those of calibration
    for number in range(len(expected[0])):
        if scheme is None:
            _judge_float(v, case, got, number)
        else:
            _judge_quantized(v, case, art, got, number, 14 if scheme == "a16w8" else 8)


def _runs(art: Artifact, case: Case, seeds: range) -> list[list[Tensor]]:
    """Results for inputs in turn, from the first state on."""
    art.reset()
    rows = [_run(art, case.loaded.inputs(s), "tosa") for s in seeds]
    art.reset()
    return rows


def _equal(a: Iterable[Tensor], b: Iterable[Tensor]) -> bool:
    return all(
        torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)) for x, y in zip(a, b, strict=True)
    )


def _judge_float(v: Verdict, case: Case, got: list[list[Tensor]], number: int) -> None:
    """No farther from eager than a few times what roundings do, its own and those of every call."""
    ours, real = ([row[number].double() for row in rows] for rows in (got, case.expected))
    size = max(float(t.abs().max()) for t in real)
    if all(float((a - b).abs().max()) <= 1e-6 * size + 1e-7 for a, b in zip(ours, real)):
        return
    spread = [0.0] * len(ours)
    for draw in range(4):
        rows = noisy(case.loaded, EVALUATED, 2.0**-21, draw)
        for i, row in enumerate(rows):
            spread[i] = max(spread[i], float((row[number].double() - real[i]).abs().max()))
    for i, row in enumerate(precise(case.loaded, EVALUATED)):
        spread[i] = max(spread[i], float((row[number].double() - real[i]).abs().max()))
    worst = max(
        float((a - b).abs().max()) / (16 * s + 2e-6 * size + 1e-6)
        for a, b, s in zip(ours, real, spread)
    )
    if worst > 1:
        finding = Finding("float", f"result {number}: {worst:.3g} times the bound from eager")
        (v.listed if case.has_jumps else v.faults).append(finding)


def _power(rows: list[list[Tensor]], real: list[list[Tensor]], number: int) -> float:
    pairs = zip(rows, real)
    return float(sum((a[number].double() - b[number].double()).square().sum() for a, b in pairs))


def _judge_quantized(
    v: Verdict, case: Case, art: Artifact, got: list[list[Tensor]], number: int, bits: int
) -> None:
    """Noise at most 3 dB above that of a fake-quantized run.

    There are two such runs: every call of eager PyTorch rounded to its range, and the quantized
    program in PyTorch. What both beat is a fault; what the first alone beats is listed, since it
    computes composed operators, recurrent layers and attention within in float. int16 is judged by
    14 bits: the TABLE of int16 interpolates, and sums of 48 bits have a multiplier of 15 bits.
    """
    limit, reference = 10 ** (DECIBELS / 10), case.reference(bits)
    floor = _floor(case.expected, number, bits)
    if _power(got, case.expected, number) <= floor * limit:
        return
    rows = reference.run(EVALUATED)
    if (
        _power(got, case.expected, number)
        <= max(_power(rows, case.expected, number), floor) * limit
    ):
        return
    mine = _power(_runs(art, case, CONFIRMED), case.expected, number)
    floor *= len(CONFIRMED) / len(EVALUATED)
    drawn = [reference.run(CONFIRMED, widened) for widened in (1.0, 1.013, 1.027, 1.06)]
    noise = max(floor, *(_power(rows, case.expected, number) for rows in drawn))
    if mine <= noise * limit:
        return
    pieces = [Piece(node=node) for node in art.program.calls]
    own = Artifact(art.program, Partition(pieces, []), art.target)
    rounded = max(floor, _power(_runs(own, case, CONFIRMED), case.expected, number))
    every = torch.cat([row[number].double().flatten() for row in case.expected])

    def decibels(power: float) -> str:
        return f"{10 * math.log10(max(float(every.square().sum()), 1e-30) / power):.1f}"

    told = (
        f"result {number}: {decibels(mine)} dB for {decibels(noise)} of a fake-quantized run, "
        f"{decibels(rounded)} of the quantized program"
    )
    kind = "accuracy" if mine > rounded * limit else "quantizer"
    is_fault = kind == "accuracy" and not case.has_jumps
    (v.faults if is_fault else v.listed).append(Finding(kind, told))


def _floor(real: list[list[Tensor]], number: int, bits: int) -> float:
    """The noise of rounding a result to its own range."""
    every = torch.cat([row[number].double().flatten() for row in real[: len(EVALUATED)]])
    low, high = float(every.min().clamp(max=0)), float(every.max().clamp(min=0))
    span = high - low if bits == 8 else 2 * max(high, -low)
    return max(every.numel() * (span / (2**bits - 1)) ** 2 / 12, 1e-20)


def _extremes(v: Verdict, loaded: Loaded, art: Artifact) -> None:
    """Each graph on the ends of its types, and the program on ten times its range.

    A float graph has no result where a float of eager PyTorch overflows, so it gets the latter.
    """
    is_float = any(i.dtype.is_float for g in art.partition.graphs for i in g.inputs)
    try:
        for kind, given in _beyond(loaded):
            if is_float and not _is_finite(loaded, given):
                continue
            art.reset()
            wanted = _run(art, given, "tosa")
            art.reset()
            if art.delegates and not _equal(_run(art, given, "npu"), wanted):
                v.faults.append(Finding("stream", f"not TOSA's results on {kind}"))
                return
        for piece in art.partition.pieces:
            if piece.graph is not None:
                _graph(v, art, piece.graph)
    except Unpredictable as error:
        v.faults.append(_unpredictable(error, kind))
    except Exception as error:  # noqa: BLE001
        v.faults.append(internal("run", error))


def _is_finite(loaded: Loaded, given: list[Tensor]) -> bool:
    """Whether every value of a program is finite on some inputs."""
    finite = [True]

    def look(call: int, value: Tensor) -> Tensor:
        finite[0] &= bool(value.isfinite().all())
        return value

    run_with(loaded.make(), [given], look)
    return finite[0]


def _beyond(loaded: Loaded) -> Iterable[tuple[str, list[Tensor]]]:
    """Float inputs at their extremes, and ten times the range; integers as they are."""
    base = loaded.inputs(5)
    for kind, change in (
        ("ten times the range", lambda t: t * 10),
        ("minimum and maximum in turn", lambda t: torch.sign(t - t.mean()) * 3e38),
    ):
        yield kind, [change(t) if t.is_floating_point() else t for t in base]


def _graph(v: Verdict, art: Artifact, graph: Any) -> None:
    """A graph of integers on all of its types: minimum, maximum, random."""
    ends = []
    for port in graph.inputs:
        kind = np.dtype(port.dtype.array)
        if kind.kind not in "ib" or kind.itemsize > 2:
            return  # indices and whole numbers, which are of a range that the program knows
        ends.append((0, 1) if kind.kind == "b" or port.quant is None else (
            np.iinfo(kind).min, np.iinfo(kind).max
        ))  # fmt: skip
    random = np.random.default_rng(0)
    draws = ("all minimum", "all maximum", "random")
    for draw in draws:
        arrays = []
        for port, (low, high) in zip(graph.inputs, ends, strict=True):
            kind = np.dtype(port.dtype.array)
            if draw == "random":
                drawn = random.integers(low, high, port.shape, endpoint=True)
                arrays.append(torch.from_numpy(np.asarray(drawn).astype(kind)))
            else:
                end = low if draw == draws[0] else high
                arrays.append(torch.from_numpy(np.full(port.shape, end, kind)))
        try:
            wanted = art._arrays(graph, arrays, "tosa")
        except Unpredictable as error:
            v.faults.append(_unpredictable(error, draw))
            return
        if draw == "random" and not _as_reference(art, graph, arrays, wanted):
            v.faults.append(Finding("reference", "the reference model has other results"))
            return
        if art.delegates:
            got = art._arrays(graph, arrays, "npu")
            if not all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True)):
                v.faults.append(Finding("stream", f"not TOSA's results on {draw}"))
                return


def _as_reference(art: Artifact, graph: Any, given: list[Tensor], wanted: list[Any]) -> bool:
    """Whether the reference model computes from the file what the interpreter does."""
    found = run_reference(art._files[id(graph)], [t.numpy() for t in given])
    return all(
        np.array_equal(a, b) if b.dtype.kind in "iub" else np.allclose(a, b, 1e-3, 1e-3)
        for a, b in zip(found, wanted, strict=True)
    )

"""Judges of a fuzzed program on one configuration: compiled, run, and compared."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tosaic
from judges.fuzz.case import EVALUATED, Case, Finding, Verdict, run, runs
from judges.fuzz.edges import run_with
from judges.fuzz.generate import SEEDS
from judges.fuzz.numbers import judge_float, judge_quantized
from judges.fuzz.program import Loaded
from judges.reference import run_reference
from tosaic.errors import InvalidInput, TosaicError, Unpredictable, first_line
from tosaic.ir.graph import Op
from tosaic.pipeline.artifact import Artifact

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

REFUSALS = (  # of programs that eager PyTorch runs
    "nothing of the model runs on",
    "torch does not find a form of this program without writes in place",
)


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
            expected |= not _exports(case.loaded)
            (verdict.listed if expected else verdict.faults).append(finding)
            return verdict
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            verdict.faults.append(internal("internal", error))
            return verdict
        _results(verdict, case, art, scheme)
        if not verdict.faults:
            _extremes(verdict, case.loaded, art)
    return verdict


def _exports(loaded: Loaded) -> bool:
    """Whether torch.export itself takes a program, and what it makes of it runs."""
    given = loaded.inputs(0)
    try:
        torch.export.export(loaded.make(), given).module()(*given)
    except Exception:  # noqa: BLE001 - whatever PyTorch raises
        return False
    return True


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


def _results(v: Verdict, case: Case, art: Artifact, scheme: str | None) -> None:
    """Shapes, types and numbers on inputs like those of calibration; the stream on one."""
    try:
        got = runs(art, case, EVALUATED)
        if art.delegates and not _equal(run(art, case.loaded.inputs(0), "npu"), got[0]):
            v.faults.append(Finding("stream", "the stream's results are not TOSA's"))
            return
    except Unpredictable as error:
        # Neither has PyTorch one result where an index is written to twice.
        listed = v.listed if "two indices write" in error.reason else v.faults
        listed.append(_unpredictable(error, "an input like calibration's"))
        return
    except Exception as error:  # noqa: BLE001 - a run may refuse nothing that fits
        refused = isinstance(error, InvalidInput) and not _exports(case.loaded)
        (v.listed if refused else v.faults).append(internal("run", error))
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
            judge_float(v, case, got, number)
        else:
            judge_quantized(v, case, art, got, number, 14 if scheme == "a16w8" else 8)


def _equal(a: Iterable[Tensor], b: Iterable[Tensor]) -> bool:
    return all(
        torch.equal(torch.nan_to_num(x), torch.nan_to_num(y)) for x, y in zip(a, b, strict=True)
    )


def _extremes(v: Verdict, loaded: Loaded, art: Artifact) -> None:
    """Each graph on the ends of its types, and the program on ten times its range.

    A float graph has no result where a float overflows, so that its inputs have finite squares, and
    only those are taken for which all values of eager PyTorch are finite.
    """
    is_float = any(i.dtype.is_float for g in art.partition.graphs for i in g.inputs)
    try:
        for kind, given in _beyond(loaded, 1e15 if is_float else 3e38):
            finite = _is_finite(loaded, given)
            if finite is None or (is_float and not finite):
                continue
            art.reset()
            wanted = run(art, given, "tosa")
            art.reset()
            if art.delegates and not _equal(run(art, given, "npu"), wanted):
                v.faults.append(Finding("stream", f"not TOSA's results on {kind}"))
                return
        for piece in art.partition.pieces:
            if piece.graph is not None:
                _graph(v, art, piece.graph)
    except Unpredictable as error:
        noted = is_float and _is_noted(art, error)
        (v.listed if noted else v.faults).append(_unpredictable(error, kind))
    except InvalidInput as error:  # such as integers that do not fit TOSA's 32 bits
        (v.listed if "32 bits" in str(error) else v.faults).append(internal("run", error))
    except Exception as error:  # noqa: BLE001
        v.faults.append(internal("run", error))


def _is_noted(art: Artifact, error: Unpredictable) -> bool:
    """Whether the report says of this operator that it is not proved to have a result.

    In a float graph ``x.int() + 3`` overflows for a float near the end of int32, where PyTorch has
    no result either. Integer graphs have no such excuse: their floats are quantized.
    """
    op = error.where
    named = f"{op.name} ({op.loc}): " if isinstance(op, Op) and op.loc else "no operator"
    checks = [check for piece in art.partition.pieces for check in piece.checks]
    return any("defined for all inputs" in check and named in check for check in checks)


def _is_finite(loaded: Loaded, given: list[Tensor]) -> bool | None:
    """Whether every value of a program is finite on some inputs; None if PyTorch refuses them."""
    finite = [True]

    def look(call: int, value: Tensor) -> Tensor:
        finite[0] &= bool(value.isfinite().all())
        return value

    try:
        run_with(loaded.make(), [given], look)
    except RuntimeError:  # such as other sizes, which depend on the data
        return None
    return finite[0]


def _beyond(loaded: Loaded, largest: float) -> Iterable[tuple[str, list[Tensor]]]:
    """Float inputs at their extremes, and ten times the range; integers as they are."""
    base = loaded.inputs(5)
    for kind, change in (
        ("ten times the range", lambda t: t * 10),
        ("minimum and maximum in turn", lambda t: torch.sign(t - t.mean()) * largest),
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

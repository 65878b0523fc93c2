"""Definedness: a proof that no input makes an operator of an integer graph unpredictable.

Interval analysis proves it of most graphs. What it does not prove is tried with extreme inputs;
one that the interpreter refuses is a counterexample, for which a call stays in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tosaic.errors import Unpredictable
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.int_intervals import Finding, analysed, tracked
from tosaic.lowering.partition import Piece
from tosaic.spec.dtypes import I32

DEFINED = "defined for all inputs"
_SEED, _DRAWS = 0, 2


def prove_defined(piece: Piece) -> str | None:
    """Note on a piece what is proved of its graph; the reason if an input is unpredictable."""
    graph = piece.graph
    if graph is None or not any(tracked(v) for op in graph.walk() for v in op.outs):
        return None
    findings = analysed(graph).findings
    if not findings:
        piece.checks.append(DEFINED)
        return None
    given = [f for f in findings.values() if _reads_integers(f.op)]
    rest = [f for f in findings.values() if f not in given]
    if given:
        which = f"indices and whole numbers for which {_named(given)}"
        piece.checks.append(f"defined for all inputs but {which}")
    if not rest:
        return None
    reason = _counterexample(graph, rest)
    if reason is None:
        piece.checks.append(f"not proved to be defined for all inputs: {_named(rest)}")
    return reason


def _named(findings: list[Finding]) -> str:
    """Each operator with its line, once."""
    return "; ".join(dict.fromkeys(map(str, findings)))


def _reads_integers(op: Op) -> bool:
    """Whether an operator computes from whole numbers of 32 bits that the caller gives.

    PyTorch defines no result for an index that is not there, nor for a sum of more than 32 bits.
    """
    seen, stack = set[Value](), list(op.ins)
    while stack:
        value = stack.pop()
        if value in seen or value.is_const:
            continue
        seen.add(value)
        if value.producer is None and value.dtype is I32:
            return True
        if value.producer is not None and (value.dtype is I32 or value.dtype.is_float):
            # Floats on the way are what a target without int32 arithmetic computes indices with.
            stack.extend(v for v in value.producer.ins if v.dtype is I32 or v.dtype.is_float)
    return False


def _counterexample(graph: Graph, findings: list[Finding]) -> str | None:
    """What the interpreter says of the first extreme input that it refuses."""
    ops = {finding.op for finding in findings}
    model = Model(graph)
    for arrays in extreme_inputs(graph):
        try:
            model.run(*arrays)
        except Unpredictable as problem:
            if problem.where in ops:
                return f"{problem.reason} for some inputs, which TOSA leaves unpredictable"
    return None


def extreme_inputs(graph: Graph) -> Iterator[list[Array]]:
    """Inputs of a graph: all least, all greatest, one of these among the others, both at random.

    Then any number at random, and all 0.
    """
    random = np.random.default_rng(_SEED)

    def one_hot(low: int, high: int, shape: tuple[int, ...]) -> Array:
        made = np.full(shape, low)
        made.reshape(-1)[made.size // 2 : made.size // 2 + 1] = high
        return made

    kinds = [
        lambda low, high, shape: np.full(shape, low),
        lambda low, high, shape: np.full(shape, high),
        lambda low, high, shape: np.full(shape, min(max(0, low), high)),
        lambda low, high, shape: np.where(np.indices(shape).sum(0) % 2 == 0, low, high),
        one_hot,
        lambda low, high, shape: one_hot(high, low, shape),
        *[lambda low, high, shape: random.choice([low, high], shape)] * _DRAWS,
        *[lambda low, high, shape: random.integers(low, high, shape, endpoint=True)] * _DRAWS,
    ]
    for kind in kinds:
        yield [_drawn(v, kind, random) for v in graph.inputs]


def _drawn(value: Value, kind: object, random: np.random.Generator) -> Array:
    if not tracked(value):
        return np.asarray(random.normal(size=value.shape), value.dtype.array)
    low, high = value.limits or value.dtype.range
    made: Array = np.asarray(kind(low, high, value.shape))  # type: ignore[operator]
    return made.reshape(value.shape).astype(value.dtype.array)

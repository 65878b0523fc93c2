"""Interval analysis against the interpreter: bounds that hold, and findings for what is refused.

``python -m judges.definedness TARGET`` tries every sample of every rule and prints, for int8 and
int16, how many are proved to be defined for all inputs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

import tosaic.rules  # noqa: F401  (registers them)
from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph, Value
from tosaic.ir.int_intervals import Intervals, analysed, tracked
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import Case, cases, lowered, operands
from tosaic.lowering.target import Target
from tosaic.pipeline.definedness import extreme_inputs
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import target_of

Limits = Mapping[Value, tuple[int, int]]


def assert_sound(
    graph: Graph, limits: Limits, draws: Iterable[Sequence[np.ndarray]], found: Intervals
) -> int:
    """How many draws TOSA defines; each value of them lies within its bounds.

    A draw that the interpreter refuses is one that the analysis has a finding for.
    """
    values = [v for op in graph.ops for v in op.outs if tracked(v)]
    model = Model(Graph(graph.name, graph.inputs, values, graph.ops, graph.version))
    defined = 0
    for arrays in draws:
        results, refusal = _tried(model, arrays)
        assert refusal is None or found.findings, f"not found: {refusal}"
        defined += refusal is None
        for value, array in zip(values, results):
            bounds = found.of(value)
            low, high = bounds.over(0).arrays(value.type.rank)
            inside = (array >= low[0]).all() and (array <= high[0]).all()
            least, most = array.min(initial=0), array.max(initial=0)
            assert inside, f"{value.producer}: {least} to {most}, not within {bounds.ends}"
    return defined


def _tried(model: Model, arrays: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], str | None]:
    try:
        return model.run(*arrays), None
    except Unpredictable as problem:
        return (), problem.reason


def sample_graph(case: Case, target: Target, kind: DType) -> Graph | None:
    """The graph of a sample with what its integer inputs are limited to; None without a form."""
    b = Lowering.of(target)
    try:
        made = operands(b, case, kind)
        result = lowered(b, case, made, kind)
    except Unsupported:
        return None
    if result.producer is None:
        return None
    b.output(result)
    for index, value in enumerate(made.values):
        name, _, size = case.sample.kind(index).partition(":")
        if size:
            value.limits = (-int(size) if name == "signed" else 0, int(size) - 1)
    return target.improve(b.graph)


def samples(target: Target, every: int = 1) -> Iterator[tuple[str, DType, Graph]]:
    for number, case in enumerate(cases()):
        for kind in (I8, I16):
            graph = None
            if kind in case.integers and number % every == 0:
                graph = sample_graph(case, target, kind)
            if graph is not None:
                yield str(case), kind, graph


def main(target: str) -> None:
    count, proved = Counter[str](), Counter[str]()
    for name, kind, graph in samples(target_of(target)):
        found = analysed(graph)
        assert_sound(graph, {}, extreme_inputs(graph), found)
        count[str(kind)] += 1
        proved[str(kind)] += not found.findings
        for finding in found.findings.values():
            print(f"{name} {kind}: {finding}", flush=True)
            break
    for kind, number in count.items():
        print(f"{target} {kind}: {proved[kind]} of {number} samples are defined for all inputs")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        main(given)

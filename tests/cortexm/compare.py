"""Graphs through generated C beside the interpreter: where the results come from, what differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

import tosaic.rules  # noqa: F401  (registers them)
from cortexm.build import SANITIZE, Job, run
from judges.generate import cases as conformance_cases
from judges.recipes import INTEGER, Size
from npu.drawn import graph_of
from tosaic.errors import TosaicError, Unsupported
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import cases, lowered, operands
from tosaic.spec.dtypes import I8, I16
from tosaic.targets.catalog import target_of
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.cortexm.delegate import Emulated, compile_graph

TOGETHER = 40  # networks in one program


@dataclass(frozen=True)
class Trial:
    """A graph, its inputs, and what the interpreter makes of them."""

    name: str
    graph: Graph
    inputs: list[np.ndarray]
    wanted: list[np.ndarray]


def trial(name: str, graph: Graph, inputs: Sequence[np.ndarray]) -> Trial | None:
    """None for inputs that TOSA leaves unpredictable."""
    try:
        return Trial(name, graph, list(inputs), Model(graph).run(*inputs))
    except TosaicError:
        return None


def conformance(every: int, size: Size = "small", part: int = 1) -> Iterator[Trial]:
    """Integer tests of Arm's generator, one of ``every`` for each operator, or a part of them."""
    for recipe in INTEGER:
        for operator in recipe.operators[::part]:
            for case in conformance_cases(recipe, operator, size)[::every]:
                graph = flatbuffer.read(case.graph)
                ports = [v.dtype.name for v in (*graph.inputs, *graph.outputs)]
                if case.status != "TOSA_VALID" or "shape" in ports:
                    continue
                made = trial(f"{operator}/{case}", graph, case.inputs)
                if made is not None:
                    yield made


def samples(target: str, every: int, first: int = 0) -> Iterator[Trial]:
    """The samples of the rules in int8 and int16, one of ``every``."""
    device = target_of(target)
    for case in islice(cases(), first, None, every):
        for kind in (I8, I16):
            b = Lowering.of(device)
            try:
                if kind not in case.integers:
                    continue
                given = operands(b, case, kind)
                result = lowered(b, case, given, kind)
            except Unsupported:
                continue
            if result.producer is not None:
                b.output(result)
                made = trial(f"{case} {kind}", device.improve(b.graph), given.arrays)
                if made is not None:
                    yield made


def random_graphs(target: str, seeds: Iterable[int]) -> Iterator[Trial]:
    """Graphs by number, some of them rewritten as a compilation would."""
    device = target_of(target)
    for seed in seeds:
        graph, inputs = graph_of("ethos-u85-256", seed, known=device)
        if not graph.outputs:
            continue
        graph = device.improve(graph) if seed % 3 == 0 else graph
        made = trial(f"graph {seed}", graph, inputs)
        if made is not None:
            yield made


def differences(
    trials: Iterable[Trial], core: str = "c", modes: Sequence[bool] = (False, True),
    flags: Sequence[str] = (*SANITIZE, "-O1"),
) -> tuple[int, list[str]]:  # fmt: skip
    """How many graphs agree on the host, and what is wrong with the others.

    ``modes``: one arena (False), one allocation for each tensor (True). Every fifth streams rows.
    """
    agreed, wrong, waiting = 0, list[str](), iter(trials)
    while batch := list(islice(waiting, TOGETHER)):
        jobs = []
        for number, each in enumerate(batch):
            is_small = number % 5 == 4
            made = compile_graph(each.graph, CORES[core], f"n{number}", is_small)
            jobs.append(Job(made, each.inputs))
        found = ["" for _ in batch]
        for separate in modes:
            for number, result in enumerate(run(jobs, separate, flags)):
                if isinstance(result, str):
                    found[number] = result
                elif not _equal(batch[number], result):
                    found[number] = "another result"
        agreed += found.count("")
        wrong += [f"{t.name} on {core}: {what}" for t, what in zip(batch, found) if what]
    return agreed, wrong


def emulated(trials: Iterable[Trial], core: str) -> tuple[int, list[str]]:
    """How many graphs agree on an emulated core, and which do not."""
    agreed, wrong = 0, []
    for each in trials:
        network = compile_graph(each.graph, CORES[core])
        if _equal(each, Emulated(network).run(*each.inputs)):
            agreed += 1
        else:
            wrong.append(f"{each.name} on the emulated {core}")
    return agreed, wrong


def _equal(each: Trial, result: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(result, each.wanted, strict=True))

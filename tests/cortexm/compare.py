"""Graphs through generated C beside the interpreter: where the results come from, what differs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

import tosaic.rules  # noqa: F401  (registers them)
from cortexm.build import SANITIZE, Build, Job, run
from judges.cases import Case
from judges.generate import cases as conformance_cases
from judges.recipes import BEYOND_1_0, INTEGER, Recipe, Size
from judges.verdict import System, complaint
from npu.drawn import graph_of
from tosaic.errors import TosaicError, Unsupported
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import cases, lowered, operands
from tosaic.sim.cortexm.network import run_networks
from tosaic.spec.dtypes import F32, I8, I16
from tosaic.targets.catalog import target_of
from tosaic.targets.cortexm.constraints import constraint
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.cortexm.delegate import Network, compile_graph, job_of
from tosaic.targets.cortexm.views import C_TYPES

INTEGERS = (*INTEGER, *BEYOND_1_0)
TOGETHER, EMULATED = 60, 40  # networks in one program, of the host and of a core


# What this machine's compiler does not see of C for a core, and what it gets from there.
_FOR_CORES = re.compile(r"/\*.*?\*/|#if TK_MVE.*?#endif|#include .*?$", re.DOTALL | re.MULTILINE)
SANITIZED = Build((*SANITIZE, "-O0"), separates=True)
OPTIMIZED = Build(("-O2", "-w"))
QUICK = Build(("-O0", "-w"), "clang" if shutil.which("clang") else "gcc")


@dataclass(frozen=True)
class Trial:
    """A graph, its inputs, and what is wrong with results: None if nothing is."""

    name: str
    graph: Graph
    inputs: list[np.ndarray]
    judge: Callable[[Sequence[np.ndarray]], str | None]


def trial(name: str, graph: Graph, inputs: Sequence[np.ndarray]) -> Trial | None:
    """The interpreter's results, bit for bit; None for inputs that TOSA leaves unpredictable."""
    try:
        wanted = Model(graph).run(*inputs)
    except TosaicError:
        return None

    def judge(result: Sequence[np.ndarray]) -> str | None:
        equal = all(np.array_equal(a, b) for a, b in zip(result, wanted, strict=True))
        return None if equal else "another result"

    return Trial(name, graph, list(inputs), judge)


def conformance(
    every: int, size: Size = "small", part: int = 1, recipes: Sequence[Recipe] = INTEGERS,
) -> Iterator[Trial]:  # fmt: skip
    """Tests of Arm's generator, one of ``every`` for each operator, or a part of them.

    Integers equal the interpreter; floats are judged by the generator's own rules.
    """
    for recipe in recipes:
        for operator in recipe.operators[::part]:
            for case in conformance_cases(recipe, operator, size)[::every]:
                made = _of_case(f"{operator}/{case}", case)
                if made is not None:
                    yield made


def _of_case(name: str, case: Case) -> Trial | None:
    """A conformance test that has C; None for those of other types, and of shapes at run time."""
    if case.status != "TOSA_VALID":
        return None
    graph = flatbuffer.read(case.graph)
    regions = [graph, *(r for op in graph.ops for r in op.regions)]
    if any(constraint(op) for each in regions for op in each.ops):
        return None
    if any(v.dtype not in C_TYPES for v in (*graph.inputs, *graph.outputs)):
        return None
    if not any(v.dtype is F32 for v in (*graph.inputs, *graph.outputs)):
        return trial(name, graph, case.inputs)

    def judge(result: Sequence[np.ndarray]) -> str | None:
        return complaint(case, System(lambda *_: result, lambda _: None, ()))

    return Trial(name, graph, case.inputs, judge)


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
    trials: Iterable[Trial], cores: Sequence[str] = ("c",), *builds: Build
) -> tuple[int, list[str]]:
    """How many graphs agree on the host, counted for each core, and what is wrong with the others.

    Every fifth streams rows. Cores whose C is the same for this machine run it once.
    """
    agreed, wrong, waiting = 0, list[str](), iter(trials)
    while batch := list(islice(waiting, TOGETHER)):
        jobs: list[Job] = []
        meant: list[tuple[Trial, list[str]]] = []
        for number, each in enumerate(batch):
            for network, alike in _distinct(each.graph, number, cores):
                jobs.append(Job(network, each.inputs))
                meant.append((each, alike))
        found: list[str | None] = [None for _ in jobs]
        for build in builds or (SANITIZED,):
            for results in run(jobs, build):
                for place, result in enumerate(results):
                    told = result if isinstance(result, str) else meant[place][0].judge(result)
                    found[place] = found[place] or told
        for (each, alike), what in zip(meant, found):
            agreed += 0 if what else len(alike)
            wrong += [f"{each.name} on {core}: {what}" for core in alike if what]
    return agreed, wrong


def _distinct(
    graph: Graph, number: int, cores: Sequence[str]
) -> Iterator[tuple[Network, list[str]]]:
    """The networks of a graph that differ on this machine, and the cores that each is for."""
    known: dict[object, tuple[Network, list[str]]] = {}
    for place, core in enumerate(cores):
        name = f"n{number}_{place}"
        network = compile_graph(graph, CORES[core], name, is_small=number % 5 == 4)
        files = [network.files[f"{name}{end}"] for end in (".c", ".h", "_weights.bin")]
        text, header = (each.decode().replace(name, "n").replace(name.upper(), "N")
                        for each in files[:2])  # fmt: skip
        key = _FOR_CORES.sub("", text), header, files[2]
        known.setdefault(key, (network, []))[1].append(core)
    yield from known.values()


def emulated(trials: Iterable[Trial], core: str) -> tuple[int, list[str]]:
    """How many graphs agree on an emulated core, and which do not."""
    agreed, wrong, waiting = 0, list[str](), iter(trials)
    while batch := list(islice(waiting, EMULATED)):
        jobs = [
            job_of(compile_graph(each.graph, CORES[core], f"n{i}"), each.inputs)
            for i, each in enumerate(batch)
        ]
        for each, ran in zip(batch, run_networks(core, jobs, flags=("-O1", "-w")), strict=True):
            what = each.judge(ran.outputs)
            agreed += what is None
            wrong += [f"{each.name} on the emulated {core}: {what}"] if what else []
    return agreed, wrong

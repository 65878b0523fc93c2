"""What is replayed: networks of the zoo, seeded ones, graphs of tests, and samples of rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

import tosaic
import zoo
from judges.improved import emitted, improved
from replay.exact import drawn, with_exact_weights
from replay.graphs import Make, graphs
from replay.networks import network
from replay.ranges import Ranges
from replay.rows import Row, row_of
from replay.rules import Operator, operators
from targets import patterns
from tosaic.rewrite import improve
from tosaic.spec.env import Env
from tosaic.targets.ethosu.target import ETHOS_U

NETWORKS = 200
PLAIN = Env.parse("TOSA-1.0+INT+FP+int16")
INT8 = tuple(
    (t, "int8") for t in ("TOSA-1.0+INT", "ethos-u55-128", "ethos-u65-256", "ethos-u85-256")
)
INT16 = (("TOSA-1.0+INT+int16", "a16w8"),)
INT4 = (("TOSA-1.0+INT+int4", "a8w4"),)
NPU16 = tuple((t, "a16w8") for t in ("ethos-u55-128", "ethos-u85-256"))

Configuration = tuple[str, str]  # a target and a scheme
Inputs = tuple[torch.Tensor, ...]
Answer = tuple[str, dict[str, Row], str, int]


@dataclass(frozen=True)
class Rewritten:
    """A graph, rewritten for TOSA and for each kind of NPU."""

    name: str
    make: Make

    def rows(self, _: str) -> tuple[dict[str, Row], None]:
        """Rewrite and compile it; where a target has no such operator, there is a row, too."""
        return {f"{self.name},{t},": self._row(t) for t, _ in INT8}, None

    def _row(self, target: str) -> Row:
        try:
            if target.startswith("TOSA"):
                return row_of([improve(self.make(PLAIN), PLAIN)])
            graph = improved(target, self.make(ETHOS_U[target].env))
            made = emitted(target, graph)
        except tosaic.TosaicError as refusal:
            return Row(type(refusal).__name__)
        return row_of([made.graph], [made.result])


@dataclass(frozen=True)
class Case:
    """A network, what it is compiled for, and what its TOSA targets need beside their profile."""

    name: str
    make: Callable[[], tuple[nn.Module, Inputs, list[Inputs]]]
    configurations: tuple[Configuration, ...]
    extensions: str = ""

    def rows(self, ranges: str) -> tuple[dict[str, Row], Ranges]:
        """Compile it for each configuration, from the ranges in a line of text."""
        torch.set_num_threads(1)
        found: dict[str, Row] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net, example, data = self.make()
            program = torch.export.export(net, example)
            stored = Ranges(ranges, partial(tosaic.calibrate, program, example, calibration=data))
            for target, scheme in self.configurations:
                more = self.extensions if target.startswith("TOSA") else ""
                key = f"{self.name},{target},{scheme}"
                found[key] = row(program, example, target + more, scheme, stored)
        return found, stored


def row(program: Any, example: Inputs, target: str, scheme: str, ranges: Ranges) -> Row:
    """What one network becomes for one target; a refusal has a row, too."""
    try:
        made = tosaic.compile(
            program, example, target=target, scheme=scheme, calibration=ranges, check=False
        )
    except tosaic.TosaicError as refusal:
        return Row(type(refusal).__name__)
    results = [delegate.result for delegate in made.delegates]
    return row_of(made.partition.graphs, results, len(made.report.refused))


def _of_the_zoo(name: str) -> tuple[nn.Module, Inputs, list[Inputs]]:
    net, example, data = zoo.build(name)
    return net if zoo.ZOO[name].trained else with_exact_weights(net), example, data[:2]


def _seeded(seed: int) -> tuple[nn.Module, Inputs, list[Inputs]]:
    _, net, example = network(seed)
    return net, example, [example]


def _pattern(kind: type[nn.Module]) -> tuple[nn.Module, Inputs, list[Inputs]]:
    shape = patterns.example(kind).shape
    example = (drawn(np.random.default_rng(0), shape),)
    return with_exact_weights(kind()), example, [example]


def cases() -> Iterator[Case | Rewritten | Operator]:
    """All cases that can be made here, the long ones first."""
    for name, entry in zoo.ZOO.items():
        if not zoo.missing(name):
            chosen = INT8 + INT16 + (INT4 if len(name) % 2 else ())
            yield Case(f"zoo/{name}", partial(_of_the_zoo, name), chosen, entry.extensions)
    for seed in range(NETWORKS):
        chosen = INT8 + INT16 + (NPU16[seed // 5 % 2],) * (seed % 5 == 0) + INT4 * (seed % 4 == 0)
        yield Case(f"net/{seed}", partial(_seeded, seed), chosen)
    for kind in (*patterns.SPELLINGS, *patterns.FORECASTERS, *patterns.IMAGES):
        yield Case(f"pattern/{kind.__name__}", partial(_pattern, kind), INT8 + INT16)
    for name, make in graphs():
        yield Rewritten(name, make)
    yield from operators()


CASES = {case.name: case for case in cases()}


def replayed(name: str, ranges: str) -> Answer:
    """The rows of a case, its ranges, and how many of these were not stored."""
    rows, stored = CASES[name].rows(ranges)
    return name, rows, stored.line if stored else "", stored.new if stored else 0

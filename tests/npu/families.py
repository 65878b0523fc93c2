"""Random graphs by operator family, each with inputs, an NPU and a checked expected result."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judges.reference import run_reference
from npu import composed, convolutions, elementwise, moves, reductions
from npu.configurations import Configuration, configuration
from npu.maker import Maker
from npu.registry import FAMILIES, Family
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph

_REGISTERED = (composed, convolutions, elementwise, moves, reductions)
_MOST_SATURATED = 0.2
_ATTEMPTS = 4


class VacuousReference(AssertionError):
    """The expected result says too little: few distinct values, or most of them at the ends."""


@dataclass(frozen=True, slots=True)
class Case:
    """A graph for one NPU, with inputs and what the reference model computes from them."""

    family: str
    machine: str
    index: int
    configuration: Configuration
    graph: Graph
    data: bytes
    inputs: list[np.ndarray]
    expected: list[np.ndarray]

    def __str__(self) -> str:
        return f"{self.family}[{self.index}] on {self.configuration}"


def families(machine: str) -> list[Family]:
    """The families that a kind of machine ("u55" stands for U65 too) can run."""
    return [f for f in FAMILIES.values() if machine in f.machines]


def build(name: str, machine: str, index: int, attempt: int = 0) -> tuple[Maker, Graph]:
    """The graph of a family by number; the same on every run."""
    seed = (zlib.crc32(name.encode()), machine == "u85", index, attempt)
    maker = Maker(seed, machine == "u85")
    return maker, FAMILIES[name].make(maker)


def case(name: str, machine: str, index: int) -> Case:
    """The index-th graph of a family whose reference is not vacuous.

    A graph with a vacuous reference is drawn again; a family that keeps drawing them is wrong.
    """
    for attempt in range(_ATTEMPTS):
        maker, graph = build(name, machine, index, attempt)
        data = flatbuffer.write(graph)
        expected = run_reference(data, maker.data)
        try:
            for array in expected:
                check_spread(array, maker.fewest)
        except VacuousReference:
            if attempt + 1 == _ATTEMPTS:
                raise
            continue
        break
    where = configuration(machine, index + zlib.crc32(name.encode()) % 97, maker.dedicated)
    return Case(name, machine, index, where, graph, data, maker.data, expected)


def check_spread(result: np.ndarray, fewest: int) -> None:
    """A result must have many values, few of them at the ends of what occurs."""
    values, counts = np.unique(result, return_counts=True)
    if result.dtype == np.bool_:
        if result.size >= 20 and (len(values) < 2 or counts.min() < 0.02 * result.size):
            raise VacuousReference(f"{dict(zip(values.tolist(), counts.tolist()))}")
        return
    needed = min(fewest, max(1, result.size // 3))
    if len(values) < needed:
        raise VacuousReference(f"{len(values)} distinct values among {result.size}")
    if result.size >= 40 and fewest >= 24:
        ends = int(counts[0] + counts[-1]) / result.size
        if ends >= _MOST_SATURATED:
            raise VacuousReference(f"{ends:.0%} of the results are at {values[0]} or {values[-1]}")


def difference(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> str:
    """How results differ, in words; nothing where every bit agrees."""
    if len(actual) != len(expected):
        return f"{len(actual)} results instead of {len(expected)}"
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if a.shape != e.shape or a.dtype != e.dtype:
            return f"result {i} is {a.dtype}{list(a.shape)} instead of {e.dtype}{list(e.shape)}"
        wrong = a != e
        if wrong.any():
            first = tuple(int(n[0]) for n in np.nonzero(np.atleast_1d(wrong)))
            return (f"result {i}: {int(wrong.sum())} of {e.size} differ, first at {list(first)}: "
                    f"{np.atleast_1d(a)[first]} instead of {np.atleast_1d(e)[first]}")  # fmt: skip
    return ""

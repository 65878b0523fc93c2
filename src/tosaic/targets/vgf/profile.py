"""Milliseconds of operators, as the emulation layer measures them, and what a file's bytes hold."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tosaic.errors import ToolMissing
from tosaic.files.vgf.container import read_container
from tosaic.ir.graph import Array, Graph
from tosaic.lowering.target import Estimate, OperatorCost
from tosaic.sim.vulkan.session import Session
from tosaic.spec.dtypes import I4

_RUNS = 2  # the first one compiles shaders


def measured(graph: Graph, data: bytes, device: str, given: Sequence[Array] | None) -> Estimate:
    """What a run takes on a device, in nanoseconds: cycles of a clock of 1 GHz."""
    inputs = given or [np.zeros(v.shape, v.dtype.array) for v in graph.inputs]
    with tempfile.TemporaryDirectory(prefix="tosaic-profile-") as folder:
        session = Session(data, device, profile=folder)
        for _ in range(_RUNS):
            session.run(*inputs)
        costs = tuple(_costs(graph, list(_samples(Path(folder)))))
    total = sum(cost.cycles for cost in costs)
    return Estimate(
        f"Vulkan ({device})", total, flash=len(data), operators=costs, clock=1e9,
        flash_parts=parts_of(data),
    )  # fmt: skip


def _samples(folder: Path) -> Iterator[tuple[str, int]]:
    """Names and nanoseconds of the operators of the last run, in their order."""
    for file in sorted(folder.glob("*.json")):
        try:
            # The layer writes over what it wrote before: a rest of that may follow the document.
            text = file.read_text(encoding="utf-8")
            rows = json.JSONDecoder().raw_decode(text)[0]["samples"]
            last = max((row["submission"] for row in rows), default=0)
            for row in rows:
                if row["submission"] == last:
                    yield str(row["operator_name"]), int(1e6 * row["time_ms"])
        except (ValueError, KeyError, TypeError) as problem:
            raise ToolMissing(f"the emulation layer's profile cannot be read: {problem}") from None


def _costs(graph: Graph, samples: list[tuple[str, int]]) -> Iterator[OperatorCost]:
    """Samples beside the operators that they are of; the converter may have folded some."""
    place = 0
    for index, op in enumerate(graph.ops):
        if place < len(samples) and samples[place][0] == op.name:
            yield OperatorCost(op.name, op.name, op.loc, samples[place][1], 0, {}, {}, index, place)
            place += 1


def parts_of(data: bytes) -> dict[str, int]:
    """Bytes of a file by what they are."""
    constants = sum(len(c.data) for c in read_container(memoryview(data)).constants)
    return {"constants": constants, "graph": len(data) - constants}


def told_of(graph: Graph, data: bytes) -> list[str]:
    """Sentences about constants: their bytes, 2:4 sparsity, and int4 that saves nothing."""
    held = read_container(memoryview(data)).constants
    size = sum(len(constant.data) for constant in held)
    told = [f"constants take {size:,} of {len(data):,} bytes"]
    if sparse := sum(constant.sparsity >= 0 for constant in held):
        told.append(f"{sparse} constant{'s' * (sparse != 1)} marked as 2:4 sparse")
    if any(v.dtype is I4 for v in graph.values()):
        told.append("int4 weights are stored as int8, so they save nothing here")
    return told

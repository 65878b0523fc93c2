"""Single operators at their corners: every value, and every refusal, is the reference model's.

A case is one operator on inputs that reach its corners. Where the reference model calls a run
unpredictable (or dies of it: out-of-range indices, division by zero), Tosaic must raise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from judges.reference import answer
from tosaic.errors import Unpredictable
from tosaic.files import flatbuffer
from tosaic.interp.model import Model
from tosaic.ir import Builder, Graph
from tosaic.spec.dtypes import dtype
from tosaic.spec.env import everything

RANDOM = np.random.default_rng(7)
_START = RANDOM.bit_generator.state


@dataclass
class Case:
    """One operator; ``ins`` are pairs of a type and values, constants are marked by a ``=``."""

    label: str
    operator: str
    ins: Sequence[tuple[str, Any]]
    out: str | None = None
    attrs: dict[str, Any] = field(default_factory=dict)
    distinct: int = 1
    """How many different results the case must produce, so that it cannot pass by accident."""

    def build(self) -> tuple[Graph, list[np.ndarray]]:
        b = Builder(everything(level="none"))
        values, arrays = [], []
        for i, (kind, data) in enumerate(self.ins):
            name = kind.removeprefix("=")
            if name == "shape":
                values.append(b.shape(data, f"shape{i}"))
                continue
            with np.errstate(over="ignore", invalid="ignore"):
                array = np.asarray(data).astype(dtype(name).array)
            if kind.startswith("="):
                values.append(b.const(array, name, f"constant{i}"))
            else:
                values.append(b.input(name, array.shape, f"input{i}"))
                arrays.append(array)
        wanted = None if self.out is None else dtype(self.out)
        b.output(b.op(self.operator, *values, out=wanted, names=["result"], **self.attrs))
        return b.graph, arrays


def reference(graph: Graph, inputs: Sequence[np.ndarray], folder: Path) -> np.ndarray | None:
    """The reference model's result, None where it is unpredictable."""
    flatbuffer.write(graph, folder / "test.tosa")
    for i, array in enumerate(inputs):
        raw = array.view(np.uint8) if array.dtype == ml_dtypes.float8_e5m2 else array
        np.save(folder / f"input-{i}.npy", raw)
    description = {
        "tosa_file": "test.tosa",
        "ifm_name": [v.name for v in graph.inputs],
        "ifm_file": [f"input-{i}.npy" for i in range(len(inputs))],
        "ofm_name": [v.name for v in graph.outputs],
        "ofm_file": ["output.npy"],
        "meta": {},
    }
    (folder / "desc.json").write_text(json.dumps(description))
    status = answer(folder)
    if status != "TOSA_VALID":
        assert status in ("TOSA_UNPREDICTABLE", "CRASH_-6", "CRASH_-8"), status
        return None
    result = np.load(folder / "output.npy")
    kind = np.dtype(graph.outputs[0].dtype.array)
    return result.view(kind) if result.dtype.kind == "V" or kind.itemsize == 1 else result


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit by bit, but for the bits of a NaN and the sign of a zero."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of a NaN that it widens
        a, b = a.astype(np.float64), b.astype(np.float64)
    return bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())


def check(case: Case, folder: Path) -> None:
    graph, inputs = case.build()
    expected = reference(graph, inputs, folder)
    if expected is None:
        assert case.distinct == 1, "meant to be predictable"
        with pytest.raises(Unpredictable, match=case.operator):
            Model(graph).run(*inputs)
        return
    (result,) = Model(graph).run(*inputs)
    assert same(result, expected), (result, expected)
    bits = expected.reshape(-1).view(f"u{expected.dtype.itemsize}")
    assert len(np.unique(bits)) >= case.distinct


def ids(family: Callable[[], Iterator[Case]]) -> Any:
    """All cases of a family; its random numbers do not depend on what was collected before."""
    RANDOM.bit_generator.state = _START
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.label) for c in family()])


def integers(kind: str, count: int = 4000) -> np.ndarray:
    """Numbers of every magnitude of a type, its ends and the neighbourhood of zero."""
    low, high = dtype(kind).range
    bits = dtype(kind).bits
    spread = RANDOM.integers(low, high, count, endpoint=True) >> RANDOM.integers(0, bits, count)
    return np.concatenate([spread, [low, low + 1, -2, -1, 0, 1, 2, high - 1, high]])


def all_bits(kind: str) -> np.ndarray:
    """Every value of a 16-bit or 8-bit type."""
    array = dtype(kind).array
    width = np.dtype(array).itemsize
    return np.arange(1 << 8 * width, dtype=f"u{width}").view(array)

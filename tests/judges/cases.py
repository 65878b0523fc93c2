"""One generated conformance test: its graph, inputs, and what the reference model said of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from judges.arrays import from_file


@dataclass(frozen=True)
class Case:
    """A folder that the generator wrote and ``reference.answer`` completed."""

    path: Path
    kind: str

    def __str__(self) -> str:
        return self.path.name

    @cached_property
    def description(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.path / "desc.json").read_bytes())
        return loaded

    @property
    def graph(self) -> bytes:
        return (self.path / "test.tosa").read_bytes()

    @property
    def operator(self) -> str:
        return str(self.description["test_details"]["operator"])

    @property
    def error(self) -> str:
        """The ERROR_IF rule that a negative test breaks."""
        return str(self.description["test_details"]["ERRORIF"])

    @property
    def inputs(self) -> list[np.ndarray]:
        """Arrays in the graph's order, in the types that Tosaic and ml_dtypes use."""
        names = self.description["ifm_file"]
        types = self._types("ifm_name")
        return [
            from_file(np.load(self.path / f), types.get(n, ""))
            for n, f in zip(self.description["ifm_name"], names, strict=True)
        ]

    @property
    def status(self) -> str:
        """``TOSA_VALID``, ``TOSA_UNPREDICTABLE`` or ``TOSA_ERROR``, as the reference model says."""
        return (self.path / "status").read_text().strip()

    @property
    def output_types(self) -> list[str]:
        """The type of every output in TOSA's words, such as ``BF16``."""
        tensors = self.description["meta"]["compliance"]["tensors"]
        return [tensors[n]["data_type"] for n in self.description["ofm_name"]]

    @property
    def is_exact(self) -> bool:
        """Whether every output must match bit by bit."""
        tensors = self.description["meta"]["compliance"]["tensors"]
        return all(tensors[n]["mode"] == "EXACT" for n in self.description["ofm_name"])

    def expected(self, number: int) -> np.ndarray:
        """The reference model's output of that number; for a float test in double precision."""
        return np.load(self.path / self.description["ofm_file"][number])

    def bounds(self, number: int) -> np.ndarray | None:
        """The reference model's error bounds of an output, where its rule needs them."""
        path = self.path / f"bounds_{self.description['ofm_file'][number]}"
        return np.load(path) if path.exists() else None

    def _types(self, names: str) -> dict[str, str]:
        tensors = self.description["meta"]["data_gen"]["tensors"]
        return {n: tensors[n]["data_type"] for n in self.description[names] if n in tensors}

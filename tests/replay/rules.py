"""The samples of rules, lowered and rewritten: one hash for all samples of an operator.

Ranges of results, which PyTorch computes in floats, are rounded so that their last bits do not
count. Overloads in place are left out: they are lowered as those that they stand for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from judges.integers import in_integers
from judges.rules import Case, cases
from replay.ranges import coded, decoded
from replay.rows import Row, without_places
from tosaic.errors import TosaicError
from tosaic.files.flatbuffer import write
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import target_of

CONFIGURATIONS = (
    ("TOSA-1.0+INT+int16", I8), ("TOSA-1.0+INT+int16", I16), ("ethos-u55-128", I8),
    ("ethos-u85-256", I16),
)  # fmt: skip
_LESS = 1 - 2.0**-12  # what is a power of two but for its last bits is rounded to it


@dataclass(frozen=True)
class Rounded(Case):
    """A sample whose result is known by its rounded extremes alone."""

    def eager(self, tensors: list[Any]) -> torch.Tensor:
        found = super().eager(tensors)
        if not found.dtype.is_floating_point or not found.numel():
            return found
        ends = -float(found.min()), float(found.max())
        low, high = (decoded(coded(max(end, 0.0) * _LESS)) for end in ends)
        return torch.tensor([-low, high])


@dataclass(frozen=True)
class Operator:
    """An overload with all its samples."""

    name: str
    samples: list[Rounded] = field(default_factory=list)

    def rows(self, _: str) -> tuple[dict[str, Row], None]:
        return {f"{self.name},{t},{kind}": self._row(t, kind) for t, kind in CONFIGURATIONS}, None

    def _row(self, target: str, kind: DType) -> Row:
        chosen, digest = target_of(target), hashlib.sha256()
        for sample in self.samples:
            if kind not in sample.integers:
                continue
            try:
                made = in_integers(sample, kind, chosen.env, chosen.constraints, chosen.cost)
            except TosaicError as refusal:
                digest.update(type(refusal).__name__.encode())
            else:
                digest.update(write(without_places(made.graph)))
        return Row(digest.hexdigest()[:12])


def operators() -> Iterator[Operator]:
    found: dict[str, Operator] = {}
    for case in cases():
        packet = case.target.split(".")[1]
        if not packet.endswith("_") and case.is_possible:
            name = f"rule/{case.target.removeprefix('aten.')}"
            values = {f.name: getattr(case, f.name) for f in fields(case)}
            found.setdefault(name, Operator(name)).samples.append(Rounded(**values))
    yield from found.values()

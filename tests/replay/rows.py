"""What is kept of a compiled case: a hash of its TOSA files and Vela's figures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tosaic.files.flatbuffer import write
from tosaic.ir.graph import Graph
from tosaic.targets.ethosu.vela import VelaResult


class Row(NamedTuple):
    """A hash, Vela's cycles and bytes, and the number of calls left to PyTorch.

    What does not compile has the name of the error in the place of the hash.
    """

    hash: str
    cycles: int = 0
    sram: int = 0
    flash: int = 0
    host: int = 0

    @property
    def is_refused(self) -> bool:
        return self.hash[:1].isupper()


def without_places(graph: Graph) -> Graph:
    """A graph that does not know which lines of which files its operators come from."""
    for op in graph.walk():
        for place in (op, *op.ins, *op.outs):
            place.loc = None
    return graph


def row_of(graphs: Iterable[Graph], results: Sequence[VelaResult] = (), host: int = 0) -> Row:
    digest = hashlib.sha256()
    for graph in graphs:
        digest.update(write(without_places(graph)))
    return Row(
        digest.hexdigest()[:12],
        sum(r.performance.total_cycles for r in results),
        max((r.scratch_size for r in results), default=0),
        sum(r.performance.flash for r in results),
        host,
    )

"""Delegates of a ``.pte`` as their blobs describe them, read without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

from tosaic.errors import InvalidGraph, InvalidInput, Unsupported
from tosaic.executorch.api import ETHOSU_BACKEND, TOSA_BACKEND, VGF_BACKEND
from tosaic.files import flatbuffer, vgf
from tosaic.ir.graph import Graph
from tosaic.ir.verify import verify
from tosaic.sim.ethosu import velabin
from tosaic.spec.env import everything

Contents = Graph | velabin.Stream


def contents_of(number: int, backend: str, blob: bytes, outside: Mapping[str, bytes]) -> Contents:
    """The graph or the stream in a blob; Unsupported if nothing here runs such."""
    if backend not in (ETHOSU_BACKEND, TOSA_BACKEND, VGF_BACKEND):
        raise Unsupported(f"the program has a delegate of {backend}, which nothing here runs")
    try:
        if backend == ETHOSU_BACKEND:
            return velabin.read(blob).whole(outside)
        graph = flatbuffer.read(blob) if backend == TOSA_BACKEND else vgf.read(blob)
        verify(graph, everything(graph.version, level="none"))
        return graph
    except (InvalidInput, InvalidGraph) as problem:
        raise InvalidInput(f"delegate {number} of {backend} is damaged: {problem}") from None

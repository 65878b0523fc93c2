"""Graphs that a file holds, as an artifact: reports and Model Explorer's export are made of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from tosaic.front.program import Program
from tosaic.interp.kernel import TORCH
from tosaic.ir.graph import Graph, Value
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.target import Target
from tosaic.pipeline.artifact import Artifact
from tosaic.spec.env import everything


def artifact_of(graphs: Sequence[Graph], name: str) -> Artifact:
    """An artifact of nothing but graphs, side by side; the calls they were made of are unknown."""
    nodes = fx.Graph()
    pieces = [
        Piece(
            graph=graph,
            inputs=[_port(nodes, value) for value in graph.inputs],
            outputs=[_port(nodes, value) for value in graph.outputs],
        )
        for graph in graphs
    ]
    inputs = [node for piece in pieces for node in piece.inputs]
    outputs = [node for piece in pieces for node in piece.outputs]
    program = Program([], inputs, outputs, {})
    version = max((graph.version for graph in graphs), default=(1, 0))
    target = Target(name, everything(version, level="none"))
    return Artifact(program, Partition(pieces, []), name, made_for=target)


def _port(nodes: fx.Graph, value: Value) -> fx.Node:
    node = nodes.placeholder(value.name or "value")
    node.meta["val"] = torch.empty(value.shape, dtype=TORCH[value.dtype], device="meta")
    return node

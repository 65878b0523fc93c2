"""What surrounds an image on this machine: a program's inputs as integers, outputs from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import fx

from tosaic.boundary.arguments import checked_leaves, first_values
from tosaic.boundary.memory_order import ordered
from tosaic.firmware.network import Network
from tosaic.interp.kernel import to_numpy
from tosaic.ir.graph import Array
from tosaic.pipeline import execution

Values = dict[fx.Node, Any]


def start(network: Network, leaves: Sequence[Any]) -> Values:
    """The values that a run begins with, before its first stage."""
    program = network.artifact.program
    given = [leaf.value for leaf in checked_leaves(program, list(leaves))]
    values = first_values(program, given, [first for _, first in program.states])
    for piece in network.artifact.partition.pieces:
        if piece.node is not None and all(node in values for node in piece.inputs):
            execution.call(piece, values)
    return values


def taken(network: Network, values: Values) -> list[Array]:
    """The inputs of a network, as the image reads them."""
    orders = {
        node: order
        for stage in network.stages
        for node, order in zip(stage.piece.inputs, stage.piece.input_orders, strict=True)
    }
    found = []
    for node in network.inputs:
        value = network.values[node]
        tensor = ordered(execution.operand(node, values[node], value), orders[node])
        found.append(np.ascontiguousarray(to_numpy(tensor.contiguous(), value.dtype)))
    return found


def finish(network: Network, values: Values, arrays: Sequence[Array]) -> Values:
    """All values that the program has, with what the image gave."""
    made = dict(zip(network.outputs, arrays, strict=True))
    for stage in network.stages:
        piece = stage.piece
        assert piece.graph is not None
        sides = zip(
            piece.outputs,
            piece.graph.outputs,
            piece.output_orders,
            piece.output_quants,
            strict=True,
        )
        for node, out, order, quant in sides:
            if node in made:
                values[node] = execution.result(node, made[node], out, order, quant)
    for piece in network.artifact.partition.pieces:
        is_new = piece.node is not None and piece.node not in values
        if is_new and all(node in values for node in piece.inputs):
            execution.call(piece, values)
    return values


def outputs(network: Network, values: Values) -> list[Any]:
    """The leaves of the program's outputs."""
    program = network.artifact.program
    own = program.outputs[: len(program.outputs) - program.changes]
    return [values[o] if isinstance(o, fx.Node) else o for o in own]

"""Splits layers by output channels, so that Vela encodes their weights alike for all sizes.

Vela chooses the depth of the blocks that the NPU computes, and how weights are brought into its
memory, by the size of the result, and the order of encoded weights follows both. A layer with as
many channels as the shallowest block has one order alone; streams of several sizes can share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.build import Builder, Constraint
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.rewrite.epilogue import FUNCTIONS
from tosaic.spec.env import Env

_LAYERS = ("CONV2D", "TRANSPOSE_CONV2D")
_DEPTH = 16  # output channels of the shallowest block
_WHOLE = 0.02  # of the bytes of weights: the smallest layers stay as they are


def split_layers(graph: Graph, env: Env, constraints: Sequence[Constraint]) -> None:
    """Layers as parts of a few channels each with their epilogues, joined again behind these."""
    layers = [op for op in graph.ops if op.name in _LAYERS and op.ins[1].is_const]
    layers.sort(key=lambda op: op.ins[1].type.size)
    most = _WHOLE * sum(op.ins[1].type.size for op in layers)
    uses, outputs = graph.uses(), set(graph.outputs)
    for op in layers:
        most -= op.ins[1].type.size
        if most >= 0 or op.outs[0].shape[-1] <= _DEPTH:
            continue
        chain = [op]
        while (then := uses.get(chain[-1].outs[0], ())) and len(then) == 1:
            after = then[0]
            is_function = after.name in FUNCTIONS and after.ins[0] is chain[-1].outs[0]
            if chain[-1].outs[0] in outputs or not is_function:
                break
            if not all(value.is_const for value in after.ins[1:]):
                break
            chain.append(after)
        _split(graph, chain, Builder(env, Graph(graph.name), constraints))


def _split(graph: Graph, chain: list[Op], b: Builder) -> None:
    """A layer with its epilogue in parts; as it is where the target refuses them."""
    layer, whole = chain[0], chain[-1].outs[0]
    b.loc = layer.loc
    try:
        parts = [_part(b, chain, first) for first in range(0, layer.outs[0].shape[-1], _DEPTH)]
        b.CONCAT(*parts, axis=whole.type.rank - 1)
    except Unsupported:
        return
    joined = b.graph.ops[-1]
    b.graph.ops[-1] = Op(joined.defn, joined.ins, [whole], joined.attrs, (), layer.loc)
    place = graph.ops.index(chain[-1])
    graph.ops[place : place + 1] = b.graph.ops
    graph.ops = [op for op in graph.ops if op not in chain]


def _part(b: Builder, chain: list[Op], first: int) -> Value:
    """What some channels of a layer become."""
    count, value = chain[0].outs[0].shape[-1], chain[0].ins[0]

    def piece(array: Array) -> Array:
        return np.ascontiguousarray(array[first : first + _DEPTH])

    for op in chain:
        others = list(op.ins[1:])
        for n, other in enumerate(others[:2]):  # weights and biases, or multipliers and shifts
            if op.name != "TABLE" and other.type.rank and other.shape[0] == count:
                rest = other.shape[1:]
                others[n] = b.remade(other, piece, (min(_DEPTH, count - first), *rest))
        value = b.op(op.name, value, *others, out=op.outs[0].dtype, **op.attrs)
        value.loc, value.limits = op.outs[0].loc, op.outs[0].limits
    return value

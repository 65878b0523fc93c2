"""Hoists casts of bytes above the calls that move them, to the input that the bytes come from.

A camera gives pictures of bytes with the channels last; networks permute them first and make floats
of them then. TOSA has no uint8, but a graph takes bytes at an input, where the cast is what the
integers mean.
"""

from __future__ import annotations

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.attention_masks import MOVES
from tosaic.passes.engine import Replacement, node_pass
from tosaic.passes.match import name_of

_MOVES = MOVES | {
    "aten.flip.default", "aten.narrow.default", "aten.unflatten.int", "aten.movedim.int",
    "aten.flatten.using_ints", "aten.squeeze.default",
}  # fmt: skip
_CHECK = "aten._assert_tensor_metadata.default"  # of a type, as export has it


@node_pass("aten.to.dtype", "aten._to_copy.default")
def hoist_byte_casts(node: fx.Node) -> Replacement:
    """Cast the input, and move its floats."""
    bound = torchapi.bound_arguments(node)
    source, moves = bound["self"], list[fx.Node]()
    while name_of(source) in _MOVES and len(source.all_input_nodes) == 1 and _reads(source) == 1:
        moves.append(source)
        source = source.args[0]
    is_byte = isinstance(source, fx.Node) and source.meta["val"].dtype is torch.uint8
    if not moves or not is_byte or source.op != "placeholder" or (
        bound.get("dtype") is not torch.float32
    ):  # fmt: skip
        return None
    value = torchapi.new_call(node, node.target, (source, *node.args[1:]), dict(node.kwargs))
    for move in reversed(moves):
        value = torchapi.new_call(move, move.target, (value, *move.args[1:]), dict(move.kwargs))
        for check in [user for user in move.users if name_of(user) == _CHECK]:
            node.graph.erase_node(check)
    return value


def _reads(node: fx.Node) -> int:
    return sum(name_of(user) != _CHECK for user in node.users)

"""Values that are read as positions in a tensor, which therefore are small.

A position beyond the end of a tensor is an error in PyTorch, so whatever such a value is computed
from, it lies within the tensor, or there is no result to agree with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE

_DEEPEST = 6  # moves between a value and where it is read
_MOVES = frozenset({
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "flatten", "unflatten", "select",
    "slice", "expand", "permute", "transpose", "t", "contiguous", "clone", "alias", "detach",
})  # fmt: skip


Tensors = Mapping[fx.Node, Tensor]


def places(node: fx.Node, tensors: Tensors, deepest: int = _DEEPEST) -> int | None:
    """How many places there are for a value that every reader takes for a position; else None.

    ``tensors`` are the program's own.
    """
    if not deepest or not node.users:
        return None
    found = [_places_of(user, node, tensors, deepest) for user in node.users]
    known = [count for count in found if count is not None]
    return min(known) if len(known) == len(found) else None


def _places_of(user: fx.Node, node: fx.Node, tensors: Tensors, deepest: int) -> int | None:
    parts, bound = torchapi.target_name(user).split("."), torchapi.bound_arguments(user)
    name = parts[1] if len(parts) == 3 and parts[0] == "aten" else ""
    if name in _MOVES:
        return places(user, tensors, deepest - 1)
    if name == "embedding" and bound["weight"] is not node:
        return _size(bound["weight"], 0, tensors)
    if name in ("gather", "index_select") and bound["self"] is not node:
        return _size(bound["self"], bound["dim"], tensors)
    if name == "index" and bound["self"] is not node:
        axes = [axis for axis, index in enumerate(bound["indices"]) if index is node]
        sizes = [_size(bound["self"], axis, tensors) for axis in axes]
        return min((size for size in sizes if size is not None), default=None)
    return None


def _size(value: Any, axis: int, tensors: Tensors) -> int | None:
    """The size of a tensor along an axis; PT2E's own calls carry no example of their results."""
    while isinstance(value, fx.Node) and torchapi.target_name(value) in (QUANTIZE, *DEQUANTIZE):
        value = value.args[0]
    if not isinstance(value, fx.Node):
        return None
    example = tensors.get(value, value.meta.get("val"))
    shape = torchapi.known_shape(example) if isinstance(example, Tensor) else None
    return shape[axis] if shape else None

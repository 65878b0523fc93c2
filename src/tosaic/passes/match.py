"""What idioms are read with: calls by name, operands in any order, copies left aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi

ADDS = ("aten.add.Tensor", "aten.add.Scalar")
PRODUCTS = ("aten.mul.Tensor", "aten.mul.Scalar")
QUOTIENTS = ("aten.div.Tensor", "aten.div.Scalar")
_SAME = ("aten.clone.default", "aten.contiguous.default", "aten._to_copy.default")


def name_of(node: Any) -> str:
    is_call = isinstance(node, fx.Node) and node.op == "call_function"
    return torchapi.target_name(node) if is_call else ""


def become(node: fx.Node, target: Any, args: tuple[Any, ...], **keywords: Any) -> bool:
    node.target, node.args, node.kwargs = target, args, keywords
    return True


def before(value: Any) -> Any:
    """What a value is the same as, but for a copy that only its reader sees."""
    while name_of(value) in _SAME and len(value.users) == 1:
        source = value.args[0]
        if source.meta["val"].dtype != value.meta["val"].dtype:
            break
        value = source
    return value


def pair_of(node: Any, names: tuple[str, ...]) -> tuple[Any, Any] | None:
    """The two operands of a call of that kind, each as it was before copies."""
    if name_of(node) not in names:
        return None
    bound = torchapi.bound_arguments(node)
    if bound.get("alpha", 1) != 1:
        return None
    return before(bound["self"]), before(bound["other"])


def orders(node: Any, names: tuple[str, ...]) -> Iterator[tuple[Any, Any]]:
    """Both orders of the operands."""
    if (pair := pair_of(node, names)) is not None:
        yield pair
        yield pair[1], pair[0]


def number_of(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number else None


def values_of(node: fx.Node) -> Tensor | None:
    """The numbers of a parameter."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None:
        return None
    found: Tensor = torchapi.attribute(module, str(node.target))
    return found


def hold(place: fx.Node, name: str, values: Tensor, meta: dict[str, Any] | None = None) -> fx.Node:
    """A tensor as a buffer of a node's module, read right before that node."""
    module = place.graph.owning_module
    assert module is not None
    module.register_buffer(name, values, persistent=False)
    with place.graph.inserting_before(place):
        made = place.graph.create_node("get_attr", name)
    made.meta = meta or {**place.meta, "val": torchapi.stand_in_beside(place, values)}
    return made


def only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None

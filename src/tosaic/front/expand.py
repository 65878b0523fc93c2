"""Calls that no rule takes become the calls that PyTorch itself says they are made of.

Each is traced alone, from its operands' shapes, and put in the place of the call; the program is
not traced again. What the parts need in turn is done the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi

_DEEPEST = 4  # parts of parts of parts: deeper, a call is made of things that no rule knows


def expand(
    module: fx.GraphModule, refuses: Callable[[fx.Node], bool], only: frozenset[str] = frozenset()
) -> int:
    """Replace calls that are refused by their parts, where all of these are taken; count them.

    ``only`` names operators that are always replaced, since what is inside them matters.
    """
    replaced = 0
    for node in list(module.graph.nodes):
        if node.op == "call_function" and _is_candidate(node, refuses, only):
            replaced += _expand_one(module, node, refuses)
    if replaced:
        module.graph.eliminate_dead_code()
        module.recompile()
    return replaced


def _is_candidate(node: fx.Node, refuses: Callable[[fx.Node], bool], only: frozenset[str]) -> bool:
    return torchapi.target_name(node) in only or refuses(node)


def _expand_one(module: fx.GraphModule, node: fx.Node, refuses: Callable[[fx.Node], bool]) -> int:
    parts = _parts(node, refuses, _DEEPEST)
    if parts is None:
        return 0
    _replace(module, node, parts)
    return 1


def _parts(node: fx.Node, refuses: Callable[[fx.Node], bool], depth: int) -> fx.GraphModule | None:
    """The parts of a call as a graph of their own; None if some part is refused to the last."""
    if depth == 0 or not _is_spread_by_index(node):
        return None
    traced = torchapi.decomposed(node)
    if traced is None:
        return None
    for part in list(traced.graph.nodes):
        if part.op != "call_function" or torchapi.target_name(part) == "getitem":
            continue
        if torchapi.target_name(part) == torchapi.target_name(node) and refuses(part):
            return None
        if refuses(part):
            inner = _parts(part, refuses, depth - 1)
            if inner is None:
                return None
            _replace(traced, part, inner)
    return traced


def _is_spread_by_index(node: fx.Node) -> bool:
    """Whether a call with several results is read one by one."""
    if not isinstance(node.meta.get("val"), (list, tuple)):
        return True
    return all(torchapi.target_name(user) == "getitem" for user in node.users)


def _replace(module: fx.GraphModule, node: fx.Node, parts: fx.GraphModule) -> None:
    results = _inline(module, node, parts)
    if isinstance(results, (list, tuple)):
        for user in list(node.users):
            index: Any = user.args[1]
            user.replace_all_uses_with(results[index])
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    module.graph.erase_node(node)


def _inline(module: fx.GraphModule, node: fx.Node, parts: fx.GraphModule) -> Any:
    """Copy a graph before a call; what it returns, as nodes of the larger graph."""
    known: dict[fx.Node, fx.Node] = {}
    given = iter(node.all_input_nodes)
    home = {k: v for k, v in node.meta.items() if k in ("stack_trace", "nn_module_stack")}
    for part in parts.graph.nodes:
        if part.op == "placeholder":
            known[part] = next(given)
        elif part.op == "output":
            return fx.map_arg(part.args[0], lambda n: known[n])
        else:
            with module.graph.inserting_before(node):
                known[part] = module.graph.node_copy(part, lambda n: known[n])
            known[part].meta.update(home)
            if part.op == "get_attr":
                _adopt(module, known[part], torchapi.attribute(parts, str(part.target)))
    raise AssertionError("a graph has an output")


def _adopt(module: fx.GraphModule, node: fx.Node, tensor: torch.Tensor) -> None:
    """A constant of the parts becomes one of the module."""
    name, number = "_part_0", 0
    while hasattr(module, name):
        number += 1
        name = f"_part_{number}"
    module.register_buffer(name, tensor, persistent=False)
    node.target = name
    node.meta.setdefault("val", tensor)

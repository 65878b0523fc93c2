"""Decomposes calls that no rule takes into the parts that PyTorch itself makes of them.

Each is traced alone, from its operands' shapes, and put in the place of the call; the program is
not traced again. What the parts need in turn is done the same way. Recurrent layers have parts
of our own making.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.front.hints import CALL
from tosaic.front.precision import CHOICE
from tosaic.passes.canonicalize import canonical_overloads
from tosaic.passes.decompositions import WRITTEN
from tosaic.passes.decompositions_indexing import DECOMPOSITIONS
from tosaic.passes.unroll_rnn import steps

_HOME = (CALL, "stack_trace", "nn_module_stack", CHOICE)
_DEEPEST = 4  # parts of parts of parts: deeper, a call is made of things that no rule knows


Refuses = Callable[[fx.Node], bool]


def expand(
    module: fx.GraphModule,
    refuses: Refuses,
    only: frozenset[str] = frozenset(),
    constants: set[fx.Node] | None = None,
    steps_at_once: int = 1,
) -> int:
    """Replace calls that are refused by their parts, where all of these are taken; count them.

    ``only`` names operators that are always replaced, since what is inside them matters.
    ``constants`` are the nodes that are known to be; parts that are join them. ``steps_at_once`` of
    a recurrent layer are one product, at least.
    """
    known = set[fx.Node]() if constants is None else constants
    replaced = 0
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if torchapi.target_name(node) in only or refuses(node):
            parts = _parts(node, refuses, known, _DEEPEST, steps_at_once)
            if parts is not None:
                _replace(module, node, parts, known)
                replaced += 1
    if replaced:
        module.graph.eliminate_dead_code()
        module.recompile()
    return replaced


def _parts(
    node: fx.Node, refuses: Refuses, known: set[fx.Node], depth: int, steps_at_once: int
) -> fx.GraphModule | None:
    """The parts of a call as a graph of their own; None if some part is refused to the last."""
    if depth == 0 or not _is_spread_by_index(node):
        return None
    torchapi.canonicalize(node)  # no value is read that a call has written to
    name = torchapi.target_name(node)
    for own in (*DECOMPOSITIONS.get(name, ()), WRITTEN.get(name)):  # None is PyTorch's own
        traced = steps(node, steps_at_once) or torchapi.decomposed(node, own)
        if traced is not None and is_functional(traced):
            made = _taken(traced, node, refuses, known, depth, steps_at_once)
            if made is not None:
                return made
    return None


def _taken(
    traced: fx.GraphModule, node: fx.Node, refuses: Refuses, known: set[fx.Node], depth: int,
    steps_at_once: int,
) -> fx.GraphModule | None:  # fmt: skip
    """Parts of a call, those that are refused as their own parts; None if one has none."""
    canonical_overloads.apply(traced)
    _find_constants(traced.graph, node, known)
    home = {k: v for k, v in node.meta.items() if k in _HOME}
    for part in list(traced.graph.nodes):
        part.meta.update(home)
        if part.op != "call_function" or torchapi.target_name(part) == "getitem":
            continue
        if refuses(part):
            if torchapi.target_name(part) == torchapi.target_name(node):
                return None
            inner = _parts(part, refuses, known, depth - 1, steps_at_once)
            if inner is None:
                return None
            _replace(traced, part, inner, known)
    return traced


def _find_constants(graph: fx.Graph, node: fx.Node, known: set[fx.Node]) -> None:
    """Add those of a call's parts that are constants."""
    given = iter(node.all_input_nodes)
    for part in graph.nodes:
        inputs = part.all_input_nodes
        if part.op == "placeholder":
            is_constant = next(given) in known
        else:
            is_constant = part.op == "get_attr" or bool(inputs and known.issuperset(inputs))
        if is_constant and part.op != "output":
            known.add(part)


def _is_spread_by_index(node: fx.Node) -> bool:
    """Whether a call with several results is read one by one."""
    if not isinstance(node.meta.get("val"), (list, tuple)):
        return True
    return all(torchapi.target_name(user) == "getitem" for user in node.users)


def _replace(
    module: fx.GraphModule, node: fx.Node, parts: fx.GraphModule, constants: set[fx.Node]
) -> None:
    results = inline(module, node, parts, constants)
    if isinstance(results, (list, tuple)):
        for user in list(node.users):
            index: Any = user.args[1]
            user.replace_all_uses_with(results[index])
            module.graph.erase_node(user)
    else:
        node.replace_all_uses_with(results)
    module.graph.erase_node(node)


def inline(
    module: fx.GraphModule, node: fx.Node, parts: fx.GraphModule,
    constants: set[fx.Node] | frozenset[fx.Node] = frozenset(),
) -> Any:  # fmt: skip
    """Copy a graph before a call; what it returns, as nodes of the larger graph."""
    known: dict[fx.Node, fx.Node] = {}
    given = iter(node.all_input_nodes)
    for part in parts.graph.nodes:
        if part.op == "placeholder":
            known[part] = next(given)
        elif part.op == "output":
            return fx.map_arg(part.args[0], lambda n: known[n])
        else:
            with module.graph.inserting_before(node):
                known[part] = module.graph.node_copy(part, lambda n: known[n])
            if isinstance(constants, set) and part in constants:
                constants.add(known[part])
            if part.op == "get_attr":
                _adopt(module, known[part], torchapi.attribute(parts, str(part.target)))
    raise AssertionError("a graph has an output")


def _adopt(module: fx.GraphModule, node: fx.Node, tensor: torch.Tensor) -> None:
    """A constant of the parts becomes one of the module."""
    name = f"{node.name}_part"  # names of nodes are unique, so few are tried
    while hasattr(module, name):
        name += "_"
    module.register_buffer(name, tensor, persistent=False)
    node.target = name
    node.meta.setdefault("val", tensor)

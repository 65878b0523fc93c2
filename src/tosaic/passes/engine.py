"""The engine of the FX passes: it visits nodes, puts replacements in place, sweeps dead code.

A pass is a function from a node to its replacement, or one from a graph module to whether it
changed anything. Passes neither sweep nor recompile; a list of them runs on the functions of
branches and loops first, then on the module itself, which is compiled again once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from tosaic.errors import InvalidGraph, first_line
from tosaic.front import torchapi
from tosaic.runtime.phases import ended


@dataclass(frozen=True, slots=True)
class Call:
    """What a node shall call instead: it keeps its name, its origin, and its shape and type."""

    target: Any
    args: tuple[Any, ...]
    kwargs: Any = None


# A call for the node itself, another node for its consumers, or whether the pass has changed it.
Replacement = Call | fx.Node | bool | None


@dataclass(frozen=True, slots=True)
class Pass:
    """A transform of FX graphs under the name that phases and prints have for it."""

    name: str
    apply: Callable[[fx.GraphModule], bool]


def graph_pass(apply: Callable[[fx.GraphModule], bool]) -> Pass:
    """A pass over a whole graph; it says whether it changed anything."""
    return Pass(apply.__name__, apply)


def node_pass(*targets: str) -> Callable[[Callable[[fx.Node], Replacement]], Pass]:
    """A pass over calls of operators, or over all calls; new calls go before the visited one."""

    def register(rewrite: Callable[[fx.Node], Replacement]) -> Pass:
        return Pass(rewrite.__name__, lambda module: visit(module.graph, [rewrite], targets))

    return register


def visit(
    graph: fx.Graph, rewrites: Iterable[Callable[[fx.Node], Replacement]], targets: Sequence[str]
) -> bool:
    """Replace each call by what the first of the functions that has an answer says."""
    changed, names = False, frozenset(targets)
    for node in list(graph.nodes):
        if node.op != "call_function" or node._erased:
            continue
        if names and torchapi.target_name(node) not in names:
            continue
        with graph.inserting_before(node):
            made = next((m for rewrite in rewrites if (m := rewrite(node))), None)
        if made:
            replace(node, made)
            changed = True
    return changed


def replace(node: fx.Node, made: Replacement) -> None:
    """Put a replacement in the place of a node."""
    if isinstance(made, Call):
        node.target, node.args, node.kwargs = made.target, made.args, made.kwargs or {}
    elif isinstance(made, fx.Node):
        node.replace_all_uses_with(made)
        node.graph.erase_node(node)


def regions(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """The functions of the branches and loops of a module."""
    for node in module.graph.find_nodes(op="get_attr"):
        found = torchapi.attribute(module, str(node.target))
        if isinstance(found, fx.GraphModule):
            yield found


def run(module: fx.GraphModule, passes: Sequence[Pass]) -> bool:
    """Apply passes in their order to a module and its functions; whether it changed itself."""
    for region in regions(module):
        run(region, passes)
    changed = False
    for each in passes:
        if each.apply(module):
            torchapi.sweep(module.graph)
            changed = True
        ended(each.name, lambda: str(module.graph), lambda: _verify(module.graph))
    if changed:
        module.recompile()
    return changed


def _verify(graph: fx.Graph) -> None:
    """InvalidGraph if nodes are not in order, or read what is not there."""
    try:
        graph.lint()
    except RuntimeError as problem:
        raise InvalidGraph(first_line(problem)) from problem

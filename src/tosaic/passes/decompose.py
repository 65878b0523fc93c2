"""Decomposes calls that no rule takes into the parts that PyTorch itself makes of them.

Each is traced alone, from its operands' shapes, and put in the place of the call; the program is
not traced again. What the parts need in turn is done the same way. Recurrent layers have parts
of our own making.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.front.hints import CALL, LACKS
from tosaic.front.precision import CHOICE
from tosaic.front.registry import RULES
from tosaic.ir.traits import PLAIN, Traits
from tosaic.passes.canonicalize import canonical_overloads
from tosaic.passes.decompositions import WRITTEN
from tosaic.passes.decompositions_indexing import DECOMPOSITIONS
from tosaic.passes.decompositions_pooling import POOLS
from tosaic.passes.decompositions_weights import WITH_COMPUTED_WEIGHTS
from tosaic.passes.match import free_name
from tosaic.passes.rnn_loops import loops
from tosaic.passes.unroll_rnn import steps

_HOME = (CALL, "stack_trace", "nn_module_stack", CHOICE)
_DEEPEST = 4  # parts of parts of parts: deeper, a call is made of things that no rule knows


Refuses = Callable[[fx.Node], str]
"""Why a call is refused; nothing if it is taken."""


def expand(
    module: fx.GraphModule,
    refuses: Refuses,
    only: frozenset[str] = frozenset(),
    constants: set[fx.Node] | None = None,
    traits: Traits = PLAIN,
) -> int:
    """Replace calls that are refused by their parts, where all of these are taken; count them.

    A call that stays says in its meta data which part of it is refused, to the innermost.
    ``only`` names operators that are always replaced, since what is inside them matters.
    ``constants`` are the nodes that are known to be; parts that are join them. ``traits`` say
    how recurrent layers are written.
    """
    how = _How(refuses, set() if constants is None else constants, traits)
    replaced = 0
    for node in list(module.graph.nodes):
        if node.op != "call_function":
            continue
        if torchapi.is_scan(node):
            continue  # of a region, which is expanded by itself
        if torchapi.target_name(node) in only or refuses(node):
            how.lacks.clear()
            parts = _parts(node, how, _DEEPEST)
            if parts is None and how.lacks:
                node.meta[LACKS] = how.lacks[0]
            if parts is not None:
                _replace(module, node, parts, how.known)
                replaced += 1
    if replaced:
        torchapi.sweep(module.graph)
        module.recompile()
    return replaced


@dataclass(frozen=True, slots=True)
class _How:
    """What is refused, which nodes are constants, and how recurrent layers are written.

    ``lacks`` are the sentences about parts that are refused to the last.
    """

    refuses: Refuses
    known: set[fx.Node]
    traits: Traits
    lacks: list[str] = field(default_factory=list)

    def refused_part(self, part: fx.Node, node: fx.Node, why: str, count: int) -> None:
        """Keep why a part is refused, unless something inside of it said so."""
        # A part without a rule says less than the call, whose name the user has written.
        if len(self.lacks) == count and torchapi.target_name(part) in RULES:
            name = torchapi.target_name(part)
            is_other = name != torchapi.target_name(node)
            self.lacks.append(f"its part {name}: {why}" if is_other else why)


def _parts(node: fx.Node, how: _How, depth: int) -> fx.GraphModule | None:
    """The parts of a call as a graph of their own; None if some part is refused to the last."""
    if depth == 0 or not _is_spread_by_index(node):
        return None
    torchapi.canonicalize(node)  # no value is read that a call has written to
    name = torchapi.target_name(node)
    listed = *DECOMPOSITIONS.get(name, ()), *POOLS.get(name, ()), WRITTEN.get(name)
    for own in (*_computed(node, how), *listed):
        for traced in _forms(node, own, how):
            if is_functional(traced) and _take(traced, node, node.all_input_nodes, how, depth):
                return traced
    return None


def _computed(node: fx.Node, how: _How) -> tuple[Callable[..., Any], ...]:
    """What is made of a layer whose weight or bias is no constant."""
    own = WITH_COMPUTED_WEIGHTS.get(torchapi.target_name(node))
    return () if own is None or how.known.issuperset(node.all_input_nodes[1:]) else (own,)


def _forms(node: fx.Node, own: Any, how: _How) -> Iterator[fx.GraphModule]:
    """Graphs of the parts of a call, the best first; without ``own`` those that PyTorch makes."""
    looped = loops(node, how.traits)
    if looped is not None:
        yield looped
    traced = steps(node, how.traits.steps_at_once) or torchapi.decomposed(node, own)
    if traced is not None:
        yield traced


def _take(
    traced: fx.GraphModule, node: fx.Node, given: Iterable[fx.Node], how: _How, depth: int
) -> bool:
    """Replace what is refused of the parts of a call by its own parts; False if it has none."""
    canonical_overloads.apply(traced)
    _find_constants(traced.graph, given, how.known)
    home = {k: v for k, v in node.meta.items() if k in _HOME}
    for part in list(traced.graph.nodes):
        part.meta.update(home)
        if part.op != "call_function" or torchapi.target_name(part) == "getitem":
            continue
        if torchapi.is_scan(part):
            body = torchapi.attribute(traced, str(torchapi.scan_of(part).step.target))
            if not _take(body, node, (), how, depth):
                return False
            body.recompile()
        elif why := how.refuses(part):
            count, inner = len(how.lacks), None
            if torchapi.target_name(part) != torchapi.target_name(node):
                inner = _parts(part, how, depth - 1)
            if inner is None:
                how.refused_part(part, node, why, count)
                return False
            _replace(traced, part, inner, how.known)
    return True


def _find_constants(graph: fx.Graph, given: Iterable[fx.Node], known: set[fx.Node]) -> None:
    """Add those of a call's parts that are constants."""
    operands = iter(given)
    for part in graph.nodes:
        inputs = part.all_input_nodes
        if part.op == "placeholder":
            is_constant = next(operands, None) in known
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


def _adopt(module: fx.GraphModule, node: fx.Node, held: Any) -> None:
    """A constant or a function of the parts becomes one of the module."""
    name = free_name(module, f"{node.name}_part")
    node.target = name
    if isinstance(held, fx.GraphModule):
        module.add_module(name, held)
        return
    module.register_buffer(name, held, persistent=False)
    node.meta.setdefault("val", held)

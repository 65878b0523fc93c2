"""Chooses the scheme of each part of a model: by node, module name, module type or globally."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from torch import fx

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import fuses_activation
from tosaic.front.precision import CHOICE, UNNAMED, Choice
from tosaic.front.registry import RULES
from tosaic.quant.annotations import ANNOTATION
from tosaic.quant.schemes import BLOCK_SCHEMES, BlockScheme, Scheme, scheme_of
from tosaic.spec.env import Env

Part = str | Scheme | BlockScheme | None


@runtime_checkable
class BoundarySpec(Protocol):
    """What is observed at a model's inputs and outputs."""

    def annotate(self, graph: fx.Graph, quantizer: Any) -> None:
        """Say so on the graph, once the calls are annotated."""

    def link(self, observers: dict[Any, Any]) -> None:
        """Change what observes the boundary, once all observers are known."""


@dataclass(frozen=True, slots=True)
class Schemes:
    """Schemes for the parts of a model; what is named most exactly counts, and None is float.

    In this order: ``nodes``, a call by the name of its node in the exported program or all calls
    of an operator, as ``"conv2d_1"`` or ``"aten.relu.default"``; ``module_names``, a module by its
    path with all that is in it, the innermost first; ``module_types``, modules by their class;
    ``io``, types at the boundary of the model as ``tosaic.compile`` takes them; ``global_``,
    everything else. ``order`` lists keys of the others: what is later in it counts, however exact.
    """

    global_: Part = "int8"
    module_names: Mapping[str, Part] = field(default_factory=dict)
    module_types: Mapping[Any, Part] = field(default_factory=dict)
    nodes: Mapping[Any, Part] = field(default_factory=dict)
    io: Any = None
    order: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for name in ("module_names", "module_types", "nodes"):
            if not isinstance(getattr(self, name), Mapping):
                kind = type(getattr(self, name)).__name__
                raise InvalidInput(f"{name} is a dict of schemes, not {kind}")
        for part in self._parts():
            resolved(part)
        self._check_order()

    def _check_order(self) -> None:
        """InvalidInput unless ``order`` is empty or lists every key."""
        if not isinstance(self.order, (tuple, list)):
            raise InvalidInput(f"order is a tuple of keys, not {type(self.order).__name__}")
        for key in (*self.module_names, *self.module_types, *self.nodes) if self.order else ():
            if key not in self.order:
                raise InvalidInput(
                    f"order leaves {key!r} out: list every key of module_names, module_types and "
                    "nodes, or leave order away"
                )

    def _parts(self) -> Iterator[Part]:
        yield self.global_
        for chosen in (self.module_names, self.module_types, self.nodes):
            yield from chosen.values()

    @property
    def env(self) -> str:
        """A specification with what all schemes need."""
        found = [s.env for s in map(resolved, self._parts()) if isinstance(s, Scheme)]
        names = dict.fromkeys(name for env in found or ["TOSA-1.0+INT"] for name in env.split("+"))
        return "+".join(names)

    @property
    def has_blocks(self) -> bool:
        """Whether layers of some part are block-scaled."""
        return any(isinstance(resolved(part), BlockScheme) for part in self._parts())

    def without_blocks(self) -> Schemes | None:
        """The same for a program whose layers are block-scaled already; None if all is float."""

        def left(parts: Mapping[Any, Part]) -> dict[Any, Part]:
            return {key: _no_block(part) for key, part in parts.items()}

        made = replace(
            self, global_=_no_block(self.global_), module_names=left(self.module_names),
            module_types=left(self.module_types), nodes=left(self.nodes),
        )  # fmt: skip
        return made if any(part is not None for part in made._parts()) else None

    def check(self, env: Env) -> None:
        """InvalidInput if a specification lacks what one of the schemes needs."""
        for scheme in map(resolved, self._parts()):
            if scheme is not None:
                scheme.check(env)


def schemes_of(given: Any) -> Schemes:
    """What a user gives as a scheme: a name, a scheme, or several for the parts of a model."""
    if isinstance(given, Schemes):
        return given
    if isinstance(given, (str, Scheme, BlockScheme)):
        return Schemes(given)
    raise InvalidInput(
        f"a scheme is a name, or tosaic.Schemes(...) for the parts of a model, not "
        f"{type(given).__name__}"
    )


def integer_schemes(given: Any) -> Schemes:
    """The same for a quantizer, which observes and rounds to integers alone."""
    schemes = schemes_of(given)
    if schemes.has_blocks:
        raise InvalidInput(
            "block-scaled schemes (mxfp8 …) need no observers, calibration or training: give them "
            "to tosaic.compile, for sizes that are fixed where other parts are integers"
        )
    return schemes


def mark(graph: fx.Graph, schemes: Schemes) -> None:
    """Let every call know its choice.

    What another quantizer has annotated keeps what that one has chosen.
    """
    for node in graph.nodes:
        if node.op == "call_function" and ANNOTATION not in node.meta:
            node.meta[CHOICE] = choice_of(node, schemes)


def is_marked(graph: fx.Graph, schemes: Schemes) -> bool:
    """Whether calls know their choices from these schemes."""
    return any(CHOICE in n.meta and n.meta[CHOICE].schemes is schemes for n in graph.nodes)


def choice_of(node: fx.Node, schemes: Schemes) -> Choice:
    """The choice for a call by itself."""
    part, rule, rank = _named(node, schemes)
    return Choice(resolved(part), rule, rank, schemes=schemes)


def _named(node: fx.Node, schemes: Schemes) -> tuple[Part, str, int]:
    """What is said of a call, by which rule, and how exactly that names it."""
    found = list(_sayings(node, schemes))
    if not found:
        return schemes.global_, "global", UNNAMED
    last = max(found, key=lambda each: schemes.order.index(each[0])) if schemes.order else found[0]
    return last[1:]


def _sayings(node: fx.Node, schemes: Schemes) -> Iterator[tuple[Any, Part, str, int]]:
    """All that is said of a call and by which key, the most exact first."""
    if node.name in schemes.nodes:
        yield node.name, schemes.nodes[node.name], f"node {node.name}", 0
    for key, part in schemes.nodes.items():
        if _is_operator(node, key):
            yield key, part, f"operator {torchapi.target_name(node)}", 1
    modules = list(torchapi.modules_of(node))
    for name in _innermost([path for path, _ in modules], schemes.module_names):
        yield name, schemes.module_names[name], f"module {name}", 2
    for _, kind in modules:
        for wanted, part in schemes.module_types.items():
            if kind in (wanted, qualified(wanted)):
                short = qualified(wanted).rpartition(".")[2]
                yield wanted, part, f"module type {short}", 3


def choices(graph: fx.Graph, schemes: Schemes) -> dict[fx.Node, Choice]:
    """A choice for each call, with those before it in mind.

    An activation that is fused with a layer follows it unless it is named more exactly itself.
    Results that are taken from several follow the call. What only moves integers and is not named
    keeps them integers, also where everything unnamed is left in float.
    """
    made: dict[fx.Node, Choice] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        own = node.meta.get(CHOICE) or choice_of(node, schemes)
        first = node.all_input_nodes[0] if node.all_input_nodes else None
        before = made.get(first) if first is not None else None
        if before is not None and first is not None and _follows(first, node, before, own):
            own = before
        elif own.scheme is None and own.rank == UNNAMED and _moves(node):
            given = {made[n].scheme for n in node.all_input_nodes if n in made}
            if len(given) == 1 and None not in given:
                own = replace(own, scheme=given.pop(), rule="what it moves")
        made[node] = own
    return made


def _follows(first: fx.Node, node: fx.Node, before: Choice, own: Choice) -> bool:
    names = torchapi.target_name(first), torchapi.target_name(node)
    if names[1] == "getitem":
        return True
    return len(first.users) == 1 and fuses_activation(*names) and before.rank <= own.rank


def _moves(node: fx.Node) -> bool:
    rule = RULES.get(torchapi.target_name(node))
    return rule is not None and rule.policy == "SHARED"


def resolved(part: Any) -> Scheme | BlockScheme | None:
    """The scheme of a name; None for float."""
    if part is None or isinstance(part, (Scheme, BlockScheme)):
        return part
    name = part if isinstance(part, str) else type(part).__name__
    return BLOCK_SCHEMES.get(name) or scheme_of(name)


def integers_of(part: Part) -> Scheme | None:
    """The same where block-scaled layers are calls already, and other parts of theirs float."""
    found = resolved(part)
    return found if isinstance(found, Scheme) else None


def _no_block(part: Part) -> Part:
    return None if isinstance(resolved(part), BlockScheme) else part


def _is_operator(node: fx.Node, key: Any) -> bool:
    return torchapi.canonical_name(str(key)) == torchapi.target_name(node)


def _innermost(paths: Iterable[str], names: Iterable[str]) -> list[str]:
    """Names that one of the modules has, or that one of them is in, the longest first."""
    found = [n for n in names if any(p == n or p.startswith(f"{n}.") for p in paths)]
    return sorted(found, key=len, reverse=True)


def qualified(kind: Any) -> str:
    """The name by which an exported program knows a class."""
    return f"{kind.__module__}.{kind.__qualname__}" if isinstance(kind, type) else str(kind)


def check_names(module: fx.GraphModule, schemes: Schemes, written: bool = False) -> None:
    """InvalidInput for a name that nothing in a program has, its branches and loops included.

    Only written names count if ``written``: no class and no operator is a slip of the pen.
    """
    graphs = [part.graph for part in module.modules() if isinstance(part, fx.GraphModule)]
    calls = [n for graph in graphs for n in graph.nodes if n.op == "call_function"]
    modules = [pair for node in calls for pair in torchapi.modules_of(node)]
    paths = {p for path, _ in modules for p in _prefixes(path)} - {""}
    types = {qualified(kind) for _, kind in modules}
    operators = {torchapi.target_name(n) for n in calls}
    names = {n.name for n in calls}
    for name in schemes.module_names:
        _check(name, paths, lambda n: f"the model calls no module {n!r}")
    for kind in () if written else schemes.module_types:
        _check(qualified(kind), types, lambda n: f"the model calls no module of type {n}")
    for key in (key for key in schemes.nodes if isinstance(key, str) or not written):
        name = torchapi.canonical_name(str(key))
        _check(name, names | operators, lambda n: f"the exported model has no call {n!r}")


def _check(name: str, known: set[str], sentence: Callable[[str], str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, 3, 0.5) or sorted(known)[:5]
    raise InvalidInput(f"{sentence(name)}; there are, for instance, {', '.join(near) or 'none'}")


def _prefixes(path: str) -> Iterator[str]:
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        yield ".".join(parts[:end])

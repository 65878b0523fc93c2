"""Sensitivities: the error at the outputs when one tensor alone is rounded to 8 bits.

The quantized program runs with its weights in integers and every activation as it is; then one
value after the other is rounded, and what depends on it is computed again. What several calls read
is rounded for each of them as well, as if the others read it as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.hints import CALL
from tosaic.front.registry import RULES
from tosaic.quant.annotations import operands_of


@dataclass(frozen=True, slots=True)
class Rounding:
    """A tensor that is rounded to 8 bits, the calls that make and read it, and the error.

    ``error`` is of the outputs, each over its power; ``apart`` is that of each reader if what it
    reads alone is rounded. An input of the program has no ``maker``. What is ``moved`` was rounded
    before, if at all.
    """

    maker: str | None
    readers: tuple[str, ...]
    error: float
    apart: tuple[float, ...] = ()
    size: int = 0
    moved: bool = False

    def of(self, reader: str) -> float:
        """The error if one reader alone takes it in 8 bits."""
        return self.apart[self.readers.index(reader)] if self.apart else self.error


@dataclass(frozen=True, slots=True)
class Sensitivities:
    """Roundings of a program, and calls that have one scheme: nothing is rounded between them.

    Calls in ``uneven`` may read other bits than they give; in ``layers`` are those of them that
    take as long with either result.
    """

    roundings: tuple[Rounding, ...]
    ties: tuple[tuple[str, str], ...]
    uneven: frozenset[str] = frozenset()
    layers: frozenset[str] = frozenset()


class _Run(fx.Interpreter):
    """Runs a quantized program in which only the active value is rounded."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.active: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        name = torchapi.target_name(n)
        source = n.args[0] if n.args else None
        if name == QUANTIZE and n is not self.active and isinstance(source, fx.Node):
            return self.env[source]
        if name in DEQUANTIZE and isinstance(source, fx.Node):
            is_rounded = torchapi.target_name(source) == QUANTIZE
            if is_rounded and source is not self.active:
                return self.env[source]
        return super().run_node(n)

    def follow(self, changed: set[fx.Node], order: Sequence[fx.Node]) -> None:
        """Compute again what depends on values that have changed."""
        for node in order:
            if node not in changed and any(n in changed for n in node.all_input_nodes):
                changed.add(node)
                self.env[node] = self.run_node(node)


def sensitivities(
    module: fx.GraphModule,
    data: Sequence[Sequence[Any]],
    names: Mapping[str, str],
    is_over: Callable[[], bool],
) -> Sensitivities:
    """Measure a program in int8; ``names`` are those of exported calls, by the calls' own."""
    values = [n for n in module.graph.nodes if _is_byte(n)]
    readers = {node: _readers(node) for node in values}
    apart = [(n, r) for n in values for r in readers[n] if len(readers[n]) > 1]
    errors: dict[Any, float] = dict.fromkeys([*values, *apart], 0.0)
    sizes = dict.fromkeys(values, 0)
    order = list(module.graph.nodes)
    output = order[-1]
    counted = 0
    with torch.no_grad():
        for leaves in data:
            if counted and is_over():
                break
            counted += 1
            run = _Run(module)
            run.run(*leaves, enable_io_processing=False)
            plain, first = _outputs(run.env, output), dict(run.env)
            for node in values:
                sizes[node] = first[node].numel()
                run.active, run.env = node, dict(first)
                for each in (node, *node.users):
                    run.env[each] = run.run_node(each)
                rounded = dict(run.env)
                run.follow(set(node.users), order[:-1])
                errors[node] += _error(_outputs(run.env, output), plain)
                for reader in readers[node] if len(readers[node]) > 1 else ():
                    run.env = rounded | {}
                    made = run.run_node(reader)
                    run.env = first | {reader: made}
                    run.active = None
                    run.follow({reader}, order[:-1])
                    run.active = node
                    errors[node, reader] += _error(_outputs(run.env, output), plain)

    def name(node: fx.Node) -> str:
        return names.get(str(node.meta.get(CALL, "")), "")

    found = []
    for node in values:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        alone = defaultdict[str, float](float)
        for reader in readers[node]:
            alone[name(reader)] += errors.get((node, reader), 0.0)
        known = sorted(set(alone) - {""})
        several = len(readers[node]) > 1
        maker = None if source.op == "placeholder" else name(source)
        found.append(
            Rounding(
                maker, tuple(known), errors[node] / max(counted, 1),
                tuple(alone[k] / max(counted, 1) for k in known) if several else (), sizes[node],
                _is_moved(source),
            )
        )  # fmt: skip
    return Sensitivities(tuple(found), tuple(sorted(_ties(module, name))), *_kinds(module, name))


def _policy(node: fx.Node) -> str:
    rule = RULES.get(torchapi.target_name(node))
    return "" if rule is None else rule.policy


def _is_moved(node: fx.Node) -> bool:
    """Whether a call gives numbers that it was given, from one value."""
    return _policy(node) == "SHARED" and len(operands_of(node, "activation")) == 1


def _kinds(
    module: fx.GraphModule, name: Callable[[fx.Node], str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Calls that may read other bits than they give, and those of them that have weights.

    Each is one call of the quantized program, or a layer with the activation that it fuses. A
    function of one value is a table where both have 8 bits alone.
    """
    parts = defaultdict[str, list[fx.Node]](list)
    for node in module.graph.nodes:
        if node.op == "call_function" and torchapi.target_name(node) not in (QUANTIZE, *DEQUANTIZE):
            parts[name(node)].append(node)
    single = {key: nodes[0] for key, nodes in parts.items() if key and len(nodes) == 1}
    layers = {key for key, node in single.items() if _policy(node) == "WEIGHTED"}
    pairs = {
        key for key, node in single.items()
        if _policy(node) == "FREE" and len(operands_of(node, "activation")) > 1
    }  # fmt: skip
    return frozenset(layers | pairs), frozenset(layers)


def _readers(node: fx.Node) -> list[fx.Node]:
    """The calls that take a rounded value."""
    found = {u: None for dq in node.users for u in dq.users if u.op == "call_function"}
    return list(found)


def _is_byte(node: fx.Node) -> bool:
    if torchapi.target_name(node) != QUANTIZE:
        return False
    return torchapi.bound_arguments(node)["dtype"] is torch.int8


def _ties(module: fx.GraphModule, name: Callable[[fx.Node], str]) -> set[tuple[str, str]]:
    """Calls that read what another gives as it is."""
    found = set()
    for node in module.graph.nodes:
        if node.op != "call_function" or torchapi.target_name(node) in (QUANTIZE, *DEQUANTIZE):
            continue
        for source in node.all_input_nodes:
            is_call = source.op == "call_function"
            if is_call and torchapi.target_name(source) not in (QUANTIZE, *DEQUANTIZE):
                pair = name(source), name(node)
                if all(pair) and pair[0] != pair[1]:
                    found.add(pair)
    return found


def _outputs(env: Mapping[fx.Node, Any], output: fx.Node) -> list[Tensor]:
    given: list[Tensor] = []  # what a program gives are tensors
    fx.map_arg(output.args, lambda n: given.append(env[n]))
    return [t for t in given if t.is_floating_point()]


def _error(got: list[Tensor], plain: list[Tensor]) -> float:
    """Squared errors over squared values, the mean over the outputs."""
    found = [
        float((g.double() - p.double()).square().sum() / p.double().square().sum().clamp(min=1e-30))
        for g, p in zip(got, plain, strict=True)
    ]
    return sum(found) / max(len(found), 1)

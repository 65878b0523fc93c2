"""Sensitivities: the error at the outputs when one tensor alone is rounded to 8 bits.

The quantized program runs with its weights in integers and every activation as it is; then one
value after the other is rounded, and what depends on it is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.hints import CALL


@dataclass(frozen=True, slots=True)
class Rounding:
    """A tensor that is rounded to 8 bits, the calls that make and read it, and the error.

    ``error`` is of the outputs, each over its power. An input of the program has no ``maker``.
    """

    maker: str | None
    readers: tuple[str, ...]
    error: float


@dataclass(frozen=True, slots=True)
class Sensitivities:
    """Roundings of a program, and calls that have one scheme: nothing is rounded between them."""

    roundings: tuple[Rounding, ...]
    ties: tuple[tuple[str, str], ...]


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


def sensitivities(
    module: fx.GraphModule,
    data: Sequence[Sequence[Any]],
    names: Mapping[str, str],
    is_over: Callable[[], bool],
) -> Sensitivities:
    """Measure a program in int8; ``names`` are those of exported calls, by the calls' own."""
    values = [n for n in module.graph.nodes if _is_byte(n)]
    errors = dict.fromkeys(values, 0.0)
    below = {node: _below(node) for node in values}
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
                run.active, run.env = node, dict(first)
                for each in order:
                    if each in below[node] and each is not output:
                        run.env[each] = run.run_node(each)
                errors[node] += _error(_outputs(run.env, output), plain)

    def name(node: fx.Node) -> str:
        return names.get(str(node.meta.get(CALL, "")), "")

    found = []
    for node in values:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        readers = {name(u) for dq in node.users for u in dq.users if u.op == "call_function"}
        maker = None if source.op == "placeholder" else name(source)
        found.append(Rounding(maker, tuple(sorted(readers - {""})), errors[node] / max(counted, 1)))
    return Sensitivities(tuple(found), tuple(sorted(_ties(module, name))))


def _is_byte(node: fx.Node) -> bool:
    if torchapi.target_name(node) != QUANTIZE:
        return False
    return torchapi.bound_arguments(node)["dtype"] is torch.int8


def _below(node: fx.Node) -> set[fx.Node]:
    """A value and all that depends on it."""
    found, left = {node}, [node]
    while left:
        for user in left.pop().users:
            if user not in found:
                found.add(user)
                left.append(user)
    return found


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

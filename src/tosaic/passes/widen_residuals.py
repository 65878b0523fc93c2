"""Asks for 16 bits for residual sums: what layers of a transformer add to, and what norms read.

Each rounding of such a sum to 8 bits would stay in it to the end, so it has 16 where it goes on to
another sum; ViT-Tiny gains 4 dB by it. Norms read 8 of them, or are what is added. Only where few
elements are far larger than all others, and would leave these little, a norm reads all 16, and
makes all of them alike: MiniLM in int8 comes from 7 to 16 dB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK, mark_of
from tosaic.front.roles import is_weighted

NORMS = frozenset({"aten.layer_norm.default", "aten.rms_norm.default"})
_FAR = 16.0  # the largest over the median: noise has 5 to 6, trained MiniLM 21 to 618


def mark_residuals(module: fx.GraphModule, outliers: Iterable[fx.Node]) -> None:
    """Ask for 16 bits where they are worth it; norms read all of those of sums with outliers."""
    sums = _sums(module)
    for node in module.graph.nodes:
        norms = [n for n in node.all_input_nodes if _is_norm(n)] if _is_sum(node) else []
        if (node in sums or norms) and any(_is_sum(user) for user in node.users):
            _mark(node, carried=True)
            for operand in node.all_input_nodes:
                if (is_weighted(operand) or operand in norms) and len(operand.users) == 1:
                    _mark(operand, carried=True)
    for node in outliers:
        _mark(node, carried=True, wide=True, reads=False)


def outliers(module: fx.GraphModule, leaves: Sequence[Any]) -> list[fx.Node]:
    """Sums before norms of which few elements are far larger than all others."""
    watch = _Watch(module, _sums(module))
    try:
        if watch.sums:
            watch.run(*leaves, enable_io_processing=False)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        return []  # calibration says what is wrong with them
    return watch.found


def _sums(module: fx.GraphModule) -> set[fx.Node]:
    return {n for n in module.graph.nodes if _is_sum(n) and any(map(_is_norm, n.users))}


def _mark(node: fx.Node, **changes: Any) -> None:
    node.meta[MARK] = replace(mark_of(node), **changes)


def _is_sum(node: fx.Node) -> bool:
    """Whether a call adds two tensors that fill the result."""
    if node.op != "call_function" or torchapi.target_name(node) != "aten.add.Tensor":
        return False
    operands = node.all_input_nodes
    return len(operands) == 2 and all(_fills(n, node) for n in operands)


def _fills(operand: fx.Node, node: fx.Node) -> bool:
    """Whether an operand has the shape of a sum, whatever the batch is."""
    examples = [n.meta.get("val") for n in (operand, node)]
    given, made = (torchapi.known_shape(e) if isinstance(e, Tensor) else None for e in examples)
    if given is None or made is None or len(given) != len(made) or len(made) < 3:
        return torchapi.same_shape(operand, node)
    return given[1:] == made[1:] and given[0] in (1, made[0])


def _is_norm(node: fx.Node) -> bool:
    return node.op == "call_function" and torchapi.target_name(node) in NORMS


class _Watch(fx.Interpreter):
    """Looks at sums while a program runs."""

    def __init__(self, module: fx.GraphModule, sums: set[fx.Node]) -> None:
        super().__init__(module)
        self.sums, self.found = sums, list[fx.Node]()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.sums and isinstance(result, Tensor) and result.numel():
            size = result.detach().abs().float()
            if float(size.max()) > _FAR * float(size.median()) > 0:
                self.found.append(n)
        return result

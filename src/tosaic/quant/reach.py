"""How many steps a lattice value spans on the example inputs: whether 8 bits hold it.

``(x * 100).round()`` with x up to 4 needs 801 integers. With 16 bits they are exact; without, they
are as int32 if all that reads them makes integers of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.roles import is_real
from tosaic.passes.step_lattice import Steps
from tosaic.quant.schemes import Scheme

Ends = tuple[float, float]
_REACH = "tosaic.reach"  # the least and the largest multiple
_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default"})
_COMPARISONS = frozenset(f"aten.{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def seen_in(module: fx.GraphModule, leaves: Sequence[Any]) -> dict[fx.Node, Ends]:
    """The extremes of values that have a step, for some inputs."""
    steps = Steps(module.graph.nodes)
    watch = _Watch(module, {n for n in module.graph.nodes if is_real(n) and steps.of(n)})
    if any(n.op == "call_function" for n in watch.watched):
        try:
            watch.run(*leaves, enable_io_processing=False)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
            return {}  # calibration says what is wrong with them
    return watch.found


def mark_reach(module: fx.GraphModule, seen: Mapping[fx.Node, Ends]) -> None:
    """Let values that have a step know how many of them they were seen to be."""
    steps = Steps(module.graph.nodes)
    for node, (low, high) in seen.items():
        if is_real(node) and (step := steps.of(node)):
            node.meta[_REACH] = min(low, 0.0) / step, max(high, 0.0) / step


def exceeds(node: fx.Node, scheme: Scheme) -> bool:
    """Whether a value was seen to be more multiples of its step than a scheme has integers."""
    low, high = node.meta.get(_REACH, (0, 0))
    if scheme.qscheme is torch.per_tensor_symmetric:
        return bool(max(-low, high) > scheme.high)
    return bool(high - low > scheme.high - scheme.low)


def becomes_integers(node: fx.Node) -> bool:
    """Whether all calls that read a value make integers or truths of it, one by one."""
    return bool(node.users) and all(
        torchapi.target_name(user) in _COMPARISONS
        or (torchapi.target_name(user) in _CASTS and not is_real(user))
        for user in node.users
    )


class _Watch(fx.Interpreter):
    """Looks at some values while a program runs."""

    def __init__(self, module: fx.GraphModule, watched: set[fx.Node]) -> None:
        super().__init__(module)
        self.watched, self.found = watched, dict[fx.Node, Ends]()

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.watched and isinstance(result, Tensor):
            seen = result.detach()[result.detach().isfinite()]
            if seen.numel():
                self.found[n] = float(seen.min()), float(seen.max())
        return result

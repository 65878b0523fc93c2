"""How many steps values of a step reach over, by the example inputs: where 8 bits do not hold them.

``(x * 100).round()`` with x up to 4 needs 801 integers. With 16 bits they are exact; without, they
are as int32 if all that reads them makes integers of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.quant.roles import is_real
from tosaic.quant.schemes import Scheme
from tosaic.quant.steps import Steps

_REACH = "tosaic.reach"  # the least and the largest multiple
_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default"})
_COMPARISONS = frozenset(f"aten.{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))


def mark_reach(module: fx.GraphModule, leaves: Sequence[Any]) -> None:
    """Let values that have a step know how many of them they were seen to be."""
    steps = Steps(module.graph.nodes)
    found = {n: step for n in module.graph.nodes if is_real(n) and (step := steps.of(n))}
    if any(n.op == "call_function" for n in found):
        try:
            _Watch(module, found).run(*leaves, enable_io_processing=False)
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError):
            return  # calibration says what is wrong with them


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
    """Looks at values of a step while a program runs."""

    def __init__(self, module: fx.GraphModule, steps: dict[fx.Node, float]) -> None:
        super().__init__(module)
        self.steps = steps

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.steps and isinstance(result, Tensor) and result.numel():
            seen = result.detach()[result.detach().isfinite()]
            if seen.numel():
                low, high = (float(end) / self.steps[n] for end in torch.aminmax(seen))
                n.meta[_REACH] = min(low, 0.0), max(high, 0.0)
        return result

"""A call as a function of one value: one operand is free, the others are parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.quant.observer_range import Reader


def function_of(module: fx.GraphModule, source: fx.Node, user: fx.Node) -> Reader | None:
    """A call as a function of one of its operands; the others must be parameters."""
    known: dict[fx.Node, Tensor] = {}
    for node in user.all_input_nodes:
        if node is not source and node.op != "get_attr":
            return None
        if node is not source:
            known[node] = torchapi.attribute(module, str(node.target)).detach().double()
    target: Any = user.target
    given = user.args, user.kwargs  # as they are now: observers will stand before them

    def read(values: Tensor) -> Tensor:
        args, kwargs = fx.map_arg(given, lambda n: known[n] if n in known else values.clone())
        result: Tensor = target(*args, **kwargs)
        return result

    return read


def is_pointwise(read: Reader) -> bool:
    """Whether the order and the number of values do not matter, and something else does."""
    probe = torch.linspace(-4, 4, 64, dtype=torch.float64)
    try:
        whole = read(probe)
        parts = torch.cat([read(probe[40:]), read(probe[:40])])
        back = read(probe.flip(0)).flip(0)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return False  # it wants another rank or another type
    if whole.shape != probe.shape or not whole.dtype.is_floating_point:
        return False
    # Vectors of processors and what is left over beside them may differ in the last bits.
    return all(
        a.shape == probe.shape and torch.allclose(a, whole, rtol=1e-9, atol=1e-12, equal_nan=True)
        for a in (parts.roll(40), back)
    )

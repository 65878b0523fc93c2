"""What PyTorch itself makes of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._decomp import decomposition_table
from torch.fx.experimental.proxy_tensor import make_fx

from tosaic.errors import Unsupported
from tosaic.front.torchapi.programs import quiet, reshape_views
from tosaic.front.torchapi.standin import StandIn, as_fakes, as_stand_ins


def _mutable(args: Any) -> list[Any]:
    """Arguments whose lists a decomposition may change: those of a node may not be."""
    return [_mutable(a) if isinstance(a, list) else a for a in args]


def decomposed(
    node: fx.Node, own: Callable[..., Any] | None = None, composite: bool = False
) -> fx.GraphModule | None:
    """What PyTorch itself makes of a call, traced from its operands; None if it is elementary.

    ``own`` is what we make of it instead. ``composite`` asks for what its kernel calls, and not for
    PyTorch's table of decompositions.
    """
    target, operands = node.target, node.all_input_nodes
    if not isinstance(target, torch._ops.OpOverload) or any("val" not in n.meta for n in operands):
        return None
    written = own or (None if composite else decomposition_table.get(target))
    function = target if written is None else written

    def call(*values: Any) -> Any:
        known = dict(zip(operands, values, strict=True))
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: known[n])
        return function(*_mutable(args), **kwargs)

    examples = [n.meta["val"] for n in operands]
    are_ours = any(isinstance(e, StandIn) for e in examples)
    mode, fakes = as_fakes(examples)
    try:
        if written is None and not target._can_decompose():
            return None
        with quiet(), mode, torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
            made = make_fx(call, pre_dispatch=written is not None)(*fakes)
    except (Unsupported, NotImplementedError, RuntimeError, TypeError):
        # Sizes are not known, or PyTorch's own form does not take every call of the schema.
        return None
    reshape_views(made.graph)
    if are_ours:
        as_stand_ins(made)
    return made

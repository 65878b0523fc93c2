"""Recognises activations that are written out: x · sigmoid(x) is SiLU."""

from __future__ import annotations

import torch
from torch import fx

from tosaic.passes.engine import Call, Replacement, node_pass
from tosaic.passes.match import matched, op, var

_SILU = op("mul.Tensor", var("x"), op("sigmoid.default", var("x")), commutes=True)


@node_pass("aten.mul.Tensor")
def fuse_activation(node: fx.Node) -> Replacement:
    """The operator in the place of the call that gives its result."""
    found = matched(node, _SILU)
    return None if found is None else Call(torch.ops.aten.silu.default, (found["x"],))

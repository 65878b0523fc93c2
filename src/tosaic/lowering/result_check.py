"""Checks that the result of a rule has the shape and the type of the call it stands for.

A rule that returns anything else has a fault of its own. It becomes a refusal, so that the call
stays in PyTorch and nothing wrong ships.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import TYPES
from tosaic.spec import dtypes as d


def check_result(node: fx.Node, result: Any) -> None:
    """Unsupported where a result differs in shape or type from the example of its call."""
    example: Any = node.meta.get("val")
    if isinstance(result, (list, tuple)):
        wanted = example if isinstance(example, (list, tuple)) else []
        pairs = list(zip(result, wanted))  # a call may have more results than are read
    else:
        pairs = [(result, example)]
    for value, like in pairs:
        difference = _difference(value, like)
        if difference:
            raise Unsupported(
                f"the rule for {torchapi.target_name(node)} is at fault: it gives {difference}; "
                "please report this call"
            )


def _difference(value: Any, like: Any) -> str:
    """How a value is not like a tensor, in words; "" if it is or if sizes are not known."""
    if not isinstance(value, Value) or not isinstance(like, Tensor):
        return ""
    shape, kind = torchapi.known_shape(like), TYPES.get(like.dtype)
    if shape is not None and value.shape != shape:
        return f"{list(value.shape)} where PyTorch gives {list(shape)}"
    if kind is None or value.dtype is kind or _stands_for(value, kind):
        return ""
    return f"{value.dtype} where PyTorch gives {like.dtype}"


def _stands_for(value: Value, kind: d.DType) -> bool:
    """Whether integers stand for real numbers, or a mask for what is true."""
    if kind is d.BOOL:
        return is_mask(value)
    return kind.is_float and value.quant is not None

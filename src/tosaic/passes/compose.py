"""Composes calls that a decomposition has taken apart: they are lowered and quantized as one.

``addmm`` with a transposed weight is a linear layer, ``convolution`` the convolution of its rank.
Empty operands and uninitialised memory go.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, node_pass
from tosaic.passes.match import name_of

aten = torch.ops.aten


@node_pass()
def compose(node: fx.Node) -> Replacement:
    """The composite call that a call is a part of; of several results only the first is read."""
    make = _FORMS.get(torchapi.target_name(node))
    several = isinstance(node.meta.get("val"), (list, tuple))
    if make is None or (several and not _gives_first(node)):
        return None
    made = make(torchapi.bound_arguments(node))
    if made is None or not several:
        return made
    for item in list(node.users):
        item.target, item.args, item.kwargs = made.target, made.args, made.kwargs or {}
        item.meta = {**node.meta, "val": item.meta.get("val")}
    node.graph.erase_node(node)
    return True


def _gives_first(node: fx.Node) -> bool:
    """Whether of several results only the first is read."""
    users = list(node.users)
    return bool(users) and all(u.target is operator.getitem and u.args[1] == 0 for u in users)


def _batch_norm(b: dict[str, Any]) -> Call:
    tensors = [b[name] for name in ("input", "weight", "bias", "running_mean", "running_var")]
    return Call(aten.batch_norm.default, (*tensors, False, b["momentum"], b["eps"], False))


def _named(target: Any, names: str) -> Callable[[dict[str, Any]], Call | None]:
    """The composite call with those of the arguments; none that is to give another type."""
    return lambda b: (
        None if b.get("half_to_float") else Call(target, tuple(b[name] for name in names.split()))
    )


_PLAIN = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
_TRANSPOSED = (
    aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input
)  # fmt: skip


def _convolution(b: dict[str, Any]) -> Call | None:
    axes = b["weight"].meta["val"].dim() - 2
    if not 1 <= axes <= 3 or b["input"].meta["val"].dim() != axes + 2:
        return None
    tensors, stride, padding = (b["input"], b["weight"], b["bias"]), b["stride"], b["padding"]
    if b["transposed"]:
        rest = (b["output_padding"], b["groups"], b["dilation"])
        return Call(_TRANSPOSED[axes - 1], (*tensors, stride, padding, *rest))
    return Call(_PLAIN[axes - 1], (*tensors, stride, padding, b["dilation"], b["groups"]))


def _transposed(matrix: Any) -> fx.Node | None:
    """What a matrix is the transposition of, if it is a parameter's."""
    name = name_of(matrix)
    bound = torchapi.bound_arguments(matrix) if name else {}
    is_transpose = name == "aten.t.default" or (
        name == "aten.permute.default" and [axis % 2 for axis in bound["dims"]] == [1, 0]
    )
    source = bound.get("self")
    if not is_transpose or not isinstance(source, fx.Node) or source.op == "call_function":
        return None
    return source if len(source.meta["val"].shape) == 2 else None


def _addmm(b: dict[str, Any]) -> Call | None:
    weight = _transposed(b["mat2"])
    if weight is None or (b["beta"], b["alpha"]) != (1, 1) or b["self"].meta["val"].dim() != 1:
        return None
    return Call(aten.linear.default, (b["mat1"], weight, b["self"]))


def _mm(b: dict[str, Any]) -> Call | None:
    weight = _transposed(b["mat2"])
    return None if weight is None else Call(aten.linear.default, (b["self"], weight))


def _linear(b: dict[str, Any]) -> Call | None:
    """A layer whose weight is one row gives no axis of channels: a product with a vector."""
    is_row = b["weight"].meta["val"].dim() == 1 and b["bias"] is None
    return Call(aten.matmul.default, (b["input"], b["weight"])) if is_row else None


def _strided(b: dict[str, Any]) -> Call | None:
    """All of a tensor that lies as it is read: then only its shape changes."""
    source, size = b["self"].meta["val"], list(b["size"])
    shape, dense = torchapi.known_shape(source), torch.empty(size, device="meta").stride()
    whole = shape is not None and math.prod(shape) == math.prod(size)
    plain = whole and source.is_contiguous() and tuple(b["stride"]) == dense
    is_first = plain and not b["storage_offset"]
    return Call(aten.view.default, (b["self"], size)) if is_first else None


def _cat(b: dict[str, Any]) -> Call | None:
    """Without parts that have no elements, such as what rotation leaves of a head."""
    parts = [p for p in b["tensors"] if 0 not in map(torchapi.known_size, p.meta["val"].shape)]
    if len(parts) in (0, len(b["tensors"])):
        return None
    rank = parts[0].meta["val"].dim()
    return Call(aten.cat.default, (parts, b["dim"] % rank))


def _filled(value: float) -> Callable[[dict[str, Any]], Call | None]:
    """A tensor of one number, of which another tensor says at most shape and type: a constant.

    Memory that nothing has set may hold anything, so it holds 0: garbage has no range.
    """

    def make(b: dict[str, Any]) -> Call | None:
        like = b["self"].meta["val"] if "self" in b else None
        size = b["size"] if like is None or "size" in b else like.shape
        kind = b.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
        is_known = all(isinstance(s, fx.Node) or torchapi.known_size(s) is not None for s in size)
        if not is_known or kind.is_complex:
            return None
        return Call(aten.full.default, ([*size], b.get("fill_value", value)), {"dtype": kind})

    return make


_FORMS: dict[str, Callable[[dict[str, Any]], Call | None]] = {
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten.max_pool2d_with_indices.default": _named(
        aten.max_pool2d.default, "self kernel_size stride padding dilation ceil_mode"
    ),
    "aten.native_layer_norm.default": _named(
        aten.layer_norm.default, "input normalized_shape weight bias eps"
    ),
    "aten.native_group_norm.default": _named(
        aten.group_norm.default, "input group weight bias eps"
    ),
    "aten._softmax.default": _named(aten.softmax.int, "self dim"),
    "aten._log_softmax.default": _named(aten.log_softmax.int, "self dim"),
    "aten.convolution.default": _convolution,
    "aten._convolution.default": _convolution,  # of torch.jit.trace, with flags of cuDNN
    "aten._convolution.deprecated": _convolution,
    "aten.as_strided.default": _strided,
    "aten.addmm.default": _addmm,
    "aten.mm.default": _mm,
    "aten.linear.default": _linear,
    "aten.cat.default": _cat,
    **{
        f"aten.{name}": _filled(float(name.startswith(("ones", "new_ones"))))
        for name in (
            "empty.memory_format",
            "new_empty.default",
            "empty_like.default",
            "zeros_like.default",
            "new_zeros.default",
            "ones_like.default",
            "new_ones.default",
            "full_like.default",
            "new_full.default",
        )
    },
}

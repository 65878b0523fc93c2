"""Decomposed calls put together again: what was one operator is lowered and quantized as one.

What would bring no numbers, or any, is made plain as well: empty parts, memory that nothing set.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from tosaic.front import torchapi
from tosaic.passes.drop_noops import drop_idle, has_idle
from tosaic.passes.idioms import may_have_idioms, recognise
from tosaic.passes.merge_axes import has_high_ranks, lower_ranks

aten = torch.ops.aten
Call = tuple[Any, tuple[Any, ...]] | tuple[Any, tuple[Any, ...], dict[str, Any]]


def composed(exported: ExportedProgram) -> ExportedProgram:
    """The program with composite operators where it has their parts; the given one is left."""
    graph = exported.graph
    has_parts = any(_form(node) for node in graph.nodes) or has_idle(graph)
    is_high = has_high_ranks(graph)
    if not has_parts and not is_high and not may_have_idioms(graph):
        return exported
    made = torchapi.copied_program(exported)
    drop_idle(made.graph, at_outputs=False)
    for node in list(made.graph.nodes):
        form = _form(node)
        if form is not None:
            _replace(made.graph, node, *form)
    if is_high:
        lower_ranks(made.graph)
    signature = made.graph_signature
    held = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    recognise(made.graph, held | signature.inputs_to_lifted_tensor_constants.keys())
    made.graph.eliminate_dead_code()
    made.graph_module.recompile()
    return made


def _replace(
    graph: fx.Graph, node: fx.Node, target: Any, args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Change the call itself, or the items that are read of its results: names stay."""
    several = isinstance(node.meta.get("val"), (list, tuple))
    for call in list(node.users) if several else [node]:
        call.target, call.args, call.kwargs = target, args, kwargs or {}
        call.meta = {**node.meta, "val": call.meta.get("val")}
    if several:
        graph.erase_node(node)


def _form(node: fx.Node) -> Call | None:
    """The composite call that a call is a part of; None if it is none."""
    if node.op != "call_function":
        return None
    name = torchapi.target_name(node)
    if name in _ALIASES:
        return _ALIASES[name], node.args, node.kwargs
    make = _FORMS.get(name)
    if make is None:
        return torchapi.without_out(node)
    if isinstance(node.meta.get("val"), (list, tuple)) and not _gives_first(node):
        return None
    return make(torchapi.bound_arguments(node))


def _gives_first(node: fx.Node) -> bool:
    """Whether of several results only the first is read."""
    users = list(node.users)
    return bool(users) and all(u.target is operator.getitem and u.args[1] == 0 for u in users)


def _batch_norm(b: dict[str, Any]) -> Call:
    tensors = [b[name] for name in ("input", "weight", "bias", "running_mean", "running_var")]
    return aten.batch_norm.default, (*tensors, False, b["momentum"], b["eps"], False)


def _named(target: Any, names: str) -> Callable[[dict[str, Any]], Call | None]:
    """The composite call with those of the arguments; none that is to give another type."""
    return lambda b: (
        None if b.get("half_to_float") else (target, tuple(b[name] for name in names.split()))
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
        return _TRANSPOSED[axes - 1], (*tensors, stride, padding, *rest)
    return _PLAIN[axes - 1], (*tensors, stride, padding, b["dilation"], b["groups"])


def _turned(matrix: Any) -> fx.Node | None:
    """What a matrix is the transposition of, if it is a parameter's."""
    if not isinstance(matrix, fx.Node) or matrix.op != "call_function":
        return None
    name, bound = torchapi.target_name(matrix), torchapi.bound_arguments(matrix)
    turns = name in ("aten.t.default", "aten.t_copy.default") or (
        name in ("aten.permute.default", "aten.permute_copy.default")
        and [axis % 2 for axis in bound["dims"]] == [1, 0]
    )
    source = bound.get("self")
    if not turns or not isinstance(source, fx.Node) or source.op == "call_function":
        return None
    return source if len(source.meta["val"].shape) == 2 else None


def _addmm(b: dict[str, Any]) -> Call | None:
    weight = _turned(b["mat2"])
    if weight is None or (b["beta"], b["alpha"]) != (1, 1) or b["self"].meta["val"].dim() != 1:
        return None
    return aten.linear.default, (b["mat1"], weight, b["self"])


def _mm(b: dict[str, Any]) -> Call | None:
    weight = _turned(b["mat2"])
    return None if weight is None else (aten.linear.default, (b["self"], weight))


def _linear(b: dict[str, Any]) -> Call | None:
    """A layer whose weight is one row gives no axis of channels: a product with a vector."""
    is_row = b["weight"].meta["val"].dim() == 1 and b["bias"] is None
    return (aten.matmul.default, (b["input"], b["weight"])) if is_row else None


def _strided(b: dict[str, Any]) -> Call | None:
    """All of a tensor that lies as it is read: then only its shape changes."""
    source, size = b["self"].meta["val"], list(b["size"])
    shape, dense = torchapi.known_shape(source), torch.empty(size, device="meta").stride()
    whole = shape is not None and math.prod(shape) == math.prod(size)
    plain = whole and source.is_contiguous() and tuple(b["stride"]) == dense
    return (aten.view.default, (b["self"], size)) if plain and not b["storage_offset"] else None


def _cat(b: dict[str, Any]) -> Call | None:
    """Without parts that have no elements, such as what rotation leaves of a head."""
    parts = [p for p in b["tensors"] if 0 not in map(torchapi.known_size, p.meta["val"].shape)]
    if len(parts) in (0, len(b["tensors"])):
        return None
    rank = parts[0].meta["val"].dim()
    return aten.cat.default, (parts, b["dim"] % rank)


def _zeros(b: dict[str, Any]) -> Call | None:
    """Memory that nothing has set may hold anything, so it holds 0: garbage has no range."""
    like = b["self"].meta["val"] if "self" in b else None
    size = b["size"] if like is None or "size" in b else like.shape
    kind = b.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
    if any(torchapi.known_size(s) is None for s in size if not isinstance(s, fx.Node)):
        return None
    return aten.zeros.default, ([*size],), {"dtype": kind}


def _aliases(names: dict[str, str]) -> dict[str, Any]:
    """Overloads that are others by another name."""
    return {
        f"aten.{alias}.{overload}": getattr(getattr(aten, plain), overload)
        for alias, plain in names.items()
        for overload in getattr(aten, alias).overloads()
        if overload in getattr(aten, plain).overloads()
    }


_ALIASES = _aliases(
    {"subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
     "negative": "neg", "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat",
     "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
     "special_expit": "sigmoid", "special_softmax": "softmax",
     "special_log_softmax": "log_softmax", "special_gammaln": "lgamma", "special_psi": "digamma",
     "special_digamma": "digamma", "special_i0": "i0", "special_modified_bessel_i0": "i0",
     "special_modified_bessel_i1": "special_i1", "special_polygamma": "polygamma"}
)  # fmt: skip
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
    "aten.as_strided.default": _strided,
    "aten.as_strided_copy.default": _strided,
    "aten.addmm.default": _addmm,
    "aten.mm.default": _mm,
    "aten.linear.default": _linear,
    "aten.cat.default": _cat,
    "aten.empty.memory_format": _zeros,
    "aten.new_empty.default": _zeros,
    "aten.empty_like.default": _zeros,
}

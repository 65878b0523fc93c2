"""Canonical form: one overload for each family of ATen names, before anything else reads a program.

In-place, ``_copy`` and ``out=`` overloads and synonyms become the overload that rules and passes
know, and operators that differ in how they are told sizes and orders become one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, Replacement, node_pass

aten = torch.ops.aten


@node_pass()
def canonical_overloads(node: fx.Node) -> Replacement:
    """The canonical overload; where a write kept the type of its operand, a cast keeps it."""
    writes, result = bool(torchapi.written_positions(node)), node.meta.get("val")
    if not torchapi.canonicalize(node):
        return None
    if writes and isinstance(result, Tensor) and not _gives(node, result.dtype):
        inner = torchapi.new_call(node, node.target, node.args, dict(node.kwargs))
        return Call(aten.to.dtype, (inner, result.dtype))
    return True


def _gives(node: fx.Node, kind: torch.dtype) -> bool:
    """Whether a call computes elements of a type; operands of one type give it, but for tests."""
    given = [n.meta["val"] for n in node.all_input_nodes]
    kinds = {value.dtype for value in given if isinstance(value, Tensor)}
    overload = torchapi.overload_of(node)
    assert overload is not None
    is_test = _TESTS.match(overload.overloadpacket.__name__) is not None
    if kinds == {kind} and (kind is torch.bool or not is_test):
        return True
    shown, named = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    made: Tensor = torchapi.computed_beside(node, partial(overload, **named), shown)
    return made.dtype is kind


_TESTS = re.compile("logical_|eq|ne$|lt|le$|gt|ge$|is")


@node_pass()
def normal_forms(node: fx.Node) -> Replacement:
    """One operator for all that compute the same in every batch size: ``movedim`` is a
    permutation, ``chunk`` a split into parts of known sizes, ``mul.Scalar`` ``mul.Tensor``."""
    name, result = torchapi.target_name(node), node.meta.get("val")
    if name not in _NORMAL:
        return None
    results = result if isinstance(result, (list, tuple)) else [result]
    if any(not isinstance(t, Tensor) or torchapi.known_shape(t) is None for t in results):
        return None
    made = _NORMAL[name](torchapi.bound_arguments(node), node)
    written = node.meta.get(torchapi.WRITTEN_AS, (name.split(".")[1], ""))[0]
    node.meta[torchapi.WRITTEN_AS] = written, str(made.target)
    return made


def _permutation(b: dict[str, Any], node: fx.Node) -> Call:
    marked = torch.empty([i + 2 for i in range(node.meta["val"].dim())], device="meta")
    made = torchapi.evaluate(node, {b["self"]: marked})
    return Call(aten.permute.default, (b["self"], [int(size) - 2 for size in made.shape]))


def _split(b: dict[str, Any], node: fx.Node) -> Call:
    sizes = [int(part.shape[b["dim"]]) for part in node.meta["val"]]
    return Call(aten.split_with_sizes.default, (b["self"], sizes, b["dim"]))


def _narrow(b: dict[str, Any], node: fx.Node) -> Call:
    start = b["start"] % max(int(b["self"].meta["val"].shape[b["dim"]]), 1)
    return Call(aten.slice.Tensor, (b["self"], b["dim"], start, start + b["length"]))


def _cast(b: dict[str, Any], node: fx.Node) -> Call:
    return Call(aten.to.dtype, (b["self"], node.meta["val"].dtype))


def _with_number(b: dict[str, Any], node: fx.Node) -> Call:
    """``mul.Scalar`` as ``mul.Tensor``, which takes numbers as well."""
    kwargs = {k: v for k, v in b.items() if k in ("alpha", "rounding_mode") and v != 1}
    plain = torchapi.target_name(node).split(".")
    target = getattr(getattr(aten, plain[1]), plain[2].replace("Scalar", "Tensor"))
    return Call(target, (b["self"], b["other"]), kwargs)


Make = Callable[[dict[str, Any], fx.Node], Call]
_FAMILIES: tuple[tuple[str, Make, str], ...] = (
    ("aten.permute.default", _permutation,
     "t.default numpy_T.default mT.default movedim.int movedim.intlist"),
    ("aten.split_with_sizes.default", _split,
     "chunk.default split.Tensor tensor_split.sections"),
    ("aten.to.dtype", _cast, "type_as.default to.other to.device to.dtype_layout"),
    *((f"aten.{name}.Tensor", _with_number, f"{name}.Scalar") for name in ("add", "sub", "mul")),
    ("aten.div.Tensor", _with_number, "div.Scalar"),
    ("aten.div.Tensor_mode", _with_number, "div.Scalar_mode"),
    ("aten.slice.Tensor", _narrow, "narrow.default"),
    ("aten.flip.default", lambda b, node: Call(aten.flip.default, (b["self"], [1])),
     "fliplr.default"),
    ("aten.flip.default", lambda b, node: Call(aten.flip.default, (b["self"], [0])),
     "flipud.default"),
)  # fmt: skip
_NORMAL = {f"aten.{name}": make for _, make, names in _FAMILIES for name in names.split()}


def written_as(target: str) -> list[str]:
    """Overloads that programs may have in the place of one that there is a rule for."""
    family = [f"aten.{n}" for to, _, names in _FAMILIES if to == target for n in names.split()]
    return [*torchapi.aliases(target), *(o for n in family for o in (n, *torchapi.aliases(n)))]


@node_pass("aten.view.default")
def reshape_views(node: fx.Node) -> Replacement:
    """Views as reshapes, which need no contiguous operand: passes drop and move copies."""
    return Call(aten.reshape.default, tuple(torchapi.bound_arguments(node).values()))

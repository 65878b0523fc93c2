"""Overloads of ATen: what their schemas say of memory, and the canonical one of each family.

``add_``, ``permute_copy``, ``add.out`` and ``subtract`` compute what ``add``, ``permute``, ``add``
and ``sub`` do. A program that reads no value after a write to it may call the canonical overload
instead, so passes and rules know this one alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload

WRITTEN_AS = "tosaic.written_as"  # in node.meta: what a call was written as, and made
_NONE = object()  # the default value of an argument that has to be given

# Operators by their synonyms; named overloads go first.
_SYNONYMS = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "negative": "neg", "absolute": "abs", "clip": "clamp", "concat": "cat", "concatenate": "cat",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "special_expit": "sigmoid", "special_softmax": "softmax",
    "special_log_softmax": "log_softmax", "special_gammaln": "lgamma", "special_psi": "digamma",
    "special_digamma": "digamma", "special_i0": "i0", "special_modified_bessel_i0": "i0",
    "special_modified_bessel_i1": "special_i1", "special_polygamma": "polygamma",
}  # fmt: skip
_VARIANTS = {
    "arctan2": "atan2", "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift",
    "swapdims": "transpose", "swapaxes": "transpose", "moveaxis": "movedim", "ger": "outer",
    "_unsafe_index": "index", "unsafe_split": "split", "unsafe_chunk": "chunk",
    "unsafe_split_with_sizes": "split_with_sizes", "split.sizes": "split_with_sizes",
    "_unsafe_view": "view", "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_adaptive_avg_pool3d": "adaptive_avg_pool3d", "native_channel_shuffle": "channel_shuffle",
    "max.other": "maximum", "min.other": "minimum",
}  # fmt: skip
# Overloads for a number, by those for a tensor, which take one as well.
_NUMBERS = {
    **{f"{name}.Scalar": f"{name}.Tensor" for name in ("add", "sub", "mul", "div")},
    "div.Scalar_mode": "div.Tensor_mode",
}
_OWN = frozenset({"lift_fresh_copy"})  # a copy that is dropped where the plain one is kept


@dataclass(frozen=True, slots=True)
class Effects:
    """Arguments of an operator by what becomes of their memory."""

    written: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()  # a result may lie in the same memory
    returned: bool = True  # what is written is the one result


@cache
def effects(overload: OpOverload) -> Effects:
    """What the schema of an operator says of memory."""
    schema = overload._schema
    marked = [a for a in schema.arguments if a.alias_info is not None]
    written = tuple(a.name for a in marked if a.alias_info and a.alias_info.is_write)
    results = [r.alias_info for r in schema.returns]
    returned = len(written) == 1 == len(results) and results[0] is not None and results[0].is_write
    shared = tuple(a.name for a in marked) if any(r is not None for r in results) else ()
    if plain_name(overload) in SHARING:
        shared = tuple(a.name for a in schema.arguments)
    return Effects(written, shared, returned)


def plain_name(overload: OpOverload) -> str:
    return str(overload.overloadpacket.__name__).rstrip("_")


# Operators that may give an operand back although their schemas do not say so.
SHARING = frozenset({
    "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "type_as",
    "broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d", "einsum",
    "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes", "_unsafe_view", "pad",
    "cartesian_prod",
})  # fmt: skip


@cache
def canonical(overload: OpOverload) -> OpOverload:
    """The overload that makes a new value, under its plain name, from the same arguments."""
    if overload.namespace != "aten" or any(a.is_out for a in overload._schema.arguments):
        return overload
    name, kind = overload.overloadpacket.__name__, overload._overloadname
    for other in _plainer(name, kind, bool(effects(overload).written)):
        packet = getattr(torch.ops.aten, other, None)
        every = [getattr(packet, o) for o in packet.overloads()] if packet is not None else []
        every.sort(key=lambda o: o._overloadname != kind)  # pow_.Scalar is pow.Tensor_Scalar
        for plain in every:
            if not effects(plain).written and _kinds(plain) == _kinds(overload):
                return canonical(plain)
    packet, _, kind = _NUMBERS.get(f"{name}.{kind}", f"{name}.{kind}").partition(".")
    found: OpOverload = getattr(getattr(torch.ops.aten, packet), kind)
    return found


def _plainer(name: str, kind: str, writes: bool) -> Iterator[str]:
    """Names under which the same operator may be known."""
    if writes:
        yield name.removesuffix("_")
    elif name.endswith("_copy") and name not in _OWN:
        yield name.removesuffix("_copy")
    for known in (f"{name}.{kind}", name):
        for table in (_SYNONYMS, _VARIANTS):
            if known in table:
                yield table[known]


@cache
def canonical_name(name: str) -> str:
    """``aten.relu.default`` for ``aten.relu_.default``; any other name as it is."""
    space, _, rest = name.partition(".")
    operator, _, kind = rest.partition(".")
    packet = getattr(torch.ops.aten, operator, None) if space == "aten" and kind else None
    found = getattr(packet, kind, None)
    return str(canonical(found)) if isinstance(found, OpOverload) else name


@cache
def aliases(target: str) -> tuple[str, ...]:
    """Overloads that programs may have in the place of a canonical one, by their names."""
    space, name, *_ = (*target.split("."), "", "")
    names = [k.partition(".")[0] for k, v in (_SYNONYMS | _VARIANTS).items() if v == name]
    names += [*(n + "_" for n in names), name, name + "_", name + "_copy"]
    packets = [p for n in names if (p := getattr(torch.ops.aten, n, None)) is not None]
    found = [getattr(p, o) for p in packets for o in p.overloads()]
    others = dict.fromkeys(str(o) for o in found if str(canonical(o)) == target != str(o))
    return tuple(others) if space == "aten" else ()


@cache
def parameters(overload: OpOverload) -> tuple[tuple[str, str, bool, Any], ...]:
    """Each argument's own name, that of the canonical overload, whether it goes by name alone,
    and its default value."""
    names = [a.name for a in canonical(overload)._schema.arguments]
    own = overload._schema.arguments
    names = names if len(names) == len(own) else [a.name for a in own]
    return tuple(
        (a.name, name, a.kwarg_only, a.default_value if a.has_default_value() else _NONE)
        for a, name in zip(own, names)
    )


def bind(
    overload: OpOverload, args: tuple[Any, ...], kwargs: Any, own_names: bool = False
) -> dict[str, Any]:
    """Arguments by the names that the canonical overload has, defaults filled in."""
    found: dict[str, Any] = {}
    for position, (own, name, by_name, default) in enumerate(parameters(overload)):
        key = own if own_names else name
        if own in kwargs:
            found[key] = kwargs[own]
        elif not by_name and position < len(args):
            found[key] = args[position]
        elif default is not _NONE:
            found[key] = list(default) if isinstance(default, list) else default
    return found


def make_canonical(node: fx.Node, overload: OpOverload) -> bool:
    """Let a node call the canonical overload; whether it called another."""
    if (plain := without_out(node, overload)) is not None:
        node.target, node.args, node.kwargs = plain
        overload = plain[0]
    other = canonical(overload)
    if other is overload:
        return plain is not None
    if _spelling(other) != _spelling(overload):
        bound = bind(overload, node.args, node.kwargs)
        by_name = {a.name: a.default_value for a in other._schema.arguments if a.kwarg_only}
        node.args = tuple(v for k, v in bound.items() if k not in by_name)
        node.kwargs = {k: bound[k] for k in by_name if bound[k] != by_name[k]}
    name = overload.overloadpacket.__name__
    if name.removesuffix("_") not in _SYNONYMS:
        node.meta[WRITTEN_AS] = name, str(other)
    node.target = other
    return True


def without_out(
    node: fx.Node, overload: OpOverload
) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """``torch.add(x, y, out=z)`` as a call that makes a new value, if it has the type of z."""
    outs = {a.name for a in overload._schema.arguments if a.is_out}
    if not outs:
        return None
    packet, given = overload.overloadpacket, [v for n, v in node.kwargs.items() if n in outs]
    for other in (getattr(packet, name) for name in packet.overloads()):
        if not effects(other).written and _kinds(other) == _kinds(overload):
            kwargs = {n: v for n, v in node.kwargs.items() if n not in outs}
            return (
                (other, node.args, kwargs) if all(_type(v) == _type(node) for v in given) else None
            )
    return None


def _type(node: Any) -> Any:
    """The type of a value's elements; of several None, as they are not converted."""
    example = node.meta.get("val") if isinstance(node, fx.Node) else None
    return example.dtype if isinstance(example, torch.Tensor) else None


def _spelling(overload: OpOverload) -> list[tuple[str, bool]]:
    """How arguments are given: their names, and which go by name alone."""
    return [(argument.name, argument.kwarg_only) for argument in overload._schema.arguments]


def _kinds(overload: OpOverload) -> list[str]:
    """The types of an operator's arguments, but for those it writes its results to."""
    return [str(argument.type) for argument in overload._schema.arguments if not argument.is_out]

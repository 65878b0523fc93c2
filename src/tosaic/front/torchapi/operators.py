"""Operators and their schemas: arguments by name, what is written to, what may share memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

_NONE = object()  # the default value of an argument that has to be given


def target_name(node: fx.Node) -> str:
    """``aten.relu.default`` for a call of that overload; the name of any other callable."""
    overload = overload_of(node)
    return _spelled(overload) if overload is not None else getattr(node.target, "__name__", "")


@cache
def _spelled(overload: OpOverload) -> str:
    return str(overload)


def overload_of(node: fx.Node) -> OpOverload | None:
    """The operator that a node calls; ExecuTorch's edge dialect wraps it."""
    target: Any = node.target
    if isinstance(target, OpOverload):
        return target
    target = getattr(target, "_op", None)
    return target if isinstance(target, OpOverload) else None


def is_region_call(node: fx.Node) -> bool:
    """Whether a call takes functions: ``cond``, ``while_loop``, a part in another mode."""
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def bound_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by the names of its schema, defaults filled in."""
    overload = overload_of(node)
    if overload is None:
        return {f"argument{i}": a for i, a in enumerate(node.args)} | dict(node.kwargs)
    found: dict[str, Any] = {}
    args, kwargs = node.args, node.kwargs
    for position, (name, by_name, default) in enumerate(_parameters(overload)):
        if name in kwargs:
            found[name] = kwargs[name]
        elif not by_name and position < len(args):
            found[name] = args[position]
        elif default is not _NONE:
            found[name] = list(default) if isinstance(default, list) else default
    return found


@cache
def _parameters(overload: OpOverload) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether it is given by name alone, and default value of each argument."""
    return tuple(
        (a.name, a.kwarg_only, a.default_value if a.has_default_value() else _NONE)
        for a in overload._schema.arguments
    )


def by_position(node: fx.Node) -> None:
    """Give a call the arguments that its schema takes by position in that way."""
    target = node.target
    if not isinstance(target, OpOverload):
        return
    bound = bound_arguments(node)
    names = [a.name for a in target._schema.arguments if not a.kwarg_only and a.name in bound]
    node.kwargs = {k: v for k, v in node.kwargs.items() if k not in names}
    node.args = tuple(bound[name] for name in names)


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


def is_number_argument(node: fx.Node, name: str) -> bool:
    """Whether the schema takes a number there that is computed with, and not a size."""
    overload = overload_of(node)
    return overload is not None and any(
        a.name == name and "number" in str(a.type) for a in overload._schema.arguments
    )


def evaluate(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """Call the operator of a node in PyTorch; what it writes to is a copy, and its result."""
    overload = overload_of(node)
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: values[n])
    if overload is None:
        assert callable(node.target)
        return node.target(*args, **kwargs)
    return _called(overload, args, kwargs)


def _called(overload: OpOverload, args: Any, kwargs: Any) -> Any:
    written = effects(overload).written
    if written:
        names = [a.name for a in overload._schema.arguments]
        args = tuple(_copy(a) if n in written else a for n, a in zip(names, args))
        kwargs = {n: _copy(a) if n in written else a for n, a in kwargs.items()}
    return overload(*args, **kwargs)


# Operators whose results depend on the type that they compute in.
_BY_TYPE = frozenset({"nan_to_num", "view", "nextafter", "frexp"})


def computed(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """What a call makes of constants, computed in float64 and rounded to its type.

    The last bits of float32 kernels differ from processor to processor, and would show in bytes.
    """
    overload = overload_of(node)
    if overload is None or overload.namespace != "aten" or plain_name(overload) in _BY_TYPE:
        return evaluate(node, values)
    if any(getattr(values[n], "dtype", None) is torch.float64 for n in node.all_input_nodes):
        return evaluate(node, values)  # the model itself is of doubles
    given = {n: _doubled(values[n]) for n in node.all_input_nodes}
    wide = {k: torch.float64 if v is torch.float32 else v for k, v in node.kwargs.items()}
    if wide == dict(node.kwargs) and all(given[n] is values[n] for n in given):
        return evaluate(node, values)
    try:
        args, kwargs = fx.map_arg((node.args, wide), lambda n: given[n])
        made = _called(overload, args, kwargs)
    except (RuntimeError, TypeError):  # it wants all operands in the types that they have
        return evaluate(node, values)
    return pytree.tree_map_only(Tensor, _narrowed, made)


def _doubled(value: Any) -> Any:
    is_single = isinstance(value, Tensor) and value.dtype is torch.float32
    return value.double() if is_single else value


def _narrowed(value: Tensor) -> Tensor:
    return value.float() if value.dtype is torch.float64 else value


def is_repeatable(overload: OpOverload) -> bool:
    """Whether an operator gives the same for the same: nothing random, no memory as it was."""
    is_random = torch.Tag.nondeterministic_seeded in overload.tags
    return overload.namespace == "aten" and not is_random and "empty" not in overload._opname


_POINTWISE = frozenset({"aten.hardswish.default", "aten.log_sigmoid.default"})  # without the tag


def is_pointwise(node: fx.Node) -> bool:
    """Whether each number of the result depends on the numbers in its place alone."""
    overload = overload_of(node)
    if overload is None or effects(overload).written:
        return False
    return torch.Tag.pointwise in overload.tags or str(overload) in _POINTWISE


def written_positions(node: fx.Node) -> list[int]:
    """The positional arguments that a call writes to."""
    overload = overload_of(node)
    if overload is None:
        return []
    written, names = effects(overload).written, [a.name for a in overload._schema.arguments]
    return [i for i, name in enumerate(names[: len(node.args)]) if name in written]


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def make_new(node: fx.Node) -> None:
    """Turn a call that writes to its first operand, or to ``out``, into one that makes a new value.

    That is the overload of the same name with the same arguments, which writes to none.
    """
    overload = overload_of(node)
    if (plain := without_out(node)) is not None:
        node.target, node.args, node.kwargs = plain
    elif overload is not None and effects(overload).written:
        name = overload._schema.name.partition("::")[2]
        packet = getattr(getattr(torch.ops, overload.namespace), name.rstrip("_"), None)
        plain = getattr(packet, overload._overloadname, None)
        if plain is None or _kinds(plain) != _kinds(overload):  # pow_.Scalar is pow.Tensor_Scalar
            others = [getattr(packet, o) for o in packet.overloads()] if packet is not None else []
            plain = next((o for o in others if _kinds(o) == _kinds(overload)), None)
        if isinstance(plain, OpOverload) and not effects(plain).written:
            node.target = plain


def without_out(node: fx.Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """``torch.add(x, y, out=z)`` as a call that makes a new value, if it has the type of z."""
    overload = overload_of(node)
    outs = {a.name for a in overload._schema.arguments if a.is_out} if overload else set()
    if overload is None or not outs:
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
    return example.dtype if isinstance(example, Tensor) else None


def _kinds(overload: OpOverload) -> list[str]:
    """The types of an operator's arguments, but for those it writes its results to."""
    return [str(argument.type) for argument in overload._schema.arguments if not argument.is_out]

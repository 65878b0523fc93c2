"""Operators and their schemas: arguments by name, what is written to, what may share memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from tosaic.front.torchapi.overloads import bind, canonical, effects, make_canonical, plain_name


def target_name(node: fx.Node) -> str:
    """``aten.relu.default`` for a call of that overload or one that it is the canonical form of;
    the name of any other callable."""
    overload = overload_of(node)
    return _spelled(overload) if overload is not None else getattr(node.target, "__name__", "")


@cache
def _spelled(overload: OpOverload) -> str:
    return str(canonical(overload))


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


def bound_arguments(node: fx.Node, own_names: bool = False) -> dict[str, Any]:
    """The arguments of a call by the names of the canonical schema, or its own; with defaults."""
    overload = overload_of(node)
    if overload is None:
        return {f"argument{i}": a for i, a in enumerate(node.args)} | dict(node.kwargs)
    return bind(overload, node.args, node.kwargs, own_names)


def by_position(node: fx.Node) -> None:
    """Give a call the arguments that its schema takes by position in that way."""
    target = node.target
    if not isinstance(target, OpOverload):
        return
    bound = bound_arguments(node, own_names=True)
    names = [a.name for a in target._schema.arguments if not a.kwarg_only and a.name in bound]
    node.kwargs = {k: v for k, v in node.kwargs.items() if k not in names}
    node.args = tuple(bound[name] for name in names)


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


def is_canonical(module: fx.GraphModule) -> bool:
    """Whether all calls of a module and its functions are of canonical overloads."""
    graphs = (part.graph for part in module.modules() if isinstance(part, fx.GraphModule))
    called = (overload_of(node) for graph in graphs for node in graph.nodes)
    return all(overload is None or canonical(overload) is overload for overload in called)


def canonicalize(node: fx.Node) -> bool:
    """Let a call be that of the canonical overload, which makes a new value; whether it was not."""
    overload = overload_of(node)
    return overload is not None and make_canonical(node, overload)

"""Every private or version-dependent call into torch that the importer makes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from tosaic.errors import InvalidInput
from tosaic.ir.graph import Loc

_TORCH = os.path.dirname(torch.__file__)


def export(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> ExportedProgram:
    """torch.export in inference mode, or its reason in short; the module is left as it was."""
    modes = {part: part.training for part in module.modules()}
    try:
        with torch.no_grad():
            return torch.export.export(module.eval(), args, kwargs, strict=False)
    except Exception as problem:
        first = str(problem).strip().splitlines() or [type(problem).__name__]
        name = type(module).__name__
        raise InvalidInput(f"torch.export does not take {name}: {first[0]}") from problem
    finally:
        for part, training in modes.items():
            part.training = training


def module_of(exported: ExportedProgram) -> fx.GraphModule:
    """The program as a module to observe, without calls that check its inputs."""
    return exported.module(check_guards=False)


def is_stand_in(tensor: Tensor) -> bool:
    """Whether a tensor has a shape and a type but no values."""
    return isinstance(tensor, torch._subclasses.FakeTensor)


def target_name(node: fx.Node) -> str:
    """``aten.relu.default`` for a call of that overload; the name of any other callable."""
    overload = overload_of(node)
    return str(overload) if overload is not None else getattr(node.target, "__name__", "")


def overload_of(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operator that a node calls; ExecuTorch's edge dialect wraps it."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        target = getattr(target, "_op", None)
    return target if isinstance(target, torch._ops.OpOverload) else None


def bound_arguments(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call by the names of its schema, defaults filled in."""
    overload = overload_of(node)
    if overload is None:
        return {f"argument{i}": a for i, a in enumerate(node.args)} | dict(node.kwargs)
    found: dict[str, Any] = {}
    for position, argument in enumerate(overload._schema.arguments):
        if argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        elif not argument.kwarg_only and position < len(node.args):
            found[argument.name] = node.args[position]
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
    return found


def location(node: fx.Node) -> Loc:
    """The node, its module path, and the user's own line in the trace."""
    file, line = "", 0
    for entry, number in _frames(node.meta.get("stack_trace") or ""):
        if not entry.startswith(_TORCH):
            file, line = entry, number
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    module = next(reversed([str(path) for path, _ in stack.values()]), "") if stack else ""
    return Loc(str(node.target), module, file, line)


def modules_of(node: fx.Node) -> Iterator[tuple[str, Any]]:
    """Paths and classes (or their names) of the modules that a call is in, the innermost first."""
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    for path, kind in reversed([*stack.values()]):
        yield str(path).removeprefix("L['self']").removeprefix("."), kind


def _frames(trace: str) -> Iterator[tuple[str, int]]:
    for text in trace.splitlines():
        parts = text.strip().split('"')
        if text.strip().startswith("File ") and len(parts) >= 3:
            number = parts[2].removeprefix(", line ").split(",")[0]
            yield parts[1], int(number) if number.isdigit() else 0


def flatten(values: Any) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten(values)


def unflatten(values: Sequence[Any], spec: pytree.TreeSpec) -> Any:
    return pytree.tree_unflatten(list(values), spec)


def is_written_as_text(spec: pytree.TreeSpec) -> bool:
    """Whether torch can write a structure, and so export a program that gives it."""
    try:
        pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError, ValueError):
        return False
    return True


def structure(text: str) -> pytree.TreeSpec | None:
    """The structure that torch wrote as text; None if this is none that it can read back."""
    try:
        return pytree.treespec_loads(text)
    except (ValueError, TypeError, KeyError, NotImplementedError, AttributeError, IndexError):
        return None


def attribute(module: torch.nn.Module, path: str) -> Tensor:
    """The tensor behind a get_attr node."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    assert isinstance(found, Tensor)
    return found


def evaluate(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """Call the operator of a node in PyTorch."""
    target: Any = overload_of(node) or node.target
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: values[n])
    return target(*args, **kwargs)

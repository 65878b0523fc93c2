"""Nodes of a program and the tensors behind them: sizes, places, names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from traceback import walk_tb
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.ir.graph import Loc

_TORCH = os.path.dirname(torch.__file__)
_OWN, _PYTHON = str(Path(__file__).parents[2]), os.path.dirname(os.__file__)
_PACKAGES = os.path.dirname(_TORCH)


def known_size(size: Any) -> int | None:
    """A size as a number; None if it depends on the input."""
    if isinstance(size, torch.SymInt):
        known: int | None = size.node.maybe_as_int()
        return known
    return int(size)


def known_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """Sizes as numbers; None if one of them depends on the input."""
    sizes = [known_size(size) for size in tensor.shape]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def same_shape(a: fx.Node, b: fx.Node) -> bool:
    """Whether two values are tensors of the same sizes, whatever the input is."""
    examples = [node.meta["val"] for node in (a, b)]
    if not all(isinstance(example, Tensor) for example in examples):
        return False  # a number that is computed
    first, second = map(known_shape, examples)
    return first is not None and first == second


def likely_size(size: Any) -> int | None:
    """A size as it is for the example inputs, if it follows from theirs."""
    if isinstance(size, torch.SymInt) and size.node.has_hint():
        return int(size.node.hint)
    return known_size(size)


def likely_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """Sizes as they are for the example inputs; None if one depends on values."""
    sizes = [likely_size(size) for size in tensor.shape]
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def location(node: fx.Node) -> Loc:
    """The node, its module path, and the user's own line in the trace."""
    file, line = _own_line(node.meta.get("stack_trace") or "")
    stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
    module = next(reversed([str(path) for path, _ in stack.values()]), "") if stack else ""
    return Loc(str(node.target), module, file, line)


@lru_cache(1024)
def _own_line(trace: str) -> tuple[str, int]:
    """The innermost line that is not PyTorch's; calls of a loop have one trace."""
    file, line = "", 0
    for entry, number in _frames(trace):
        if not entry.startswith((_TORCH, _OWN, "<")):
            file, line = entry, number
    return file, line


def raised_at(problem: BaseException) -> Loc | None:
    """The innermost line of a failure that is neither PyTorch's, Python's nor Tosaic's."""
    for frame, line in reversed([*walk_tb(problem.__traceback__)]):
        file = frame.f_code.co_filename
        is_python = file.startswith(_PYTHON) and not file.startswith(_PACKAGES)
        if not is_python and not file.startswith((_TORCH, _OWN, "<")):
            return Loc(file=file, line=line)
    return None


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


def attribute(module: torch.nn.Module, path: str) -> Any:
    """The tensor, or the graph of a region, behind a get_attr node."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name)
    return found


def argument_names(module: fx.GraphModule) -> list[str]:
    """The names of a module's arguments, as its author wrote them where that is known."""
    info = getattr(module.graph._codegen, "pytree_info", None)
    if info is not None:
        return [name.lstrip("*") for name in info.orig_args if name != "self"]
    return [str(node.target) for node in module.graph.find_nodes(op="placeholder")]


def drop_unread(module: fx.GraphModule) -> None:
    """Forget tensors of a module that nothing in its graph reads."""
    read = {str(n.target) for n in module.graph.nodes if n.op == "get_attr"}
    names = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    for path in names:
        parent, _, name = path.rpartition(".")
        if read.isdisjoint(accumulate(path.split("."), "{}.{}".format)):
            delattr(module.get_submodule(parent), name)


def sweep(graph: fx.Graph) -> None:
    """Dead code elimination, in the functions of branches and loops as well.

    ``Graph.eliminate_dead_code`` checks all nodes first and asks each whether it has a side effect,
    which takes most of its time.
    """
    for node in reversed(graph.nodes):
        if not node.users and not node.is_impure():
            graph.erase_node(node)
    module = graph.owning_module
    if module is None:
        return
    read = {node.target for node in graph.find_nodes(op="get_attr")}
    for name, part in module.named_children():
        if name in read and isinstance(part, fx.GraphModule):
            sweep(part.graph)
            part.recompile()

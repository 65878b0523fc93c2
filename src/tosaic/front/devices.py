"""Moves programs that were exported on another device to the CPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from tosaic.errors import InvalidInput
from tosaic.front import torchapi


def on_cpu(exported: ExportedProgram) -> ExportedProgram:
    """The program with all its tensors, and every device that it names, on the CPU."""
    for key, tensor in {**exported.state_dict, **exported.constants}.items():
        if isinstance(tensor, Tensor) and tensor.device.type == "meta":
            raise InvalidInput(f"{key} is on the meta device and has no values: load them first")
    if not any(_names_device(module.graph) for module in torchapi.graphs_of(exported)) and all(
        t.device.type == "cpu" for t in _tensors(exported)
    ):
        return exported
    with torchapi.quiet():
        moved = copy.deepcopy(exported)
        for module in torchapi.graphs_of(moved):
            for node in module.graph.nodes:
                _move(node)
        return move_to_device_pass(moved, "cpu")


def _tensors(exported: ExportedProgram) -> Iterator[Tensor]:
    """Tensors and stand-ins that may be on another device."""
    yield from exported.state_dict.values()
    yield from (t for t in exported.constants.values() if isinstance(t, Tensor))
    for node in exported.graph.nodes:
        if isinstance(node.meta.get("val"), Tensor):
            yield node.meta["val"]


def _is_elsewhere(value: Any) -> bool:
    return isinstance(value, torch.device) and value.type != "cpu"


def _names_device(graph: fx.Graph) -> bool:
    return any(_is_elsewhere(a) for n in graph.nodes for a in (*n.args, *n.kwargs.values()))


def _move(node: fx.Node) -> None:
    """Devices among the arguments of a call, wherever its schema has them."""
    cpu = torch.device("cpu")
    node.args = tuple(cpu if _is_elsewhere(a) else a for a in node.args)
    node.kwargs = {k: cpu if _is_elsewhere(a) else a for k, a in node.kwargs.items()}

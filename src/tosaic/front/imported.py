"""From what users have to a program that only makes new values, on the CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.compose import composed
from tosaic.front.pieces import in_pieces
from tosaic.front.state import Changes, explicit
from tosaic.front.writes import is_functional

_KEPT = "tosaic.imported"
_OBSERVER = "activation_post_process_"  # what torchao calls them


@dataclass(frozen=True, slots=True)
class Imported:
    """A program with the structure of the user's arguments and results, and what it changes.

    If it changes anything, the program itself takes and gives flat lists: see ``Changes``.
    ``outputs`` are names of the results, where they are known from before it was quantized.
    """

    model: ExportedProgram | fx.GraphModule
    in_spec: Any
    out_spec: Any
    changes: Changes = field(default_factory=Changes)
    outputs: tuple[str, ...] = ()

    @property
    def is_quantized(self) -> bool:
        graph = self.model.graph
        return any(
            n.op == "call_function" and torchapi.target_name(n).startswith("quantized_decomposed.")
            for n in graph.nodes
        )

    def with_model(self, model: ExportedProgram | fx.GraphModule) -> Imported:
        """Another form of the same program."""
        return replace(self, model=model)

    def remember(self, module: fx.GraphModule) -> None:
        """Let a module know what the program changes: its own arguments do not say it."""
        module.meta[_KEPT] = self.with_model(module)


def import_model(
    model: Any, example_inputs: tuple[Any, ...], dynamic_shapes: Any = None
) -> Imported:
    """A module, an exported program, a converted graph module, or the path of a ``.pt2`` file."""
    if isinstance(model, (str, os.PathLike)):
        model = torchapi.load(model)
    if isinstance(model, fx.GraphModule) and _is_converted(model) and is_functional(model):
        if isinstance(kept := model.meta.get(_KEPT), Imported):
            return kept.with_model(model)
        return Imported(model, _spec(model, "_in_spec"), _spec(model, "_out_spec"))
    if isinstance(model, torch.nn.Module):
        if any(name.startswith(_OBSERVER) for name, _ in model.named_children()):
            raise InvalidInput("the model is prepared, and not converted yet: see tosaic.convert")
        examples = _beside(model, example_inputs)
        model = torchapi.captured(model, examples, dynamic_shapes)
    elif dynamic_shapes is not None:
        raise InvalidInput("dynamic_shapes is for an nn.Module: the program is exported already")
    if not isinstance(model, ExportedProgram):
        raise InvalidInput(
            f"a model is an nn.Module, an ExportedProgram, a converted GraphModule or the path of "
            f"a .pt2 file, not {type(model).__name__}"
        )
    return _from_exported(on_cpu(torchapi.with_own_operators(model)))


def _from_exported(exported: ExportedProgram) -> Imported:
    call = exported.call_spec
    if not is_functional(exported.graph_module):
        exported = torchapi.functional(exported)
    made, changes = explicit(exported)
    return Imported(in_pieces(composed(made)), call.in_spec, call.out_spec, changes)


def _is_converted(module: fx.GraphModule) -> bool:
    return any("quantized_decomposed" in str(n.target) for n in module.graph.nodes)


def _spec(module: fx.GraphModule, name: str) -> Any:
    return getattr(module, name, None)


def _beside(module: torch.nn.Module, example_inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The examples where the model is; one without values becomes zeros, as only sizes count."""
    own = next((t.device for t in (*module.parameters(), *module.buffers())), None)
    device = own or torch.device("cpu")
    if device.type == "meta":
        name = type(module).__name__
        raise InvalidInput(f"{name} is on the meta device and has no values: load them first")

    def moved(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.device == device:
            return value
        if value.device.type == "meta":
            return torch.zeros(value.shape, dtype=value.dtype, device=device)
        return value.to(device)

    flat, spec = torchapi.flatten(example_inputs)
    placed: tuple[Any, ...] = torchapi.unflatten([moved(v) for v in flat], spec)
    return placed


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


def check_examples(example_inputs: Any) -> None:
    """A tuple whose tensors lie apart in memory; InvalidInput says what is wrong."""
    if not isinstance(example_inputs, tuple):
        kind = type(example_inputs).__name__
        raise InvalidInput(f"example_inputs must be a tuple of the model's arguments, not a {kind}")
    seen: dict[int, list[tuple[int, Tensor]]] = {}
    flat, _ = torchapi.flatten(example_inputs)
    for index, value in enumerate(flat):
        if not isinstance(value, Tensor) or value.device.type == "meta" or not value.numel():
            continue
        near = seen.setdefault(value.untyped_storage().data_ptr(), [])
        for first, other in near:
            _check_apart(first, other, index, value)
        near.append((index, value))


def _check_apart(first: int, other: Tensor, index: int, value: Tensor) -> None:
    """torch.export merges equal tensors; writes to one of two that overlap change both."""
    if not _overlap(other, value):
        return
    same = other.data_ptr() == value.data_ptr() and other.shape == value.shape
    how = "are the same tensor, which torch.export would merge into one"
    if not same or other.stride() != value.stride():
        how = "overlap in memory"
    raise InvalidInput(f"example inputs {first} and {index} {how}; pass a clone")


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors in one storage have an element in common."""
    if one.element_size() != other.element_size():
        return True
    taken = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset()).any())

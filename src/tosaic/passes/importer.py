"""Imports a model: a functional program on the CPU, in canonical form."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, kind_of
from tosaic.front import torchapi
from tosaic.front.devices import on_cpu
from tosaic.front.functionalize import is_functional
from tosaic.front.hints import HELD
from tosaic.front.imported import KEPT, Imported
from tosaic.front.state import explicit
from tosaic.passes.attention_masks import SOFTMAXES
from tosaic.passes.engine import run
from tosaic.passes.fuse_attention import OPERATOR
from tosaic.passes.match import name_of
from tosaic.passes.number_constants import number_constants
from tosaic.passes.phases import CANONICAL, FLOAT, IMPORT, IMPORT_FFT

_OBSERVER = "activation_post_process_"  # what torchao calls them


def import_model(
    model: Any, example_inputs: tuple[Any, ...], dynamic_shapes: Any = None, fft: bool = False
) -> Imported:
    """A module, an exported program, a converted graph module, or the path of a ``.pt2`` file.

    ``fft`` keeps Fourier transforms of fitting sizes, for a target with operators of them.
    """
    if isinstance(model, (str, os.PathLike)):
        model = torchapi.load(model)
    if isinstance(model, fx.GraphModule) and _is_converted(model) and is_functional(model):
        made = model if torchapi.is_canonical(model) else torchapi.copied(model)
        run(made, CANONICAL if made is not model else ())
        if isinstance(kept := model.meta.get(KEPT), Imported):
            return kept.with_model(made)
        return Imported(made, _spec(model, "_in_spec"), _spec(model, "_out_spec"))
    given = model
    if isinstance(model, torch.nn.Module):
        if not hasattr(model, "_modules"):
            kind = type(model).__name__
            raise InvalidInput(f"{kind}.__init__ does not call super().__init__(): do that first")
        if any(name.startswith(_OBSERVER) for name, _ in model.named_children()):
            raise InvalidInput("the model is prepared, and not converted yet: see tosaic.convert")
        examples = _beside(model, example_inputs)
        with torchapi.as_block_layers(model):
            model = torchapi.captured(model, examples, dynamic_shapes)
    elif dynamic_shapes is not None:
        raise InvalidInput("dynamic_shapes is for an nn.Module: the program is exported already")
    if not isinstance(model, ExportedProgram):
        raise InvalidInput(
            f"a model is an nn.Module, an ExportedProgram, a converted GraphModule or the path of "
            f"a .pt2 file, not {kind_of(model)}"
        )
    _check_arguments(model)
    return _from_exported(on_cpu(torchapi.with_own_operators(model)), given, fft)


def _check_arguments(exported: ExportedProgram) -> None:
    """Weights that only torch's older quantized operators can read are nobody else's."""
    for node in exported.graph.nodes:
        if any(isinstance(value, torch.ScriptObject) for value in node.args):
            raise InvalidInput(
                f"{torchapi.target_name(node)} has packed weights that it alone reads: give the "
                "float model, and quantize it with scheme= and calibration=",
                torchapi.location(node).place,
            )


def _from_exported(exported: ExportedProgram, given: Any, fft: bool) -> Imported:
    """The program in canonical form; what the user gave is left as it was."""
    call = exported.call_spec
    transforms = torchapi.function_transforms(exported)
    if any("grad" in name or "jvp" in name for name in transforms):
        raise InvalidInput(
            "torch.export loses derivatives (torch.func.grad, jvp) inside of a model: write the "
            "derivative as a formula, or keep it out of the model"
        )
    if transforms or not is_functional(exported.graph_module):
        exported = torchapi.functional(exported)
    made, changes = explicit(exported)
    made = torchapi.copied_program(made) if made is given else made
    signature = made.graph_signature
    held = {*signature.inputs_to_parameters, *signature.inputs_to_buffers}
    held |= signature.inputs_to_lifted_tensor_constants.keys()
    for node in made.graph.find_nodes(op="placeholder"):
        node.meta[HELD] = node.name in held
    number_constants(made)
    torchapi.sweep(made.graph)  # what nothing reads would count as a consumer
    run(made.graph_module, IMPORT_FFT if fft else IMPORT)
    return Imported(made, call.in_spec, call.out_spec, changes)


def with_attention(source: Imported) -> Imported:
    """The program with attention that is written out as the operator, for a target of floats."""
    if not isinstance(source.model, ExportedProgram):
        return source
    names = [name_of(node) for node in source.model.graph.nodes]
    if SOFTMAXES.isdisjoint(names):
        return source
    with torch.no_grad():
        module = torchapi.module_of(source.model)
        run(module, FLOAT)
    found = sum(name_of(node) == OPERATOR for node in module.graph.nodes)
    return source.with_model(module) if found > names.count(OPERATOR) else source


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

"""Quantization-aware training: prepare a model, train it as usual, convert it."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torchao.quantization.pt2e import (
    FakeQuantizeBase,
    disable_observer,
    move_exported_model_to_eval,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import checked_examples
from tosaic.lowering.target import Target
from tosaic.passes.importer import import_model
from tosaic.quant.flow import float_module
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.schemes import Scheme
from tosaic.quant.selection import Schemes

_STATE = "tosaic.training"


def prepare_qat(
    model: Any,
    example_inputs: tuple[Any, ...],
    *,
    scheme: str | Scheme | Schemes = "int8",
    target: Target | None = None,
) -> fx.GraphModule:
    """A model that computes with rounded weights and activations, and can be trained.

    Batch norms are part of the layers before them, as in inference: train in float first. The
    batch that it takes is that of the examples.
    """
    example_inputs = checked_examples(example_inputs)
    source = import_model(model, example_inputs)
    if source.is_quantized:
        raise InvalidInput("the model is quantized already: prepare the one in float")
    if source.changes.count:
        raise InvalidInput("a model that changes its buffers or inputs cannot be trained here")
    quantizer = TosaicQuantizer(scheme, training=True, target=target)
    module = float_module(source, quantizer)
    torchapi.give_fakes(module.graph)
    prepared: fx.GraphModule = prepare_qat_pt2e(module, quantizer)
    for parameter in prepared.parameters():
        parameter.requires_grad_(True)
    prepared.meta[_STATE] = "prepared"
    return torchapi.written(prepared)


def convert(prepared: Any) -> fx.GraphModule:
    """The quantized program of a model that was prepared and trained; ``compile`` takes it."""
    state = prepared.meta.get(_STATE) if isinstance(prepared, fx.GraphModule) else None
    if state == "converted" or _is_converted(prepared):
        raise InvalidInput("the model is converted already: give it to tosaic.compile as it is")
    if not isinstance(prepared, fx.GraphModule) or not _fakes(prepared):
        raise InvalidInput("what is converted is a model that tosaic.prepare_qat has made")
    if not any(bool(fake.scale.ne(1).any()) for fake in _fakes(prepared)):
        raise InvalidInput("the model has seen no data yet: train it, or run it on some inputs")
    if any(_has_modes(node) for node in prepared.graph.nodes):
        move_exported_model_to_eval(prepared)
    prepared.apply(disable_observer)
    with torch.no_grad():
        made: fx.GraphModule = convert_pt2e(prepared)
    torchapi.drop_unread(made)
    made.meta[_STATE] = "converted"
    return torchapi.written(made)


def _has_modes(node: fx.Node) -> bool:
    """Whether a call does something else while training; looking for patterns of it takes long."""
    name = torchapi.target_name(node)
    return "dropout" in name or "batch_norm" in name


def _fakes(module: torch.nn.Module) -> list[Any]:
    return [part for part in module.modules() if isinstance(part, FakeQuantizeBase)]


def _is_converted(module: Any) -> bool:
    return isinstance(module, fx.GraphModule) and any(
        n.op == "call_function" and torchapi.target_name(n).startswith("quantized_decomposed.")
        for n in module.graph.nodes
    )

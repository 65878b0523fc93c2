"""From a model to a quantized program: export, prepare, calibrate, convert."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.quant.calibrate import calibrate
from tosaic.quant.fold import add_biases, fold_batch_norms
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.targets.base import Target

_NO_DATA = (
    "no calibration data: ranges come from the example inputs alone; "
    "pass calibration=... for accuracy"
)


def quantize(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: tuple[Any, ...],
    *,
    scheme: str = "int8",
    calibration: Iterable[Any] | None = None,
    target: Target | None = None,
) -> fx.GraphModule:
    """Quantize a model after training, for a target of integers.

    The result is a PT2E-converted program: it runs in PyTorch with every rounding in place, and
    ``tosaic.compile`` takes it. What no rule can lower in integers stays in float.

    ``model`` is an nn.Module or an ExportedProgram; it is left as it was, and is quantized in
    inference mode. ``example_inputs`` is the tuple of arguments to export it with.

    ``scheme`` is ``"int8"`` (activations and weights) or ``"a16w8"`` (int16 activations, int8
    weights). Weights have a scale for each output channel.

    ``calibration`` is any iterable of inputs like those that the network will see, a generator
    included; a few dozen are enough. An input is a tensor, a tuple of arguments, or a dict of
    arguments by name, in any batch size that the exported program runs with. Without it the
    example inputs serve. Data that looks unlike what will come is warned about.

    ``target`` is what it will be compiled for; without it, TOSA with all that the scheme needs.

    InvalidInput says what is wrong with a model, a scheme or data.
    """
    quantizer = TosaicQuantizer(scheme, target=target)
    module = float_module(model, example_inputs)
    with torch.no_grad():
        prepared = prepare_pt2e(module, quantizer)
        doubts = calibrate(prepared, example_inputs, calibration)
        converted: fx.GraphModule = convert_pt2e(prepared)
    torchapi.drop_unread(converted)
    for sentence in doubts if calibration is not None else [_NO_DATA, *doubts]:
        warnings.warn(sentence, UserWarning, stacklevel=2)
    return converted


def float_module(model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The program that is observed: exported, batch norms in its layers, each with a bias."""
    with torch.no_grad():
        module = torchapi.module_of(_exported(model, example_inputs))
        fold_batch_norms(module)
        add_biases(module)
    return module


def _exported(model: Any, example_inputs: Any) -> ExportedProgram:
    if not isinstance(example_inputs, tuple):
        kind = type(example_inputs).__name__
        raise InvalidInput(f"example_inputs must be a tuple of the model's arguments, not a {kind}")
    if isinstance(model, ExportedProgram):
        graph: fx.Graph | None = model.graph
    else:
        graph = model.graph if isinstance(model, fx.GraphModule) else None
    if graph is not None and any("quantized_decomposed" in str(n.target) for n in graph.nodes):
        raise InvalidInput("the model is quantized already; give it without a scheme")
    if isinstance(model, torch.nn.Module):
        return torchapi.export(model, example_inputs)
    if isinstance(model, ExportedProgram):
        return model
    raise InvalidInput(
        f"a model to quantize is an nn.Module or an ExportedProgram, not {type(model).__name__}"
    )

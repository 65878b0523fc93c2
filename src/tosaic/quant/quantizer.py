"""The Quantizer: each rule's policy says what is observed, each rule's answer whether."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import InvalidInput, Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import rides
from tosaic.front.registry import rule_of
from tosaic.quant.fold import fold_batch_norms
from tosaic.quant.roles import constants, is_real, role_of
from tosaic.quant.schemes import Scheme, scheme_of
from tosaic.quant.trial import Trial

_KEY = "quantization_annotation"


class TosaicQuantizer(Quantizer):  # type: ignore[misc]
    """A PT2E quantizer. What its rule refuses is not annotated and stays in float.

    ``refused`` holds those calls with the reason.
    """

    def __init__(self, scheme: str | Scheme = "int8") -> None:
        super().__init__()
        self.scheme = scheme if isinstance(scheme, Scheme) else scheme_of(scheme)
        self.refused: dict[str, Unsupported] = {}
        self._spec = self.scheme.activation()

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        known, riders = constants(model.graph), set[fx.Node]()
        trial = Trial(self.scheme, known)
        for node in model.graph.nodes:
            if node.op != "call_function" or node in riders or node in known:
                continue
            rider = _rider(node)
            if rider is not None and trial.refusal(node, rider) is None:
                self._annotate(node, None)
                rider.meta[_KEY] = _annotation({}, self._spec)
                riders.add(rider)
                continue
            refusal = trial.refusal(node)
            if refusal is None:
                self._annotate(node, self._spec)
            else:
                self.refused[node.name] = refusal
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def _annotate(self, node: fx.Node, output: Any) -> None:
        policy = rule_of(torchapi.target_name(node)).policy
        if not _operands(node, "activation"):
            return
        if policy == "SHARED":
            self._shared(node)
        elif policy == "WEIGHTED":
            self._weighted(node, output)
        elif policy == "FREE":
            inputs = dict.fromkeys(_operands(node, "activation"), self._spec)
            node.meta[_KEY] = _annotation(inputs, output if is_real(node) else None)

    def _shared(self, node: fx.Node) -> None:
        """All inputs and all results have the parameters of the first input."""
        first, *others = _operands(node, "activation")
        same = SharedQuantizationSpec((first, node))
        inputs = {first: self._spec} | dict.fromkeys(others, same)
        node.meta[_KEY] = _annotation(inputs, same if is_real(node) else None)
        if not isinstance(node.meta.get("val"), Tensor):
            for part in node.users:
                if is_real(part):
                    part.meta[_KEY] = _annotation({}, same)

    def _weighted(self, node: fx.Node, output: Any) -> None:
        source, weight, bias = (_operands(node, kind) for kind in ("activation", "weight", "bias"))
        axis = role_of(node, "weight").axis
        inputs: dict[fx.Node, Any] = dict.fromkeys(source, self._spec)
        inputs |= dict.fromkeys(weight, self.scheme.weight(axis))
        inputs |= {b: self.scheme.bias(source[0], weight[0], node) for b in bias}
        node.meta[_KEY] = _annotation(inputs, output)


def _operands(node: fx.Node, kind: str) -> list[fx.Node]:
    """The tensors of real numbers that a call reads in that role."""
    bound = torchapi.bound_arguments(node)
    flat = [(role_of(node, name), v) for name, value in bound.items() for v in _leaves(value)]
    return [v for role, v in flat if role.kind == kind and is_real(v)]


def _leaves(value: Any) -> list[fx.Node]:
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [value] if isinstance(value, fx.Node) else []


def _annotation(inputs: dict[fx.Node, Any], output: Any) -> QuantizationAnnotation:
    return QuantizationAnnotation(input_qspec_map=inputs, output_qspec=output, _annotated=True)


def _rider(node: fx.Node) -> fx.Node | None:
    """The activation that alone reads the result and rides on its accumulator."""
    users = list(node.users)
    if len(users) == 1 and users[0].op == "call_function":
        names = torchapi.target_name(node), torchapi.target_name(users[0])
        if rides(*names):
            return users[0]
    return None


def quantize(
    model: torch.nn.Module | ExportedProgram,
    example_inputs: tuple[Any, ...],
    *,
    scheme: str = "int8",
    calibration: Iterable[Any] | None = None,
) -> fx.GraphModule:
    """The program with quantize and dequantize calls, calibrated on the given inputs.

    ``calibration`` gives tensors, or tuples of arguments. Without it the example inputs serve.
    """
    quantizer = TosaicQuantizer(scheme)
    if calibration is None:
        warnings.warn(
            "no calibration data: ranges come from the example inputs alone; "
            "pass calibration=... for accuracy",
            UserWarning,
            stacklevel=2,
        )
        calibration = [example_inputs]
    with torch.no_grad():
        module = float_module(model, example_inputs)
        prepared = prepare_pt2e(module, quantizer)
        _calibrate(prepared, calibration)
        converted: fx.GraphModule = convert_pt2e(prepared)
    return converted


def float_module(model: Any, example_inputs: tuple[Any, ...]) -> fx.GraphModule:
    """The program that is observed: exported, with batch norms in the convolutions."""
    with torch.no_grad():
        module = torchapi.module_of(_exported(model, example_inputs))
        fold_batch_norms(module)
    return module


def _exported(model: Any, example_inputs: tuple[Any, ...]) -> ExportedProgram:
    if isinstance(model, fx.GraphModule) and any(
        "quantized_decomposed" in str(n.target) for n in model.graph.nodes
    ):
        raise InvalidInput("the model is quantized already; give it without a scheme")
    if isinstance(model, torch.nn.Module):
        return torchapi.export(model, example_inputs)
    if isinstance(model, ExportedProgram):
        return model
    raise InvalidInput(
        f"a model to quantize is an nn.Module or an ExportedProgram, not {type(model).__name__}"
    )


def _calibrate(prepared: fx.GraphModule, calibration: Iterable[Any]) -> None:
    count = 0
    for count, arguments in enumerate(_each(calibration), 1):
        try:
            prepared(*arguments)
        except (RuntimeError, TypeError, ValueError) as problem:
            lines = str(problem).strip().splitlines() or [type(problem).__name__]
            raise InvalidInput(f"calibration input {count} does not run: {lines[0]}") from problem
    if count == 0:
        raise InvalidInput("the calibration data is empty: give at least one input")


def _each(calibration: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    if isinstance(calibration, (Tensor, str)) or not isinstance(calibration, Iterable):
        kind = type(calibration).__name__
        raise InvalidInput(f"calibration is an iterable of inputs, such as a list, not {kind}")
    for item in calibration:
        yield tuple(item) if isinstance(item, (list, tuple)) else (item,)

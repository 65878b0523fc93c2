"""The Quantizer: each rule's policy says what is observed, each rule's answer whether."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torchao.quantization.pt2e import DerivedObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import rides
from tosaic.front.registry import rule_of
from tosaic.quant.roles import constants, is_real, role_of
from tosaic.quant.schemes import Scheme, scheme_of
from tosaic.quant.trial import Trial
from tosaic.quant.weights import BiasObserver, PerChannelWeightObserver
from tosaic.targets.base import Target

_KEY = "quantization_annotation"


class TosaicQuantizer(Quantizer):  # type: ignore[misc]
    """A PT2E quantizer. What its rule refuses is not annotated and stays in float.

    ``refused`` holds those calls with the reason. ``training`` is for ``prepare_qat_pt2e``: values
    are rounded while the network learns, and a batch norm stays with the layer before it.
    """

    def __init__(
        self,
        scheme: str | Scheme = "int8",
        *,
        training: bool = False,
        target: Target | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.scheme = scheme if isinstance(scheme, Scheme) else scheme_of(scheme)
        self.training = training
        self.refused: dict[str, Unsupported] = {}
        self._spec = self.scheme.activation(training)
        self._fixed: dict[fx.Node, Any] = {}

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Tensors by position: torchao takes none by name."""
        for node in model.graph.nodes:
            if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
                torchapi.by_position(node)
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        known, done = constants(model.graph), set[fx.Node]()
        trial = Trial(self.scheme, known, self.target)
        for node in model.graph.nodes:
            if node.op != "call_function" or node in done or node in known:
                continue
            norm = _norm(node) if self.training else None
            rider = _rider(norm or node)
            if rider is not None and trial.refusal(node, rider) is not None:
                rider = None
            refusal = None if rider is not None else trial.refusal(node)
            if refusal is not None:
                self.refused[node.name] = refusal
                continue
            last = rider or norm
            self._annotate(node, None if last is not None else self._spec)
            if last is not None:
                last.meta[_KEY] = _annotation({}, self._spec)
            done |= {n for n in (norm, rider) if n is not None}
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Biases are observed together with their layer."""
        found, wide = edge_or_node_to_obs_or_fq, self.scheme.dtype is torch.int16
        for edge, observer in found.items():
            if isinstance(observer, DerivedObserverOrFakeQuantize):
                # Layers that share a bias do not share its scale, which is that of their inputs.
                layer = edge[1]
                source, weight = (found[n, layer] for n in layer.args[:2])
                if isinstance(weight, PerChannelWeightObserver):
                    found[edge] = BiasObserver(source, weight, wide)
                else:
                    found[edge] = self.scheme.derived(source, weight)

    def _annotate(self, node: fx.Node, output: Any) -> None:
        rule = rule_of(torchapi.target_name(node))
        if not _operands(node, "activation"):
            return
        if rule.policy == "SHARED":
            self._shared(node)
        elif rule.policy == "WEIGHTED":
            self._weighted(node, output)
        elif rule.policy in ("FREE", "FIXED"):
            inputs = {n: self._of(n) for n in _operands(node, "activation")}
            if rule.limits is not None and output is not None:
                output = self.scheme.fixed(rule.limits)
            self._results(node, inputs, output)

    def _of(self, node: fx.Node) -> Any:
        """What a value is quantized to: as its limits say, or as it will be observed."""
        return self._fixed.get(node, self._spec)

    def _results(self, node: fx.Node, inputs: dict[fx.Node, Any], output: Any) -> None:
        """Annotate a call; of several results each real one."""
        several = not isinstance(node.meta.get("val"), Tensor)
        node.meta[_KEY] = _annotation(inputs, output if is_real(node) else None)
        for part in node.users if several else ():
            if is_real(part):
                part.meta[_KEY] = _annotation({}, output)
        if isinstance(output, FixedQParamsQuantizationSpec):
            self._fixed |= dict.fromkeys([node, *(node.users if several else ())], output)

    def _shared(self, node: fx.Node) -> None:
        """All inputs and all results have the parameters of the first input.

        Parameters that limits have fixed are passed on if all inputs have them and nothing else
        comes in; otherwise all are observed together, and such an input is rescaled.
        """
        operands = list(dict.fromkeys(_operands(node, "activation")))
        given = {self._of(n) for n in operands}
        (spec,) = given if len(given) == 1 and not _brings_numbers(node) else {self._spec}
        same = SharedQuantizationSpec((operands[0], node))
        inputs = dict.fromkeys(operands, same) | {operands[0]: spec}
        self._results(node, inputs, same)
        if spec is not self._spec:
            several = not isinstance(node.meta.get("val"), Tensor)
            self._fixed |= dict.fromkeys([node, *(node.users if several else ())], spec)

    def _weighted(self, node: fx.Node, output: Any) -> None:
        source, weight, bias = (_operands(node, kind) for kind in ("activation", "weight", "bias"))
        axis = role_of(node, "weight").axis
        inputs: dict[fx.Node, Any] = {n: self._of(n) for n in source}
        inputs |= dict.fromkeys(weight, self.scheme.weight(axis, self.training))
        inputs |= {b: self.scheme.bias(source[0], weight[0], node) for b in bias}
        node.meta[_KEY] = _annotation(inputs, output)


def _brings_numbers(node: fx.Node) -> bool:
    """Whether a call writes a number of its own beside what it moves, as padding does."""
    value = torchapi.bound_arguments(node).get("value", 0)
    return isinstance(value, (int, float)) and value != 0


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
    user = _only_user(node)
    if user is None:
        return None
    name = torchapi.target_name(node)
    before = name if "batch_norm" not in name else "aten.conv2d.default"
    return user if rides(before, torchapi.target_name(user)) else None


def _norm(node: fx.Node) -> fx.Node | None:
    """The batch norm that alone reads a convolution's result, and becomes part of it."""
    user = _only_user(node)
    if user is None or torchapi.target_name(user) != "aten.batch_norm.default":
        return None
    return user if torchapi.target_name(node).startswith("aten.conv") else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None

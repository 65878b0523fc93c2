"""The Quantizer: each rule's policy says what is observed, each rule's answer whether."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import joins, rides
from tosaic.front.expand import expand
from tosaic.front.registry import rule_of
from tosaic.front.trial import constants
from tosaic.quant.pt2e import (
    DerivedObserverOrFakeQuantize,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    SharedQuantizationSpec,
    join_torchao,
)
from tosaic.quant.readers import tell_readers
from tosaic.quant.roles import is_real, role_of
from tosaic.quant.schemes import Scheme, scheme_of
from tosaic.quant.trial import Trial
from tosaic.quant.weights import BiasObserver, PerChannelWeightObserver
from tosaic.targets.base import Target

_KEY = "quantization_annotation"


class TosaicQuantizer:
    """A PT2E quantizer. What its rule refuses is not annotated and stays in float.

    ``refused`` holds those calls with the reason. ``training`` is for ``prepare_qat_pt2e``: values
    are rounded while the network learns, and a batch norm stays with the layer before it.

    ``target`` is what the program will be compiled for. If its ``sums_ride``, a sum takes the
    accumulator of a layer that nothing else reads: a rescaling and a rounding fewer.
    """

    def __init__(
        self,
        scheme: str | Scheme = "int8",
        *,
        training: bool = False,
        target: Target | None = None,
    ) -> None:
        join_torchao()
        self.target = target
        self.sums_ride = not training and (target is None or target.sums_ride)
        self.scheme = scheme if isinstance(scheme, Scheme) else scheme_of(scheme)
        self.training = training
        self.refused: dict[str, Unsupported] = {}
        self._spec = self.scheme.activation(training)
        self._fixed: dict[fx.Node, Any] = {}

    def expand(self, module: fx.GraphModule) -> None:
        """Replace calls that are refused by their parts, if none of these is."""
        known = constants(module.graph)
        trial = self._trial(known)
        expand(module, lambda n: n not in known and trial.refusal(n) is not None, constants=known)

    def _trial(self, known: set[fx.Node]) -> Trial:
        return Trial(self.scheme, known, self.target)

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Tensors by position: torchao takes none by name."""
        join_torchao()
        for node in model.graph.nodes:
            if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
                torchapi.by_position(node)
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        known, done = constants(model.graph), set[fx.Node]()
        trial = self._trial(known)
        joined = _joined(model.graph, trial) if self.sums_ride else {}
        inside = {call for calls in joined.values() for call in calls}
        for node in model.graph.nodes:
            if node.op != "call_function" or node in done or node in known:
                continue
            if node in inside:
                self._annotate(node, None)
                continue
            before = joined.get(node, ())
            norm = _norm(node) if self.training else None
            rider = _rider(norm or node)
            if rider is not None and trial.refusal(*before, node, rider) is not None:
                rider = None
            refusal = None if rider is not None else trial.refusal(*before, node)
            if refusal is not None:
                self.refused[node.name] = refusal
                continue
            last = rider or norm
            self._annotate(node, None if last is not None else self._spec, before)
            if last is not None:
                last.meta[_KEY] = _annotation({}, self._spec)
            done |= {n for n in (norm, rider) if n is not None}
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Biases are observed together with their layer, values with regard to who reads them."""
        tell_readers(model, edge_or_node_to_obs_or_fq)
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

    def _annotate(self, node: fx.Node, output: Any, before: tuple[fx.Node, ...] = ()) -> None:
        """What a call reads and gives; what comes ``before`` it is read as an accumulator."""
        rule = rule_of(torchapi.target_name(node))
        if not _operands(node, "activation"):
            return
        if rule.policy == "SHARED":
            self._shared(node)
        elif rule.policy == "WEIGHTED":
            self._weighted(node, output)
        elif rule.policy in ("FREE", "FIXED"):
            operands = [n for n in _operands(node, "activation") if n not in before]
            inputs = {n: self._of(n) for n in operands}
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


def _joined(graph: fx.Graph, trial: Trial) -> dict[fx.Node, tuple[fx.Node, ...]]:
    """For each sum the layers that nothing else reads, if it can add their accumulators."""
    found: dict[fx.Node, tuple[fx.Node, ...]] = {}
    for node in graph.nodes:
        if node.op != "call_function" or not is_real(node):
            continue
        name = torchapi.target_name(node)
        layers = tuple(
            n for n in node.all_input_nodes
            if n.op == "call_function" and n not in trial.constants and is_real(n)
            and joins(torchapi.target_name(n), name) and _only_user(n) is node
        )  # fmt: skip
        if layers and trial.refusal(*layers, node) is None:
            found[node] = layers
    return found


def _norm(node: fx.Node) -> fx.Node | None:
    """The batch norm that alone reads a convolution's result, and becomes part of it."""
    user = _only_user(node)
    if user is None or torchapi.target_name(user) != "aten.batch_norm.default":
        return None
    return user if torchapi.target_name(node).startswith("aten.conv") else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None

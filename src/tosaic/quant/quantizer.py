"""The Quantizer: each rule's policy says what is observed, each rule's answer whether."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx
from torchao.quantization.pt2e import DerivedObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import joins, rides
from tosaic.front.expand import expand
from tosaic.front.lower import TYPES
from tosaic.front.marks import MARK, mark_of
from tosaic.front.registry import RULES, rule_of
from tosaic.front.trial import constants
from tosaic.quant.readers import tell_readers
from tosaic.quant.roles import is_real, role_of
from tosaic.quant.schemes import Scheme, scheme_of, wider
from tosaic.quant.ties import share_observers
from tosaic.quant.trial import Trial
from tosaic.quant.weights import BiasObserver, PerChannelWeightObserver
from tosaic.spec.dtypes import DType
from tosaic.targets.base import Target

_KEY = "quantization_annotation"


class TosaicQuantizer(Quantizer):  # type: ignore[misc]
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
        super().__init__()
        self.target = target
        self.sums_ride = not training and (target is None or target.sums_ride)
        self.scheme = scheme if isinstance(scheme, Scheme) else scheme_of(scheme)
        self.training = training
        self.refused: dict[str, Unsupported] = {}
        self._spec = self.scheme.activation(training)
        self._wide = wider(self.scheme, target)
        self._wide_spec = self._wide.activation(training)
        self._specs: dict[fx.Node, Any] = {}  # of values that have another than most
        self._narrowed: set[fx.Node] = set()  # calls that take no value as wide as it is

    def expand(self, module: fx.GraphModule) -> None:
        """Replace calls that are refused by their parts, if none of these is."""
        known = constants(module.graph)
        trial = self._trial(known)
        expand(module, lambda n: n not in known and trial.refusal(n) is not None, constants=known)

    def _trial(self, known: set[fx.Node]) -> Trial:
        return Trial(self.scheme, known, self.target, self._kind)

    def _kind(self, call: fx.Node, operand: fx.Node | None) -> DType:
        """The integers that a call reads an operand in, or gives its result in."""
        if operand is None:
            return TYPES[self._scheme_of(call).dtype]
        return TYPES[self._read(operand, call).dtype]

    def _scheme_of(self, node: fx.Node) -> Scheme:
        return self._wide if mark_of(node).wide else self.scheme

    def _spec_of(self, node: fx.Node) -> Any:
        """How the result of a call is observed."""
        mark = mark_of(node)
        if not mark.wide:
            return self._spec
        if mark.limits is None or self._wide_spec.dtype is not torch.int16:
            return self._wide_spec
        return self._wide.fixed(mark.limits)

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Tensors by position: torchao takes none by name."""
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
            if node.op == "placeholder" and MARK in node.meta and is_real(node):  # of a region
                node.meta[_KEY] = _annotation({}, self._spec_of(node))
            if node.op != "call_function" or node in done or node in known:
                continue
            if torchapi.is_region_call(node):
                self._border(node)
                continue
            if node in inside:
                self._annotate(node, None)
                continue
            before = joined.get(node, ())
            norm = _norm(node) if self.training else None
            rider = _rider(norm or node)
            if rider is not None and trial.refusal(*before, node, rider) is not None:
                rider = None
            refusal = None if rider is not None else self._refusal(trial, *before, node)
            if refusal is not None:
                self.refused[node.name] = refusal
                continue
            last = rider or norm
            self._annotate(node, None if last is not None else self._spec_of(node), before)
            if last is not None:
                last.meta[_KEY] = _annotation({}, self._spec_of(last))
                self._remember(last, self._spec_of(last))
            done |= {n for n in (norm, rider) if n is not None}
        for node in model.graph.find_nodes(op="placeholder"):
            if len(set(_readings(node))) > 1:  # it comes in once, and is rescaled inside
                node.meta[_KEY] = _annotation({}, self._spec)
        return model

    def _refusal(self, trial: Trial, *calls: fx.Node) -> Unsupported | None:
        """Why calls are refused, be their operands as wide as they are or as most are."""
        refusal = trial.refusal(*calls)
        if refusal is None or all(self._of(n) is self._spec for n in calls[-1].all_input_nodes):
            return refusal
        self._narrowed.add(calls[-1])
        again = trial.refusal(*calls)
        if again is not None:
            self._narrowed.discard(calls[-1])
            return refusal
        return None

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Biases are observed together with their layer, values with regard to who reads them."""
        found, made = edge_or_node_to_obs_or_fq, dict[Any, BiasObserver]()
        share_observers(found)
        tell_readers(model, found)
        for edge, observer in found.items():
            if isinstance(observer, DerivedObserverOrFakeQuantize):
                # The scale of a bias is that of its layer's inputs: layers with others share none.
                layer = edge[1]
                source, weight = (found[n, layer] for n in layer.args[:2])
                if isinstance(weight, PerChannelWeightObserver):
                    key = edge[0], source, weight
                    if key not in made:
                        made[key] = BiasObserver(source, weight, source.dtype is torch.int16)
                    found[edge] = made[key]
                else:
                    found[edge] = self.scheme.derived(source, weight)

    def _annotate(self, node: fx.Node, output: Any, before: tuple[fx.Node, ...] = ()) -> None:
        """What a call reads and gives; what comes ``before`` it is read as an accumulator."""
        rule = rule_of(torchapi.target_name(node))
        if not _operands(node, "activation"):
            if node.all_input_nodes:  # masks or indices become real numbers
                self._results(node, {}, output)
            return
        if rule.policy == "SHARED":
            self._shared(node)
        elif rule.policy == "WEIGHTED":
            self._weighted(node, output)
        elif rule.policy in ("FREE", "FIXED"):
            operands = [n for n in _operands(node, "activation") if n not in before]
            inputs = {n: self._read(n, node) for n in operands}
            if rule.limits is not None and output is not None:
                output = self._scheme_of(node).fixed(rule.limits)
            self._results(node, inputs, output)

    def _border(self, node: fx.Node) -> None:
        """Real numbers that enter a branch or a loop, and those that come out."""
        if self.target is not None and self.target.env.has("cf"):
            inputs = {n: self._of(n) for n in node.all_input_nodes if is_real(n)}
            self._results(node, inputs, self._spec)

    def _of(self, node: fx.Node) -> Any:
        """What a value is quantized to: as its limits say, or as it will be observed."""
        return self._specs.get(node, self._spec)

    def _read(self, operand: fx.Node, call: fx.Node) -> Any:
        """What a call takes a value as; layers with weights take it as it is."""
        given = self._of(operand)
        if call in self._narrowed and given.dtype is not self._spec.dtype:
            return self._spec
        if not mark_of(call).wide or given.dtype is self._wide_spec.dtype:
            return given
        rule = RULES.get(torchapi.target_name(call))
        return given if rule is not None and rule.policy == "WEIGHTED" else self._wide_spec

    def _remember(self, node: fx.Node, spec: Any) -> None:
        """That a value, or all values of a call that gives several, are not as most are."""
        if spec is not None and spec is not self._spec:
            several = not isinstance(node.meta.get("val"), Tensor)
            self._specs |= dict.fromkeys([node, *(node.users if several else ())], spec)

    def _results(self, node: fx.Node, inputs: dict[fx.Node, Any], output: Any) -> None:
        """Annotate a call; of several results each real one."""
        several = not isinstance(node.meta.get("val"), Tensor)
        node.meta[_KEY] = _annotation(inputs, output if is_real(node) else None)
        for part in node.users if several else ():
            if is_real(part):
                part.meta[_KEY] = _annotation({}, output)
        if not isinstance(output, SharedQuantizationSpec):
            self._remember(node, output)

    def _shared(self, node: fx.Node) -> None:
        """All inputs and all results have the parameters of the first input.

        Parameters that limits have fixed are passed on if all inputs have them and nothing else
        comes in; otherwise all are observed together, and such an input is rescaled.
        """
        operands = list(dict.fromkeys(_operands(node, "activation")))
        given = {self._read(n, node) for n in operands}
        (spec,) = given if len(given) == 1 and not _brings_numbers(node) else {self._spec_of(node)}
        same = SharedQuantizationSpec((operands[0], node))
        inputs = dict.fromkeys(operands, same) | {operands[0]: spec}
        self._results(node, inputs, same)
        self._remember(node, spec)

    def _weighted(self, node: fx.Node, output: Any) -> None:
        source, weight, bias = (_operands(node, kind) for kind in ("activation", "weight", "bias"))
        axis = role_of(node, "weight").axis
        inputs: dict[fx.Node, Any] = {n: self._read(n, node) for n in source}
        inputs |= dict.fromkeys(weight, self.scheme.weight(axis, self.training))
        inputs |= {b: self.scheme.bias(source[0], weight[0], node) for b in bias}
        node.meta[_KEY] = _annotation(inputs, output)
        self._remember(node, output)


def _readings(node: fx.Node) -> list[torch.dtype]:
    """The integers that calls read a value in."""
    maps = [u.meta[_KEY].input_qspec_map for u in node.users if _KEY in u.meta]
    return [found[node].dtype for found in maps if hasattr(found.get(node), "dtype")]


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

"""The Quantizer: each rule's policy says what is observed, each rule's answer whether."""

from __future__ import annotations

from typing import Any

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
from tosaic.front import trial as front
from tosaic.front.calls import joins, rides
from tosaic.front.choice import CHOICE, Choice
from tosaic.front.expand import expand
from tosaic.front.registry import rule_of
from tosaic.front.trial import constants
from tosaic.quant.readers import tell_readers
from tosaic.quant.roles import is_real, role_of
from tosaic.quant.schemes import Scheme
from tosaic.quant.selection import ANNOTATION as _KEY
from tosaic.quant.selection import BoundarySpec, Schemes, choices, is_marked, mark, schemes_of
from tosaic.quant.trial import Trial
from tosaic.quant.weights import BiasObserver, WeightObserver
from tosaic.targets.base import Target


class TosaicQuantizer(Quantizer):  # type: ignore[misc]
    """A PT2E quantizer. What its rule refuses is not annotated and stays in float.

    ``scheme`` is one for the whole model or, as ``Schemes``, one for each of its parts.
    ``choices`` holds what was chosen for each call by the name of its node, ``refused`` those that
    could not be followed, with the reason. ``training`` is for ``prepare_qat_pt2e``: values are
    rounded while the network learns, and a batch norm stays with the layer before it.

    ``target`` is what the program will be compiled for. If its ``sums_ride``, a sum takes the
    accumulator of a layer that nothing else reads: a rescaling and a rounding fewer.
    """

    def __init__(
        self,
        scheme: str | Scheme | Schemes = "int8",
        *,
        training: bool = False,
        target: Target | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.sums_ride = not training and (target is None or target.sums_ride)
        self.schemes = schemes_of(scheme)
        if target is not None:
            self.schemes.check(target.env)
        self.training = training
        self.refused: dict[str, Unsupported] = {}
        self.choices: dict[str, Choice] = {}
        self._made: dict[fx.Node, Choice] = {}
        self._fixed: dict[fx.Node, Any] = {}
        self._trials: dict[Any, Trial] = {}

    def expand(self, module: fx.GraphModule) -> None:
        """Replace calls that are refused by their parts, if none of these is."""
        mark(module.graph, self.schemes)
        known = constants(module.graph)
        self._trials = {}
        has_floats = self.target is not None and "FP" in self.target.env.profiles

        def refuses(node: fx.Node) -> bool:
            if node in known:
                return False
            scheme = node.meta[CHOICE].scheme
            if scheme is not None:
                return self._trial(known, scheme).refusal(node) is not None
            if self.target is None or not has_floats:
                return False
            trial = front.Trial(self.target.env, known, self.target.constraints)
            return trial.refusal(node) is not None

        expand(module, refuses, constants=known)

    def _trial(self, known: set[fx.Node], scheme: Scheme, out: Scheme | None = None) -> Trial:
        key = scheme, out or scheme
        if key not in self._trials:
            self._trials[key] = Trial(scheme, known, self.target, out or scheme)
        return self._trials[key]

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Tensors by position: torchao takes none by name."""
        for node in model.graph.nodes:
            if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
                torchapi.by_position(node)
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """Annotate what no other quantizer has; the boundary comes last."""
        known, done = constants(model.graph), set[fx.Node]()
        if not is_marked(model.graph, self.schemes):
            mark(model.graph, self.schemes)
        others = {node for node in model.graph.nodes if _KEY in node.meta}
        self._made, self._trials, self._fixed = choices(model.graph, self.schemes), {}, {}
        joined = self._joined(model.graph, known) if self.sums_ride else {}
        inside = {call for calls in joined.values() for call in calls}
        for node in model.graph.nodes:
            if node.op != "call_function" or node in done or node in known or _KEY in node.meta:
                continue
            if node in inside:
                self._annotate(node, None)
            elif self._made[node].scheme is not None:
                done |= self._close(node, known, joined.get(node, ()))
        for node, choice in self._made.items():
            if node not in others:
                node.meta[CHOICE] = choice
            if node not in known | others and (is_real(node) or choice.reason):
                self.choices[node.name] = choice
        if isinstance(self.schemes.io, BoundarySpec):
            self.schemes.io.annotate(model.graph, self)
        return model

    def _close(
        self, node: fx.Node, known: set[fx.Node], before: tuple[fx.Node, ...]
    ) -> set[fx.Node]:
        """Annotate a call with what rides on it, or say why not; what it is done with."""
        scheme = self._made[node].scheme
        assert scheme is not None
        norm = _norm(node) if self.training else None
        rider = self._rider(norm or node)
        if rider is not None:
            trial = self._trial(known, scheme, self._made[rider].scheme)
            if trial.refusal(*before, node, rider) is not None:
                rider = None
        refusal = None if rider is not None else self._trial(known, scheme).refusal(*before, node)
        if refusal is not None:
            self.refused[node.name] = refusal
            self._made[node] = self._made[node].refused(refusal.reason)
            return set()
        last = rider or norm
        self._annotate(node, None if last is not None else self._spec(node), before)
        if last is not None:
            last.meta[_KEY] = _annotation({}, self._spec(last if last is rider else node))
        return {n for n in (norm, rider) if n is not None}

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Biases are observed together with their layer, values with regard to who reads them."""
        tell_readers(model, edge_or_node_to_obs_or_fq)
        found = edge_or_node_to_obs_or_fq
        for edge, observer in found.items():
            scheme = self._scheme(edge[1]) if isinstance(edge, tuple) else None
            if isinstance(observer, DerivedObserverOrFakeQuantize) and scheme is not None:
                # Layers that share a bias do not share its scale, which is that of their inputs.
                layer = edge[1]
                source, weight = (found[n, layer] for n in layer.args[:2])
                if isinstance(weight, WeightObserver):
                    found[edge] = BiasObserver(source, weight, scheme.is_wide)
                else:
                    found[edge] = scheme.derived(source, weight, observer.derive_qparams_fn)
        if isinstance(self.schemes.io, BoundarySpec):
            self.schemes.io.link(found)

    def _scheme(self, node: fx.Node) -> Scheme | None:
        choice = self._made.get(node)
        return None if choice is None else choice.scheme

    def _spec(self, node: fx.Node) -> Any:
        """How a call's activations are observed."""
        scheme = self._scheme(node)
        assert scheme is not None
        return scheme.activation(self.training)

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
            inputs = {n: self._of(n, node) for n in operands}
            if rule.limits is not None and output is not None:
                scheme = self._scheme(node)
                assert scheme is not None
                output = scheme.fixed(rule.limits)
            self._results(node, inputs, output)

    def _of(self, node: fx.Node, reader: fx.Node) -> Any:
        """What a value is quantized to: as its limits say, or as it will be observed."""
        spec, fixed = self._spec(reader), self._fixed.get(node)
        same = fixed is not None and (fixed.dtype, fixed.quant_min, fixed.quant_max) == (
            spec.dtype, spec.quant_min, spec.quant_max
        )  # fmt: skip
        return fixed if same else spec

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
        given = {self._of(n, node) for n in operands}
        own = self._spec(node)
        (spec,) = given if len(given) == 1 and not _brings_numbers(node) else {own}
        same = SharedQuantizationSpec((operands[0], node))
        inputs = dict.fromkeys(operands, same) | {operands[0]: spec}
        self._results(node, inputs, same)
        if spec is not own:
            several = not isinstance(node.meta.get("val"), Tensor)
            self._fixed |= dict.fromkeys([node, *(node.users if several else ())], spec)

    def _weighted(self, node: fx.Node, output: Any) -> None:
        source, weight, bias = (_operands(node, kind) for kind in ("activation", "weight", "bias"))
        axis, scheme = role_of(node, "weight").axis, self._scheme(node)
        assert scheme is not None
        inputs: dict[fx.Node, Any] = {n: self._of(n, node) for n in source}
        inputs |= dict.fromkeys(weight, scheme.weight(axis, self.training))
        for b in bias:
            repeats = b.meta["val"].numel() // weight[0].meta["val"].shape[axis]
            values = None if self.training else _values(b)
            inputs[b] = scheme.bias(source[0], weight[0], node, values, repeats)
        node.meta[_KEY] = _annotation(inputs, output)

    def _rider(self, node: fx.Node) -> fx.Node | None:
        """The activation that alone reads the result and rides on its accumulator."""
        user = _only_user(node)
        if user is None or _KEY in user.meta or self._scheme(user) is None:
            return None
        name = torchapi.target_name(node)
        before = name if "batch_norm" not in name else "aten.conv2d.default"
        return user if rides(before, torchapi.target_name(user)) else None

    def _joined(self, graph: fx.Graph, known: set[fx.Node]) -> dict[fx.Node, tuple[fx.Node, ...]]:
        """For each sum the layers that nothing else reads, if it can add their accumulators."""
        found: dict[fx.Node, tuple[fx.Node, ...]] = {}
        for node in graph.nodes:
            scheme = self._scheme(node) if node.op == "call_function" and is_real(node) else None
            if scheme is None or _KEY in node.meta:
                continue
            name = torchapi.target_name(node)
            layers = tuple(
                n for n in node.all_input_nodes
                if n.op == "call_function" and n not in known and is_real(n)
                and self._scheme(n) == scheme and _KEY not in n.meta
                and joins(torchapi.target_name(n), name) and _only_user(n) is node
            )  # fmt: skip
            if layers and self._trial(known, scheme).refusal(*layers, node) is None:
                found[node] = layers
        return found


def _brings_numbers(node: fx.Node) -> bool:
    """Whether a call writes a number of its own beside what it moves, as padding does."""
    value = torchapi.bound_arguments(node).get("value", 0)
    return isinstance(value, (int, float)) and value != 0


def _values(node: fx.Node) -> Tensor | None:
    """The numbers of a parameter."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None:
        return None
    found: Tensor = torchapi.attribute(module, str(node.target))
    return found


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


def _norm(node: fx.Node) -> fx.Node | None:
    """The batch norm that alone reads a convolution's result, and becomes part of it."""
    user = _only_user(node)
    if user is None or torchapi.target_name(user) != "aten.batch_norm.default":
        return None
    return user if torchapi.target_name(node).startswith("aten.conv") else None


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None

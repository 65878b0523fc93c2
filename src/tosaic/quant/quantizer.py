"""The PT2E Quantizer: annotates each call by the policy of its rule, if its rule lowers it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, fx

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import fuses_activation
from tosaic.front.hints import MARK, mark_of
from tosaic.front.precision import CHOICE, Choice
from tosaic.front.registry import RULES, rule_of
from tosaic.front.roles import is_real, role_of
from tosaic.lowering import support as front
from tosaic.lowering.builder import TYPES
from tosaic.lowering.support import constants
from tosaic.lowering.target import Target
from tosaic.passes.decompose import expand
from tosaic.passes.fuse_unary import Curve, is_pointwise
from tosaic.passes.match import only_user, values_of
from tosaic.passes.step_lattice import Steps
from tosaic.passes.widen_residuals import NORMS
from tosaic.quant.annotations import ANNOTATION as _KEY
from tosaic.quant.annotations import (
    annotation,
    brings_numbers,
    inputs_of,
    norm_of,
    operands_of,
)
from tosaic.quant.loops import annotate_border
from tosaic.quant.pt2e import SharedQuantizationSpec, join_torchao
from tosaic.quant.reach import becomes_integers, exceeds
from tosaic.quant.readers import tell_readers
from tosaic.quant.schemes import LONG, SCHEMES, Scheme, wider
from tosaic.quant.selection import (
    BoundarySpec,
    Schemes,
    check_names,
    choices,
    integer_schemes,
    integers_of,
    is_marked,
    mark,
)
from tosaic.quant.shared_observers import observe_biases, share_observers
from tosaic.quant.support import Trial, joined_sums
from tosaic.quant.unary_chains import curves_in, takes
from tosaic.spec import dtypes as d
from tosaic.spec.dtypes import DType
from tosaic.spec.env import Env


class TosaicQuantizer:
    """A PT2E quantizer. What its rule refuses is not annotated and stays in float.

    ``scheme`` is one for the whole model or, as ``Schemes``, one for each of its parts.
    ``choices`` holds what was chosen for each call by the name of its node, ``refused`` those that
    could not be followed, with the reason. ``training`` is for ``prepare_qat_pt2e``: values are
    rounded while the network learns, and a batch norm stays with the layer before it.

    ``target`` is what the program will be compiled for. If its ``fuses_sums``, a sum takes the
    accumulator of a layer that nothing else reads: a rescaling and a rounding fewer.
    """

    only_written = False  # whether a class or an operator may be named that the model lacks

    def __init__(
        self,
        scheme: str | Scheme | Schemes = "int8",
        *,
        training: bool = False,
        target: Target | None = None,
    ) -> None:
        join_torchao()
        self.target = target
        self.fuses_sums = not training and (target is None or target.traits.fuses_sums)
        self.schemes = integer_schemes(scheme)
        if target is not None:
            self.schemes.check(target.env)
        self.training = training
        self.refused: dict[str, Unsupported] = {}
        self.choices: dict[str, Choice] = {}
        self._made: dict[fx.Node, Choice] = {}
        self._specs: dict[fx.Node, Any] = {}  # of values that have another than most
        self._narrowed: set[fx.Node] = set()  # calls that take no value as wide as it is
        self._curves: dict[fx.Node, Curve] = {}
        self._steps = Steps()

    def expand(self, module: fx.GraphModule) -> bool:
        """Replace refused calls by their parts, if none is refused: the device's, then a host's."""
        mark(module.graph, self.schemes)
        known, self._made = constants(module.graph), {}
        trials, plain = self._trials(known), self._float_trial(known)

        def refuses(node: fx.Node, count: int) -> str:
            judges = trials[:count] if self._scheme(node) is not None else plain
            told = [] if node in known else [judge.refusal(node) for judge in judges]
            return told[0].reason if told and told[0] and all(told) else ""

        traits = replace(self._device.traits, longest_unrolled=self.longest_unrolled)
        told = [lambda n, c=c: refuses(n, c + 1) for c in range(len(trials))]
        return sum(expand(module, each, constants=known, traits=traits) for each in told) > 0

    @property
    def longest_unrolled(self) -> int:
        """Recurrences of more steps are loops; 0 is never."""
        return 0 if self.training else self._device.traits.longest_unrolled

    @property
    def has_int16(self) -> bool:
        """Whether there are functions of 16 bits, and nothing is trained."""
        return not self.training and self._device.env.has("int16")

    @property
    def _device(self) -> Target:
        return self.target or Target(self.schemes.env, Env.parse(self.schemes.env))

    def _trials(self, known: set[fx.Node]) -> list[Trial]:
        return [Trial(known, each, self._kind, self._scheme) for each in self._device.devices]

    def _float_trial(self, known: set[fx.Node]) -> list[front.Trial]:
        """For calls that are left in float, where the target has floats."""
        return [front.Trial(self._device, known)] if "FP" in self._device.env.profiles else []

    def _kind(self, call: fx.Node, operand: fx.Node | None) -> DType:
        """The integers that a call reads an operand in, or gives its result in."""
        spec = self._spec(call) if operand is None else self._read(operand, call)
        return d.I32 if spec is None else TYPES[spec.dtype]

    def transform_for_annotation(self, model: fx.GraphModule) -> fx.GraphModule:
        """Tensors by position: torchao takes none by name."""
        join_torchao()
        for node in model.graph.nodes:
            if any(isinstance(value, fx.Node) for value in node.kwargs.values()):
                torchapi.by_position(node)
        return model

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        """Annotate what no other quantizer has; the boundary comes last."""
        known, done = constants(model.graph), set[fx.Node]()
        if not is_marked(model.graph, self.schemes):
            check_names(model, self.schemes, self.only_written)
            mark(model.graph, self.schemes)
        others = {node for node in model.graph.nodes if _KEY in node.meta}
        self._made, self._specs = choices(model.graph, self.schemes), {}
        self._steps = Steps(model.graph.nodes)
        trial, *_ = trials = self._trials(known)
        joined = joined_sums(model.graph, trial, self._scheme) if self.fuses_sums else {}
        inside = {call for calls in joined.values() for call in calls}
        self._curves = curves_in(model.graph, joined, self._scheme, self._ends, trial, self._steps)
        for node in model.graph.nodes:
            if _KEY in node.meta or node in done or node in known or self._scheme(node) is None:
                continue
            if node.op == "placeholder" and MARK in node.meta and is_real(node):  # of a region
                node.meta[_KEY] = annotation({}, self._spec(node))
            elif torchapi.is_region_call(node):
                self._border(node)
            elif node in inside:
                self._annotate(node, None)
            elif self._is_bent(node):
                self._bend(node, self._curves[node])
            elif node.op == "call_function":
                done |= self._close(node, trials, *joined.get(node, ()))
        self._come_in_once(model.graph)
        self._tell(set(known) | others)
        if isinstance(self.schemes.io, BoundarySpec):
            self.schemes.io.annotate(model.graph, self)
        return model

    def _come_in_once(self, graph: fx.Graph) -> None:
        """An input that is read in several types has the widest, and is rescaled inside."""
        for node in graph.find_nodes(op="placeholder"):
            readers = [
                u for u in node.users if node in inputs_of(u) and self._scheme(u) is not None
            ]
            kinds = {getattr(inputs_of(u)[node], "dtype", None) for u in readers} - {None}
            if len(kinds) > 1 and _KEY not in node.meta:
                specs = [self._usual(user) for user in readers]
                widest = max(specs, key=lambda spec: int(spec.quant_max))
                node.meta[_KEY] = annotation({}, widest)

    def _tell(self, others: set[fx.Node]) -> None:
        """Let calls and users know what was chosen, but for what is not ours."""
        for node, choice in self._made.items():
            if node not in others:
                node.meta[CHOICE] = choice
                if is_real(node) or choice.reason:
                    self.choices[node.name] = choice

    def _close(self, node: fx.Node, trials: list[Trial], *before: fx.Node) -> set[fx.Node]:
        """Annotate a call with what it fuses, or say why not; what it is done with."""
        norm = norm_of(node) if self.training else None
        rider = self._rider(norm or node)
        rider = None if rider and trials[0].refusal(*before, node, rider) else rider
        refusals = (self._refusal(trial, *before, node) for trial in trials)
        told = None if rider is not None else next(refusals)
        refusal = told if told is None or None not in refusals else None
        if refusal is not None:
            self.refused[node.name] = refusal
            self._made[node] = self._made[node].refused(refusal.reason)
            return set()
        last = rider or norm
        self._annotate(node, None if last is not None else self._spec(node), before)
        if last is not None:
            spec = self._spec(last if last is rider else node)
            last.meta[_KEY] = annotation({}, spec)
            self._remember(last, spec)
        return {n for n in (norm, rider) if n is not None}

    def _refusal(self, trial: Trial, *calls: fx.Node) -> Unsupported | None:
        """Why calls are refused, be their operands as wide as they are or as most are."""
        refusal, call = trial.refusal(*calls), calls[-1]
        if refusal is not None and mark_of(call).carried:
            call.meta[MARK] = replace(mark_of(call), carried=False)
            refusal = trial.refusal(*calls)
        usual = self._usual(call)
        if refusal is None or all(self._read(n, call) is usual for n in call.all_input_nodes):
            return refusal
        self._narrowed.add(call)
        again = trial.refusal(*calls)
        if again is not None:
            self._narrowed.discard(call)
            return refusal
        return None

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to add: what was annotated has been tried."""

    def prepare_obs_or_fq_callback(
        self, model: fx.GraphModule, edge_or_node_to_obs_or_fq: dict[Any, Any]
    ) -> None:
        """Biases are observed together with their layer, values with regard to who reads them."""
        found = edge_or_node_to_obs_or_fq
        share_observers(found)
        tell_readers(model, found, self._curves)
        observe_biases(found, self._scheme)
        if isinstance(self.schemes.io, BoundarySpec):
            self.schemes.io.link(found)

    def _scheme(self, node: fx.Node) -> Scheme | None:
        """What is chosen for a call; what comes into a region is as most is."""
        choice = self._made.get(node) or node.meta.get(CHOICE)
        if choice is None and node.op == "placeholder":
            return integers_of(self.schemes.global_)
        if choice is not None and choice.scheme is not None and self._is_long(node):
            return SCHEMES["a16w8"]
        return None if choice is None else choice.scheme

    def _is_long(self, node: fx.Node) -> bool:
        """Whether a call makes a part of a spectrum, its magnitude, or moves these."""
        return bool(mark_of(node).long) and self.has_int16

    def _usual(self, node: fx.Node) -> Any:
        """How the activations of a call's scheme are observed."""
        scheme = self._scheme(node)
        assert scheme is not None
        return scheme.activation(self.training)

    def _widened(self, node: fx.Node) -> Scheme:
        """The scheme of a call's result, with 16 bits if it asks for them."""
        own = self._scheme(node)
        assert own is not None
        if mark_of(node).carried:
            return SCHEMES["a16w8"]
        wide = mark_of(node).wide or exceeds(node, own.result)
        return wider(own.result, self.target) if wide else own.result

    def _spec(self, node: fx.Node) -> Any:
        """How the result of a call is observed."""
        if self._is_long(node):
            return LONG.activation()
        scheme, limits = self._widened(node), mark_of(node).limits
        if mark_of(node).wide and limits is not None and scheme.is_wide:
            return scheme.fixed(limits)
        if exceeds(node, scheme) and becomes_integers(node):
            return None  # they are whole numbers of int32
        return self._stepped(scheme, self._steps.shown(node))

    def _stepped(self, scheme: Scheme, step: float | None) -> Any:
        """How values of a step are observed; as all others if they have none."""
        return scheme.stepped(step, self.training) if step else scheme.activation(self.training)

    def _read(self, operand: fx.Node, call: fx.Node) -> Any:
        """What a call takes a value as: as it is, if it is of the call's own scheme.

        A value may be wider than its scheme; layers with weights take it so.
        """
        usual, source = self._usual(call), self._scheme(operand)
        if self._is_long(operand) and call not in self._narrowed:
            others = [n for n in call.all_input_nodes if n is not operand and values_of(n) is None]
            is_magnitude = mark_of(operand).long == "magnitude"
            is_function = is_magnitude and is_pointwise(call) and not others
            return LONG.activation() if self._is_long(call) or is_function else usual
        if mark_of(operand).carried and not self._carries(operand, call):
            return usual
        same = source is None or source.result.activation(self.training) is usual
        given = usual
        if same:
            is_seen = operand in self._specs
            given = self._specs[operand] if is_seen else self._unseen(operand, call)
        if given is None:
            return None
        if call in self._narrowed and given.dtype is not usual.dtype:
            return usual
        rule, scheme = RULES.get(torchapi.target_name(call)), self._scheme(call)
        assert scheme is not None
        wide = wider(scheme, self.target).activation(self.training)
        if given.dtype is wide.dtype:
            return given
        if rule is not None and rule.wide:
            bound = torchapi.bound_arguments(call)
            return wide if operand in map(bound.get, rule.wide) else given
        mark = mark_of(call)
        takes = mark.wide and mark.reads and (rule is None or rule.policy != "WEIGHTED")
        return wide if takes else given

    def _unseen(self, operand: fx.Node, call: fx.Node) -> Any:
        """What a call takes a value as that is not observed where it is made: the result of a call
        that stays in float, or a parameter, which is of a step beside values of a step alone."""
        scheme, is_held = self._scheme(call), operand.op == "get_attr"
        assert scheme is not None
        if is_held and self._steps.read_by(call) is None:
            return scheme.activation(self.training)
        scheme = wider(scheme, self.target) if exceeds(operand, scheme) else scheme
        return self._stepped(scheme, self._steps.shown(operand))

    def _carries(self, operand: fx.Node, call: fx.Node) -> bool:
        """Whether a call reads all bits of a running sum."""
        if mark_of(operand).wide and torchapi.target_name(call) in NORMS:
            return True
        return mark_of(call).carried

    def _remember(self, node: fx.Node, spec: Any) -> None:
        """That a value, or all values of a call that gives several, are not as most are."""
        stays = spec is not None or (is_real(node) and self._spec(node) is None)
        if stays and spec is not self._usual(node):
            several = not isinstance(node.meta.get("val"), Tensor)
            self._specs |= dict.fromkeys([node, *(node.users if several else ())], spec)

    def _border(self, node: fx.Node) -> None:
        """Real numbers that enter a branch or a loop, and those that come out."""
        if torchapi.is_scan(node):
            for part, spec in annotate_border(node, self._spec):
                self._remember(part, spec)
        elif self.target is not None and self.target.has_branches:
            inputs = {n: self._read(n, node) for n in node.all_input_nodes if is_real(n)}
            self._results(node, inputs, self._usual(node))

    def _annotate(self, node: fx.Node, output: Any, before: tuple[fx.Node, ...] = ()) -> None:
        """What a call reads and gives; what comes ``before`` it is read as an accumulator."""
        rule = rule_of(torchapi.target_name(node))
        if not operands_of(node, "activation"):
            if node.all_input_nodes:  # masks or indices become real numbers
                self._results(node, {}, output)
            return
        if rule.policy == "SHARED":
            self._shared(node)
        elif rule.policy == "WEIGHTED":
            self._weighted(node, output)
        elif rule.policy in ("FREE", "FIXED"):
            operands = [n for n in operands_of(node, "activation") if n not in before]
            inputs = {n: self._read(n, node) for n in operands}
            if rule.limits is not None and output is not None:
                output = self._widened(node).fixed(rule.limits)
            self._results(node, inputs, output)

    def _results(self, node: fx.Node, inputs: dict[fx.Node, Any], output: Any) -> None:
        """Annotate a call; of several results each real one."""
        several = not isinstance(node.meta.get("val"), Tensor)
        node.meta[_KEY] = annotation(inputs, output if is_real(node) else None)
        for part in node.users if several else ():
            if is_real(part):
                part.meta[_KEY] = annotation({}, output)
        if not isinstance(output, SharedQuantizationSpec):
            self._remember(node, output)

    def _shared(self, node: fx.Node) -> None:
        """All inputs and all results have the parameters of the first input.

        Parameters that limits have fixed are passed on if all inputs have them and nothing else
        comes in; otherwise all are observed together, and such an input is rescaled.
        """
        operands = list(dict.fromkeys(operands_of(node, "activation")))
        each = {n: self._read(n, node) for n in operands}
        given = set(each.values())
        if len(given) > 1 and not is_real(node) and isinstance(node.meta.get("val"), Tensor):
            self._results(node, each, None)  # a comparison takes operands of any scales
            return
        kept = len(given) == 1 and not brings_numbers(node) and self._keeps_step(node, *given)
        (spec,) = given if kept else {self._spec(node)}
        same = SharedQuantizationSpec((operands[0], node))
        inputs = dict.fromkeys(operands, same) | {operands[0]: spec}
        self._results(node, inputs, same)
        self._remember(node, spec)

    def _keeps_step(self, node: fx.Node, spec: Any) -> bool:
        """Whether what a call gives has the step of what it reads, if that has one."""
        step = getattr(spec, "step", None)
        return step is None or not is_real(node) or self._steps.of(node) == step

    def _weighted(self, node: fx.Node, output: Any) -> None:
        source, weight, bias = (operands_of(node, k) for k in ("activation", "weight", "bias"))
        axis, scheme = role_of(node, "weight").axis, self._scheme(node)
        assert scheme is not None
        inputs: dict[fx.Node, Any] = {n: self._read(n, node) for n in source}
        inputs |= dict.fromkeys(weight, scheme.weight(axis, self.training))
        for b in bias:
            repeats = b.meta["val"].numel() // weight[0].meta["val"].shape[axis]
            values = None if self.training else values_of(b)
            inputs[b] = scheme.bias(source[0], weight[0], node, values, repeats)
        node.meta[_KEY] = annotation(inputs, output)
        self._remember(node, output)

    def _rider(self, node: fx.Node) -> fx.Node | None:
        """The activation that alone reads the result and is fused with its accumulator."""
        user = only_user(node)
        if user is None or not is_real(user) or _KEY in user.meta or self._scheme(user) is None:
            return None
        name = torchapi.target_name(node)
        before = name if "batch_norm" not in name else "aten.conv2d.default"
        return user if fuses_activation(before, torchapi.target_name(user)) else None

    def _ends(self, curve: Curve) -> list[Any]:
        """How what comes into a function of one value and its result are observed."""
        read = (self._read(n, c) for c in curve.calls for n in curve.read_by(c))
        return [self._spec(curve.last), *read]

    def _is_bent(self, node: fx.Node) -> bool:
        """Whether a call is of a curve that is of bytes, now that its sources are annotated."""
        curve = self._curves.get(node)
        if curve is None or any(_KEY in call.meta for call in curve.calls):
            return curve is not None
        if takes(curve, self._ends(curve), self._steps):
            return True
        for call in curve.calls:
            del self._curves[call]
        return False

    def _bend(self, node: fx.Node, curve: Curve) -> None:
        inputs = {n: self._read(n, node) for n in curve.read_by(node)}
        output = self._spec(node) if node is curve.last else None
        node.meta[_KEY] = annotation(inputs, output)
        self._remember(node, output)

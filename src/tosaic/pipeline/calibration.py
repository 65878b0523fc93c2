"""Records calibration for every target at once: statistics of all values of a float program.

Targets differ in the calls that they have no form of and take as their parts. Each form of the
program that one of them needs is run over the data, if it has values that no form before it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import checked_examples
from tosaic.front.functionalize import CONTROL
from tosaic.front.imported import Imported
from tosaic.front.registry import RULES
from tosaic.front.roles import is_real, is_weighted
from tosaic.passes.attention_masks import SOFTMAXES
from tosaic.passes.importer import import_model
from tosaic.passes.widen_residuals import outliers
from tosaic.quant.bias_correction import Mean
from tosaic.quant.calibrate import iterable, run_over
from tosaic.quant.calibration import Calibration, row_name
from tosaic.quant.flow import NO_DATA, float_module, given
from tosaic.quant.inputs import Arguments, DataRun, batch_size, read_each
from tosaic.quant.observer import BELOW, BELOW_16, above
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.regions import functions, region_calls
from tosaic.quant.statistics import Statistics
from tosaic.quant.value_names import OUTLINE, name_of
from tosaic.quant.weight_rounding import Together, together
from tosaic.runtime.warn import warn
from tosaic.targets.catalog import known_families, target_of

_SCHEMES = "int8", "a16w8", "a8w4"


def forms(source: Imported, target: str | None = None) -> Iterator[fx.GraphModule]:
    """The program as targets and schemes want it; one more target may be named."""
    known = [name for family in known_families() for name in family.kinds]
    for device in (*known, *([] if target is None else [target])):
        for scheme in _SCHEMES:
            try:
                quantizer = TosaicQuantizer(scheme, target=target_of(device))
            except InvalidInput:
                continue  # the target lacks what the scheme needs
            yield float_module(source, quantizer)


class Recorder(DataRun):
    """Runs a program, and counts in what those of its values are that are not known yet.

    What ``other``, of another size of the program, has seen is added to.
    """

    def __init__(
        self, module: fx.GraphModule, made: Calibration, other: Recorder | None = None
    ) -> None:
        super().__init__(module)
        self.program, self.made = module, made
        self.rows = _rows(module)
        self.values = [n for n in module.graph.nodes if _is_value(n)]
        self.means: dict[str, Mean] = {} if other is None else other.means
        self.together: dict[str, Together | None] = {} if other is None else other.together
        self.inner: dict[str, Recorder] = {
            path: Recorder(function, made, other and other.inner.get(path))
            for call in region_calls(module) for path, function in functions(module, call)
        }  # fmt: skip
        # Names of what no form before has.
        self.new: set[str] = set() if other is None else other.new
        self.found: dict[fx.Node, list[tuple[Statistics, int | None, float]]] = {}
        for node in self.values:
            self._expect(node)

    def _expect(self, node: fx.Node) -> None:
        """Make room for what is not known yet of a value: as it is, and for a softmax."""
        name, axis = name_of(node), self.rows.get(node)
        asked: list[tuple[str, int | None, float]] = [(name, None, 0.0)]
        if axis is not None:
            asked += [(row_name(name, axis, below), axis, below) for below in (BELOW, BELOW_16)]
        for key, row, below in asked:
            if key not in self.made.tensors:
                self.new.add(key)
                self.made.tensors[key] = Statistics()
                self.made.shapes[key] = tuple(torchapi.known_shape(node.meta["val"]) or ())
            if key in self.new:
                self.found.setdefault(node, []).append((self.made.tensors[key], row, below))

    @property
    def is_new(self) -> bool:
        return bool(self.found) or any(inner.is_new for inner in self.inner.values())

    def run_node(self, n: fx.Node) -> Any:
        if is_weighted(n) and n.args[2:]:
            (x, weight, *_), _ = self.fetch_args_kwargs_from_env(n)
            name = name_of(n)
            self.means.setdefault(name, Mean()).see(x, weight)
            if name not in self.together and name not in self.made.layers:
                self.together[name] = together(n, weight.detach())
            if (inputs := self.together.get(name)) is not None:
                inputs.see(x.detach())
        if torchapi.is_region_call(n) and torchapi.target_name(n) in CONTROL:
            return self._region(n)
        result = super().run_node(n)
        for seen, row, below in self.found.get(n, ()):
            values = result.detach().float()
            seen.see(values if row is None or not values.numel() else above(values, row, below))
        return result

    def _region(self, n: fx.Node) -> Any:
        """A branch or a loop; of a branch both functions see the data."""
        args, _ = self.fetch_args_kwargs_from_env(n)
        if torchapi.is_scan(n):
            ((path, _),) = functions(self.program, n)
            return torchapi.SCAN(self.inner[path].run, *args[1:])
        first, second = (self.inner[path] for path, _ in functions(self.program, n))
        if torchapi.target_name(n) == "cond":
            operands = args[3] if len(args) > 3 else ()
            given, otherwise = first.run(*operands), second.run(*operands)
            return given if bool(args[0]) else otherwise
        carried, others = tuple(args[2]), tuple(args[3] if len(args) > 3 else ())
        while bool(first.run(*carried, *others)):
            carried = tuple(second.run(*carried, *others))
        return carried

    def end_input(self, leaves: Sequence[Any]) -> None:
        rows = batch_size(leaves)
        for seen in {id(s): s for found in self.found.values() for s, _, _ in found}.values():
            seen.close(rows)
        for inner in self.inner.values():
            inner.end_input(leaves)

    def finish(self) -> None:
        """Keep what is known of the inputs of layers."""
        for name, mean in self.means.items():
            if mean.total is not None:
                self.made.layers.setdefault(name, mean.rounded())
        for name, inputs in self.together.items():
            if inputs is not None and (spread := inputs.spread()) is not None:
                self.made.spreads[name] = spread
        for inner in self.inner.values():
            inner.finish()


def _is_value(node: fx.Node) -> bool:
    return node.op in ("placeholder", "call_function") and is_real(node)


def _rows(module: fx.GraphModule) -> dict[fx.Node, int]:
    """Values that a softmax reads, be it behind calls that only move them, and its axis."""
    found: dict[fx.Node, int] = {}
    for node in module.graph.nodes:
        if torchapi.target_name(node) not in SOFTMAXES:
            continue
        bound = torchapi.bound_arguments(node)
        left = [bound["self"]]
        while left:
            value = left.pop()
            if value in found or not _is_value(value):
                continue
            found[value] = int(bound["dim"])
            rule = RULES.get(torchapi.target_name(value))
            if rule is not None and rule.policy == "SHARED":
                left += value.all_input_nodes
    return found


def record(
    source: Imported,
    examples: tuple[Any, ...],
    calibration: Iterable[Any] | None,
    target: str | None = None,
) -> tuple[Calibration, list[str]]:
    """What the values of a program are for some data, and what is doubtful about the data."""
    data, examples = given(source, examples, calibration)
    items = None if data is None else list(read_each(iterable(data)))
    made, doubts = Calibration([]), list[str]()
    with torch.no_grad():
        for module in forms(source, target):
            made.program = module.meta[OUTLINE]
            recorder = Recorder(module, made)
            if not recorder.is_new:
                continue
            for leaves in Arguments(module, examples).each([examples]):
                made.outliers |= {name_of(n) for n in outliers(module, leaves)}
            made.count, doubts = run_over(module, examples, items, recorder)
            recorder.finish()
    return made, doubts


def calibrated(
    model: Any,
    example_inputs: tuple[Any, ...],
    calibration: Iterable[Any] | None,
    target: str | None,
    dynamic_shapes: Any,
) -> Calibration:
    """What calibration sees of a model; what is doubtful about the data is warned about."""
    example_inputs = checked_examples(example_inputs)
    source = import_model(model, example_inputs, dynamic_shapes)
    if source.is_quantized:
        raise InvalidInput("the model is quantized already: calibrate the one in float")
    made, doubts = record(source, example_inputs, calibration, target)
    for sentence in doubts if calibration is not None else [NO_DATA, *doubts]:
        warn(sentence)
    return made

"""Layer by layer: how far a compiled model is from the original, and where its range cuts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram

from tosaic.boundary.arguments import first_values, given_values
from tosaic.boundary.graph import take_unsigned
from tosaic.errors import InvalidInput, kind_of
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE
from tosaic.front.examples import in_order
from tosaic.front.hints import CALL
from tosaic.front.precision import CHOICE
from tosaic.front.program import Program, program_of
from tosaic.ir.graph import Quant
from tosaic.lowering.sides import partition
from tosaic.lowering.walk import parameters
from tosaic.passes.importer import import_model
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.histogram import Histogram, Values
from tosaic.quant.inputs import read_each
from tosaic.runtime.printed import Printed, grid
from tosaic.runtime.progress import shown
from tosaic.spec.dtypes import I16, DType
from tosaic.targets.catalog import target_of

_NEAR = 10.0  # decibels above the outputs' ratio within which a fall counts
_LITTLE = 3.0  # a fall of fewer decibels is not worth naming
_MANY = 12  # calls that are named
_EXACT = 100.0  # ratios above this are all the same


@dataclass(frozen=True, slots=True)
class Layer:
    """A value of the program. ``saturation`` is the share of it that lies outside of its range.

    ``values`` are those of the original, where they were asked for. ``reads`` and ``call`` are the
    layers that it is computed from and the exported call that made it, by name; ``bits`` is 8 or
    16, and 0 in float.
    """

    name: str
    op: str
    where: str
    sqnr: float
    max_error: float
    saturation: float
    values: Values | None = None
    reads: tuple[str, ...] = ()
    call: str = ""
    bits: int = 0


@dataclass(frozen=True)
class Comparison(Printed):
    """The layers in the order of the program, then its outputs."""

    layers: tuple[Layer, ...]
    outputs: tuple[Layer, ...]

    @property
    def worst(self) -> Layer | None:
        """The layer that is farthest from the original."""
        return min(self.layers, key=lambda layer: layer.sqnr, default=None)

    @property
    def fall(self) -> Layer | None:
        """The layer at which the ratio falls most, of those near the ratio of the outputs.

        Noise is carried on, so a layer with a low ratio has mostly read it; and a fall that ends
        far above the outputs' ratio is not what they lose.
        """
        least = min((o.sqnr for o in self.outputs), default=math.inf)
        near = [n for n in self.layers if n.reads and n.sqnr <= least + _NEAR]
        found = max(near, key=self.lost, default=None)
        return found if found is not None and self.lost(found) > 0 else None

    def lost(self, layer: Layer) -> float:
        """Decibels between the least ratio that a layer reads and its own."""
        known = {n.name: n.sqnr for n in self.layers}
        before = min((known[name] for name in layer.reads), default=layer.sqnr)
        return min(before, _EXACT) - min(layer.sqnr, _EXACT)

    def together(self, layer: Layer) -> tuple[str, ...]:
        """Calls that need 16 bits together for it to help: what a layer reads, it, its readers.

        8 bits before it have lost what its own 16 would keep, and 8 bits behind it lose it again.
        A layer before it that loses little itself has its noise from those that it reads.
        """
        known = {n.name: n for n in self.layers}
        found, waiting = {n.name for n in self.layers if layer.name in n.reads}, [*layer.reads]
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += known[name].reads if self.lost(known[name]) < _LITTLE else ()
        calls = [n.call for n in self.layers if n.name in found and n.bits == 8 and n.call]
        return tuple(dict.fromkeys([*calls, layer.call])) if calls and layer.call else ()

    def parts(self) -> Iterable[Any]:
        numbers = ["SQNR dB", "max error", "saturated"]
        table = grid("value", "operator", *numbers, "where", numbers=numbers)
        for layer in (*self.layers, *self.outputs):
            table.add_row(
                layer.name, layer.op.removeprefix("aten.").removesuffix(".default"),
                f"{layer.sqnr:.1f}", f"{layer.max_error:.3g}",
                f"{layer.saturation:.1%}" if layer.saturation else "",
                re.sub(r"(^|, )[^,]*[\\/]", r"\1", layer.where),  # a file without its folders
            )  # fmt: skip
        yield table
        fall = self.fall
        if fall is None or self.lost(fall) < _LITTLE:
            if (low := self.worst) is not None:
                yield f"No layer stands out; the lowest is {low.name} at {low.sqnr:.1f} dB."
            return
        before = fall.sqnr + self.lost(fall)
        yield f"The ratio falls at {fall.name}, from {before:.1f} to {fall.sqnr:.1f} dB."
        if calls := self.together(fall):
            does = "has 16 bits, which gain" if fall.bits == 16 else "alone with 16 bits gains"
            yield (
                f"{fall.name} {does} little, since its neighbours round to 8. These "
                f"belong together: {', '.join(calls[:_MANY])}"
                + (f" and {len(calls) - _MANY} more" if len(calls) > _MANY else "")
                + ' (Schemes("int8", nodes=dict.fromkeys([...], "a16w8")), or scheme="auto").'
            )


def compare_models(model: Any, artifact: Any, inputs: Any, histograms: bool = False) -> Comparison:
    """Both on the same inputs; the compiled graphs give every value that they compute."""
    if not isinstance(artifact, Artifact):
        raise InvalidInput(
            f"compare takes the model, then what compile gave of it, not {kind_of(artifact)}"
        )
    sets = list(_sets(model, inputs))
    for number, given in enumerate(sets, 1):
        values = given_values(artifact.program, given, {})  # a sentence for what does not fit
        if any(bool(v.value.isnan().any()) for v in values if isinstance(v.value, Tensor)):
            raise InvalidInput(f"input {number} to compare on has NaN in it: leave it out")
    original, marks = _original(model, artifact, sets[0])
    names = {node.name: node for node in (*original.inputs, *original.calls)}
    target = target_of(artifact.target)
    found = partition(artifact.program, target, expose=True)
    for piece in found.walk():
        take_unsigned(piece, target.env, target.constraints)
    exposed = Artifact(artifact.program, found, artifact.target, made_for=target)
    pairs = _pairs(artifact.program, names)
    if not pairs and artifact.program.calls and _ends(artifact.program) != _ends(original):
        raise InvalidInput("no value of the artifact is one of the model's: it is of another model")
    sums = {node: _Sums() for node, _, _ in pairs}
    seen = {node: Histogram() for node, _, _ in pairs if histograms}
    ends = [_Sums() for _ in artifact.program.outputs]
    ports = artifact.boundary.outputs
    for given in shown(sets, "comparing: input"):
        compiled, reference = exposed.trace(*given), _values(original, given)
        for node, origin, meaning in pairs:
            if node in compiled:
                sums[node].add(reference[origin], compiled[node], meaning)
                if histograms and isinstance(reference[origin], Tensor):
                    seen[node].add(reference[origin])
        for total, ours, theirs, port in zip_longest(
            ends, artifact.program.outputs, original.outputs, ports
        ):
            if isinstance(ours, fx.Node) and isinstance(theirs, fx.Node):
                value = compiled[ours] if port is None else port.dequantize(compiled[ours])
                total.add(reference[theirs], value, None)
    known = {o for n, o, _ in pairs if sums[n].count}
    layers = [
        _layer(o, marks, sums[n], seen[n].values(m) if histograms else None, m, _reads(o, known))
        for n, o, m in pairs if sums[n].count
    ]  # fmt: skip
    named = [(f"output {i}", total) for i, total in enumerate(ends) if total.count]
    outputs = [Layer(name, "", "", *total.figures) for name, total in named]
    return Comparison(tuple(layers), tuple(outputs))


def _ends(program: Program) -> tuple[list[str], list[tuple[int, ...] | None]]:
    """What a program takes and gives: names, and shapes."""
    given = [n.meta.get("val") for n in program.outputs if isinstance(n, fx.Node)]
    shapes = [torchapi.known_shape(v) for v in given if isinstance(v, Tensor)]
    return [n.name for n in program.inputs], shapes


def _sets(model: Any, inputs: Any) -> Iterator[tuple[Any, ...]]:
    """Sets of arguments: in order, by name, or one alone."""
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    if isinstance(inputs, tuple) and not any(isinstance(i, (tuple, list)) for i in inputs):
        yield inputs
        return
    if not isinstance(inputs, Iterable):
        raise InvalidInput(
            f"compare runs an iterable of inputs, such as a list, not {kind_of(inputs)}"
        )
    for item in read_each(inputs, "input"):
        item = in_order(model, item)
        yield tuple(item) if isinstance(item, (tuple, list)) else (item,)


def _original(
    model: Any, artifact: Artifact, example: tuple[Any, ...]
) -> tuple[Program, dict[str, str]]:
    """The original as calls whose names are those of the compiled program.

    Beside it are the names of the exported calls, by the marks that passes keep on what they make.
    """
    source, marks = import_model(model, example), dict[str, str]()
    calls = [n for n in artifact.program.calls if torchapi.target_name(n) == QUANTIZE]
    within = [n for n in calls if n not in artifact.program.results]
    kinds = {parameters(torchapi.bound_arguments(n))[1] for n in within or calls}
    if kinds:
        from tosaic.quant.flow import float_module
        from tosaic.quant.quantizer import TosaicQuantizer
        from tosaic.quant.value_names import mark_calls

        chosen = [n.meta[CHOICE].schemes for n in artifact.program.calls if CHOICE in n.meta]
        scheme = chosen[0] if chosen else "a16w8" if I16 in kinds else "int8"
        assert isinstance(source.model, ExportedProgram)
        exported = torchapi.module_of(source.model)
        mark_calls(exported)
        marks = {n.meta[CALL]: n.name for n in exported.graph.nodes if CALL in n.meta}
        source = source.with_model(
            float_module(source, TosaicQuantizer(scheme, target=target_of(artifact.target)))
        )
    return program_of(source), marks


def _pairs(
    program: Program, names: dict[str, fx.Node]
) -> list[tuple[fx.Node, fx.Node, tuple[Quant, DType] | None]]:
    """Values of the compiled program, what they are in the original, and their parameters."""
    found: list[tuple[fx.Node, fx.Node, tuple[Quant, DType] | None]] = []
    has_quants = any(torchapi.target_name(n) == QUANTIZE for n in program.calls)
    for node in program.calls:
        if torchapi.target_name(node) == QUANTIZE:
            source = node.args[0]
            if isinstance(source, fx.Node) and source.name in names:
                meaning = parameters(torchapi.bound_arguments(node))
                found.append((node, names[source.name], meaning))
        elif not has_quants and node.name in names:
            found.append((node, names[node.name], None))
    return found


def _values(program: Program, given: tuple[Any, ...]) -> dict[fx.Node, Any]:
    states = [first for _, first in program.states]
    values = first_values(program, torchapi.flatten(given)[0], states)
    with torch.no_grad():
        for node in program.calls:
            values[node] = torchapi.evaluate(node, values)
    return values


class _Sums:
    """Energy of the signal and of the error, over all inputs."""

    def __init__(self) -> None:
        self.signal = self.noise = self.largest = 0.0
        self.count = self.outside = 0

    def add(self, real: Any, value: Any, meaning: tuple[Quant, DType] | None) -> None:
        if not isinstance(real, Tensor) or not isinstance(value, Tensor) or not real.numel():
            return
        shift = 128 if value.dtype is torch.uint8 else 0  # what it is int8 for in a graph
        real, value = real.detach().double(), value.double() - shift
        if meaning is not None:
            quant, kind = meaning
            scale, zero = quant.one_scale, quant.one_zero
            value = (value - zero) * scale
            low, high = ((limit - zero) * scale for limit in kind.range)
            outside = (real < low - scale / 2) | (real > high + scale / 2)
            self.outside += int(outside.sum())
        if value.shape != real.shape:
            return
        error = torch.nan_to_num(value - real)
        self.signal += float(torch.nan_to_num(real).square().sum())
        self.noise += float(error.square().sum())
        self.largest = max(self.largest, float(error.abs().max()))
        self.count += real.numel()

    @property
    def figures(self) -> tuple[float, float, float]:
        """Signal-to-noise ratio in decibels, largest error, share outside of the range."""
        if not self.noise:
            return math.inf, 0.0, self.outside / self.count
        ratio = self.signal / self.noise
        decibels = 10 * math.log10(ratio) if ratio else -math.inf
        return decibels, self.largest, self.outside / self.count


def _reads(node: fx.Node, known: set[fx.Node]) -> tuple[str, ...]:
    """The compared values that a value is computed from, through others that are not compared."""
    found, seen, waiting = dict[str, None](), set[fx.Node](), list(node.all_input_nodes)
    while waiting:
        source = waiting.pop()
        if source in known:
            found[source.name] = None
        elif source not in seen:
            seen.add(source)
            waiting += source.all_input_nodes
    return tuple(found)


def _layer(
    node: fx.Node, marks: dict[str, str], sums: _Sums, values: Values | None,
    meaning: tuple[Quant, DType] | None, reads: tuple[str, ...],
) -> Layer:  # fmt: skip
    bits = 0 if meaning is None else 16 if meaning[1] is I16 else 8
    if node.op != "call_function":
        return Layer(node.name, "input", "", *sums.figures, values, bits=bits)
    place, call = torchapi.location(node).place, marks.get(node.meta.get(CALL, ""), "")
    name = torchapi.target_name(node)
    return Layer(node.name, name, place, *sums.figures, values, reads, call, bits)

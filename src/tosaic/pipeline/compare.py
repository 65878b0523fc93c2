"""Layer by layer: how far a compiled model is from the original, and where its range cuts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.arguments import first_values, given_values
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE
from tosaic.front.precision import CHOICE
from tosaic.front.program import Program, program_of
from tosaic.ir.graph import Quant
from tosaic.lowering.graph_boundary import take_unsigned
from tosaic.lowering.sides import partition
from tosaic.lowering.walk import parameters
from tosaic.passes.importer import import_model
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.histogram import Histogram, Values
from tosaic.runtime.printed import Printed, grid
from tosaic.runtime.progress import shown
from tosaic.spec.dtypes import I16, DType
from tosaic.targets.catalog import target_of


@dataclass(frozen=True, slots=True)
class Layer:
    """A value of the program. ``saturation`` is the share of it that lies outside of its range.

    ``values`` are those of the original, where they were asked for.
    """

    name: str
    op: str
    where: str
    sqnr: float
    max_error: float
    saturation: float
    values: Values | None = None


@dataclass(frozen=True)
class Comparison(Printed):
    """The layers in the order of the program, then its outputs."""

    layers: tuple[Layer, ...]
    outputs: tuple[Layer, ...]

    @property
    def worst(self) -> Layer | None:
        """The layer that is farthest from the original."""
        return min(self.layers, key=lambda layer: layer.sqnr, default=None)

    def parts(self) -> Iterable[Any]:
        numbers = ["SQNR dB", "max error", "saturated"]
        table = grid("value", "operator", *numbers, "where", numbers=numbers)
        for layer in (*self.layers, *self.outputs):
            table.add_row(
                layer.name, layer.op, f"{layer.sqnr:.1f}", f"{layer.max_error:.3g}",
                f"{layer.saturation:.1%}" if layer.saturation else "", layer.where,
            )  # fmt: skip
        yield table
        if self.worst is not None:
            yield f"Farthest from the original: {self.worst.name} at {self.worst.sqnr:.1f} dB"


def compare_models(
    model: Any, artifact: Artifact, inputs: Any, histograms: bool = False
) -> Comparison:
    """Both on the same inputs; the compiled graphs give every value that they compute."""
    sets = list(_sets(inputs))
    if not sets:
        raise InvalidInput("there are no inputs to compare on: give at least one tuple")
    for given in sets:
        given_values(artifact.program, given, {})  # a sentence for what does not fit
    original = _original(model, artifact, sets[0])
    names = {node.name: node for node in (*original.inputs, *original.calls)}
    target = target_of(artifact.target)
    found = partition(artifact.program, target, expose=True)
    for piece in found.pieces:
        take_unsigned(piece, target)
    exposed = Artifact(artifact.program, found, artifact.target, made_for=target)
    pairs = _pairs(artifact.program, names)
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
    layers = [
        _layer(o, sums[n], seen[n].values(m) if histograms else None)
        for n, o, m in pairs if sums[n].count
    ]  # fmt: skip
    named = [(f"output {i}", total) for i, total in enumerate(ends) if total.count]
    outputs = [Layer(name, "", "", *total.figures) for name, total in named]
    return Comparison(tuple(layers), tuple(outputs))


def _sets(inputs: Any) -> Iterator[tuple[Any, ...]]:
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    if isinstance(inputs, tuple) and not any(isinstance(i, (tuple, list)) for i in inputs):
        yield inputs
        return
    for item in inputs:
        yield tuple(item) if isinstance(item, (tuple, list)) else (item,)


def _original(model: Any, artifact: Artifact, example: tuple[Any, ...]) -> Program:
    """The original as calls whose names are those of the compiled program."""
    source = import_model(model, example)
    calls = [n for n in artifact.program.calls if torchapi.target_name(n) == QUANTIZE]
    within = [n for n in calls if n not in artifact.program.results]
    kinds = {parameters(torchapi.bound_arguments(n))[1] for n in within or calls}
    if kinds:
        from tosaic.quant.flow import float_module
        from tosaic.quant.quantizer import TosaicQuantizer

        chosen = [n.meta[CHOICE].schemes for n in artifact.program.calls if CHOICE in n.meta]
        scheme = chosen[0] if chosen else "a16w8" if I16 in kinds else "int8"
        source = source.with_model(
            float_module(source, TosaicQuantizer(scheme, target=target_of(artifact.target)))
        )
    return program_of(source)


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


def _layer(node: fx.Node, sums: _Sums, values: Values | None) -> Layer:
    if node.op != "call_function":
        return Layer(node.name, "input", "", *sums.figures, values)
    place = torchapi.location(node).place
    return Layer(node.name, torchapi.target_name(node), place, *sums.figures, values)

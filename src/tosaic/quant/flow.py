"""From a model to a quantized program: export, prepare, calibrate, convert."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.ports import Ends
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.examples import checked_examples
from tosaic.front.imported import Imported
from tosaic.lowering.target import Target
from tosaic.passes.engine import run
from tosaic.passes.importer import import_model
from tosaic.passes.phases import quantization
from tosaic.passes.rnn_loops import read_last
from tosaic.passes.roll_loops import CALLS, roll_loops
from tosaic.passes.widen_residuals import mark_residuals, outliers
from tosaic.quant.boundary import WithEnds
from tosaic.quant.calibrate import calibrate, check_parameters, take
from tosaic.quant.calibration import Calibration
from tosaic.quant.convert import convert
from tosaic.quant.inputs import Arguments, with_tensors
from tosaic.quant.loops import join_ranges, mark_carried, pass_integers
from tosaic.quant.prepare import prepare
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.reach import mark_reach, seen_in
from tosaic.quant.regions import apart, move_constants_in
from tosaic.quant.schemes import Scheme
from tosaic.quant.selection import Schemes, check_names
from tosaic.quant.value_names import OUTLINE, adopt_names, mark_calls, name_of, name_points
from tosaic.runtime.warn import warn

NO_DATA = (
    "no calibration data: ranges come from the example inputs alone; "
    "give some (calibration) for accuracy"
)


def quantize(
    model: Any,
    example_inputs: tuple[Any, ...],
    *,
    scheme: str | Scheme | Schemes = "int8",
    calibration: Iterable[Any] | str | os.PathLike[str] | Calibration | None = None,
    target: Target | None = None,
) -> fx.GraphModule:
    """Quantize a model after training, for a target of integers.

    The result is a PT2E-converted program: it runs in PyTorch with every rounding in place, and
    ``tosaic.compile`` takes it. What no rule can lower in integers stays in float.

    ``model`` is an nn.Module, an ExportedProgram or the path of a ``.pt2`` file; it is left as it
    was, and is quantized in inference mode. ``example_inputs`` is the tuple of arguments to export
    it with. A buffer that the model changes is an argument of the result behind the others, and
    its new value a result behind the others.

    ``scheme`` is ``"int8"`` (activations and weights), ``"a16w8"`` (int16 activations, int8
    weights) or ``"a8w4"`` (int8 activations, int4 weights); ``Schemes`` chooses for each part of a
    model. Weights have a scale for each output channel, or one with ``"int8_per_tensor"`` and so
    on.

    ``calibration`` is any iterable of inputs like those that the network will see, a generator
    included; a few dozen are enough. An input is a tensor or an array, a tuple of arguments, or a
    dict of arguments by name, in any batch size that the exported program runs with. Without it the
    example inputs serve. Data that looks unlike what will come is warned about. It may also be what
    ``tosaic.calibrate`` has made, or the file that this was saved to.

    ``target`` is what it will be compiled for; without it, TOSA with all that the scheme needs.

    InvalidInput says what is wrong with a model, a scheme or data.
    """
    example_inputs = checked_examples(example_inputs)
    if isinstance(scheme, Schemes) and scheme.io is not None:
        raise InvalidInput("types at the boundary (io) are for tosaic.compile, not for quantize")
    source = import_model(model, example_inputs)
    made = quantized(
        source, example_inputs, scheme=scheme, calibration=calibration, target=target
    ).model
    assert isinstance(made, fx.GraphModule)
    return torchapi.written(made)


def quantized(
    source: Imported,
    examples: tuple[Any, ...],
    *,
    scheme: str | Scheme | Schemes,
    calibration: Iterable[Any] | str | os.PathLike[str] | Calibration | None = None,
    target: Target | None = None,
    ends: Ends | None = None,
) -> Imported:
    """The same for a program that is imported already; ``ends`` are types at its boundary."""
    if source.is_quantized:
        raise InvalidInput("the model is quantized already; give it without a scheme")
    quantizer = TosaicQuantizer(scheme, target=target)
    if ends:
        quantizer = WithEnds(scheme, target=target, ends=ends)
    if isinstance(calibration, (str, os.PathLike)):
        calibration = Calibration.load(calibration)
    with torch.no_grad():
        if isinstance(calibration, Calibration):
            made, doubts = _from_stored(source, calibration, quantizer)
        else:
            made, doubts = _from_data(source, examples, calibration, quantizer)
        converted = apart(made, _converted)
        pass_integers(converted)
    if source.changes.count:
        source.remember(converted)
    for sentence in doubts:
        warn(sentence)
    return source.with_model(converted)


def _from_data(
    source: Imported, examples: tuple[Any, ...], calibration: Any, quantizer: TosaicQuantizer
) -> tuple[fx.GraphModule, list[str]]:
    """The program with observers that have seen the data, and what is doubtful about it."""
    data, examples = given(source, examples, calibration)
    module = float_module(source, quantizer)
    for leaves in Arguments(module, examples).each([examples]):
        mark_residuals(module, outliers(module, leaves))
        mark_reach(module, seen_in(module, leaves))
    prepared = apart(module, lambda part: prepare(part, quantizer))
    join_ranges(prepared)
    doubts = calibrate(prepared, examples, data)
    return prepared, doubts if calibration is not None else [NO_DATA, *doubts]


def _from_stored(
    source: Imported, stored: Calibration, quantizer: TosaicQuantizer
) -> tuple[fx.GraphModule, list[str]]:
    """The same from what calibration saw before."""
    module = float_module(source, quantizer)
    if stored.form is None:
        stored.check(module.meta[OUTLINE])
    else:
        adopt_names(module, stored.form)
    mark_residuals(module, [n for n in module.graph.nodes if name_of(n) in stored.outliers])
    known = {n: stored.tensors.get(name_of(n)) for n in module.graph.nodes}
    mark_reach(module, {n: (seen.low, seen.high) for n, seen in known.items() if seen})
    prepared = apart(module, lambda part: prepare(part, quantizer))
    join_ranges(prepared)
    take(prepared, stored)
    return prepared, []


def float_module(source: Imported, quantizer: TosaicQuantizer) -> fx.GraphModule:
    """The program that is observed: refused calls as parts, batch norms in layers with biases."""
    with torch.no_grad():
        module = torchapi.module_of(source.model)
        check_parameters(module)
        move_constants_in(module)
        check_names(module, quantizer.schemes)
        mark_calls(module)
        if quantizer.longest_unrolled:
            roll_loops(module, quantizer.longest_unrolled * CALLS)
        run(module, quantization(quantizer.expand, quantizer.has_int16))
        if read_last(module):
            torchapi.sweep(module.graph)
            module.recompile()
        mark_carried(module)
        name_points(module)
        return module


def _converted(prepared: fx.GraphModule) -> fx.GraphModule:
    """With integers in the place of observers."""
    made = convert(prepared)
    torchapi.drop_unread(made)
    return made


def given(
    source: Imported, examples: tuple[Any, ...], calibration: Iterable[Any] | None
) -> tuple[Iterable[Any] | None, tuple[Any, ...]]:
    """Calibration data and examples as the program takes them."""
    if calibration is None and any(
        isinstance(v, Tensor) and v.device.type == "meta" for v in torchapi.flatten(examples)[0]
    ):
        raise InvalidInput("example inputs on the meta device have no values: give calibration")
    if not source.changes.count:
        return calibration, examples
    data = None if calibration is None else _with_state(source, calibration)
    return data, next(_with_state(source, [examples]))


def _with_state(source: Imported, data: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """Inputs in one flat list, with the state that the inputs before them have left."""
    states = [first.clone() for _, first in source.changes.states]
    module = torchapi.module_of(source.model)
    for item in data:
        arguments = tuple(item) if isinstance(item, (list, tuple)) else (item,)
        flat = [*with_tensors(torchapi.flatten(arguments)[0]), *states]
        yield tuple(flat)
        outputs = module(*flat)
        end = len(outputs) - len(source.changes.written)
        states = list(outputs[end - len(states) : end])

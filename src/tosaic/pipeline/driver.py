"""The pipeline: import, quantize, lower, rewrite, verify, emit. It reads from top to bottom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from torch import Tensor, fx
from torch.export import ExportedProgram

import tosaic.rules  # noqa: F401  (fills the registry)
from tosaic.boundary.graph import drop_unread, lay_out, take_unsigned
from tosaic.boundary.memory_order import example_of
from tosaic.boundary.ports import ends_of, names_of, with_ends
from tosaic.errors import InvalidInput, kind_of
from tosaic.files.text import print_graph
from tosaic.front import torchapi
from tosaic.front.examples import checked_examples
from tosaic.front.imported import Imported
from tosaic.front.program import Program, program_of
from tosaic.ir.verify import verify
from tosaic.lowering.host_placement import on_cheapest_side
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.sides import on_host, partition
from tosaic.lowering.target import Compiled, Target
from tosaic.passes.importer import import_model, with_attention
from tosaic.pipeline import execution, phases
from tosaic.pipeline.accuracy import reference_of
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.definedness import prove_defined
from tosaic.pipeline.emission import Failed, emitted
from tosaic.pipeline.float_check import float_faults
from tosaic.pipeline.float_parts import in_parts, rolled
from tosaic.pipeline.goals import Goal
from tosaic.pipeline.quantization import is_quantized
from tosaic.runtime.phases import ended
from tosaic.runtime.progress import say
from tosaic.runtime.timing import (
    CHECK,
    EMIT,
    IMPORT,
    LOWER,
    PROVE,
    QUANTIZE,
    REWRITE,
    measured,
    phase,
)
from tosaic.targets.catalog import target_of


@measured()
def compile_model(
    model: Any,
    example_inputs: tuple[Any, ...],
    target: str,
    scheme: Any,
    calibration: Any,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    io: Any = None,
    preserve_io_quantization: bool = False,
    accuracy: Goal | None = None,
    budget_s: float | None = None,
    sizes: Iterable[Any] | None = None,
) -> Artifact:
    """The program as TOSA graphs, and PyTorch round them for what no rule takes."""
    phases.check_wanted()
    chosen = replace(target_of(target, options), preserve_io_quantization=preserve_io_quantization)
    if chosen.start is not None:
        chosen.start()
    example_inputs = checked_examples(example_inputs)
    if dynamic_shapes is not None or sizes is not None or isinstance(model, ExportedProgram):
        made = _compile_sizes(
            model, example_inputs, dynamic_shapes, sizes, chosen, scheme, calibration, io, options
        )
        if made is not None:
            return made
    if not isinstance(accuracy, Goal | None):
        raise InvalidInput(f"accuracy is a tosaic.Goal, as Goal(sqnr=30), not {kind_of(accuracy)}")
    seconds: Any = budget_s
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
        raise InvalidInput(f"budget_s is a number of seconds, not {seconds!r}")
    if scheme == "auto":
        from tosaic.pipeline.auto import compile_auto  # which knows this module

        source = import_model(model, example_inputs, dynamic_shapes)
        return compile_auto(
            source, example_inputs, chosen, calibration, accuracy or Goal(), budget_s, options, io
        )
    if accuracy is not None or budget_s is not None:
        raise InvalidInput('accuracy and budget_s are for scheme="auto"')
    seen: list[Any] = []
    if isinstance(calibration, (list, tuple)):
        seen = list(calibration[:1])
    elif isinstance(calibration, Iterable) and not isinstance(calibration, (Tensor, str, dict)):
        calibration = _remembered(calibration, seen)
    source = _imported(model, example_inputs, chosen, scheme, dynamic_shapes)
    program = program_from(source, example_inputs, chosen, scheme, calibration, io)
    examples = [*seen, example_inputs]
    original = None if source.is_quantized else program_of(source)
    return artifact_of(program, chosen, examples, {"scheme": scheme, "io": io, **options}, original)


def _compile_sizes(
    model: Any, example_inputs: tuple[Any, ...], dynamic_shapes: Any, sizes: Iterable[Any] | None,
    chosen: Target, scheme: Any, calibration: Any, io: Any, options: Mapping[str, Any],
) -> Artifact | None:  # fmt: skip
    """One artifact for all sizes that are free; None if none is."""
    from tosaic.pipeline.sizes import sizes_of

    free = sizes_of(model, example_inputs, dynamic_shapes, chosen.env.has("fft") and scheme is None)
    if free is None:
        if sizes is not None:
            raise InvalidInput("sizes are for dynamic_shapes, and no size of this model is free")
        return None
    if scheme == "auto":
        raise InvalidInput('scheme="auto" is for fixed sizes: compile without free ones')
    if chosen.env.has("shape"):
        from tosaic.pipeline.dynamic import compile_dynamic

        return compile_dynamic(free, sizes, chosen, scheme, calibration, io, options)
    from tosaic.pipeline.sized import compile_sizes  # which knows this module

    return compile_sizes(free, sizes, chosen, scheme, calibration, io, options)


def artifact_of(
    program: Program, chosen: Target, examples: Sequence[Any], used: Mapping[str, Any],
    original: Program | None = None,
) -> Artifact:  # fmt: skip
    """What a program compiles to; InvalidInput where nothing of it runs on the target.

    With the ``original`` in float, a quantized one is compared with it on the first example.
    """
    found, delegates, values = compiled(program, chosen, examples)
    if not found.graphs and all(example_of(result) is None for result in program.outputs):
        raise InvalidInput("the model gives no tensor back, so nothing of it can be compiled")
    if chosen.emit is not None and not found.graphs:
        why = f"; the first reason: {found.refused[0]}" if found.refused else ": it has no calls"
        raise InvalidInput(f"nothing of the model runs on {chosen.name}{why}")
    made = Artifact(program, found, chosen.name, delegates, used, chosen)
    if original is not None and chosen.check and is_quantized(program):
        with phase(CHECK):
            made.compare_with(reference_of(original, program, examples), values)
    return made


def _remembered(data: Iterable[Any], first: list[Any]) -> Iterator[Any]:
    """Calibration data, of which the first item is kept once it is read."""
    for item in data:
        if not first:
            first.append(item)
        yield item


def program_for(
    model: Any, example_inputs: tuple[Any, ...], target: Target, scheme: Any, calibration: Any
) -> Program:
    """The model as calls, quantized by a scheme, or where the target has integers alone."""
    example_inputs = checked_examples(example_inputs)
    source = _imported(model, example_inputs, target, scheme, None)
    return program_from(source, example_inputs, target, scheme, calibration)


def _imported(
    model: Any, example_inputs: tuple[Any, ...], target: Target, scheme: Any, dynamic_shapes: Any
) -> Imported:
    say("exporting the model")
    has_fft = target.env.has("fft") and scheme is None
    with phase(IMPORT):
        source = import_model(model, example_inputs, dynamic_shapes, has_fft)
    ended(phases.IMPORT, partial(_printed, source))
    return source


def program_from(
    source: Imported,
    example_inputs: tuple[Any, ...],
    target: Target,
    scheme: Any,
    calibration: Any,
    io: Any = None,
) -> Program:
    """The same for a model that is imported already."""
    program = program_of(source)  # what no target takes is refused before anything is calibrated
    ends = ends_of(program, getattr(scheme, "io", None) if io is None else io)
    source = replace(source, outputs=names_of(program))
    if source.is_quantized:
        if scheme is not None:
            raise InvalidInput("the model is quantized already; give it without a scheme")
    elif scheme is not None and _in_blocks(scheme):
        return _with_block_layers(source, example_inputs, target, scheme, calibration, io)
    elif "INT" in target.env.profiles and (scheme is not None or "FP" not in target.env.profiles):
        say("quantizing")
        from tosaic.quant.flow import quantized  # for those who quantize

        with phase(QUANTIZE):
            source = quantized(
                source, example_inputs, scheme="int8" if scheme is None else scheme,
                calibration=calibration, target=target, ends=ends,
            )  # fmt: skip
        ended(phases.QUANTIZE, partial(_printed, source))
    elif scheme is not None:
        raise InvalidInput(f"{target.name} has floats alone; a scheme needs a target with integers")
    elif ends:
        raise InvalidInput(
            f"integers at the boundary are for quantized models, and {target.name} takes this one "
            "in float: choose a target of integers, or give a quantized model"
        )
    else:
        source = in_parts(with_attention(rolled(source, target)), target, example_inputs)
        ended(phases.DECOMPOSE, partial(_printed, source))
    if source.is_quantized:
        source = on_cheapest_side(with_ends(source, ends), target)
    return program_of(source)


def _in_blocks(scheme: Any) -> bool:
    from tosaic.quant.selection import schemes_of

    return schemes_of(scheme).has_blocks


def _with_block_layers(
    source: Imported, example_inputs: tuple[Any, ...], target: Target, scheme: Any,
    calibration: Any, io: Any,
) -> Program:  # fmt: skip
    """Block-scaled layers first; the rest in float, or in what other schemes say."""
    from tosaic.quant.block_layers import with_block_layers
    from tosaic.quant.selection import schemes_of

    schemes = schemes_of(scheme)
    others = schemes.without_blocks()
    with phase(QUANTIZE):
        source = with_attention(source) if others is None else source
        source = with_block_layers(source, schemes, target)
    return program_from(source, example_inputs, target, others, calibration, io)


def _printed(source: Imported) -> str:
    return str(source.model.graph)


def compiled(
    program: Program, target: Target, examples: Sequence[Any] = ()
) -> tuple[Partition, tuple[Compiled, ...], execution.Values]:
    """The program in pieces, its graphs compiled for the target, and values that are known of it.

    What a target refuses is known beforehand. Should its compiler refuse a graph nevertheless, or
    compile it wrongly, the call that it fails at stays in PyTorch, with the reason. The graphs are
    checked with what the pieces before them make of the first of the ``examples`` that fits.
    """
    kept: dict[str, str] = {}
    while True:
        say("lowering to TOSA")
        with phase(LOWER):
            found = lowered(program, target, kept)
        undefined = next((p for p in found.walk() if p.undefined), None)
        if undefined is not None:
            call = _offender(program, target, kept, found, undefined, examples)
            kept[_kept_name(call, undefined)] = undefined.undefined or ""
            continue
        lower = partial(lowered, program, target)
        with phase(CHECK):
            wrong = float_faults(program, target, found, examples, lower) if target.check else {}
        if wrong:
            kept |= wrong
            continue
        if target.emit is None:
            return found, (), {}
        say(f"compiling for {target.name}")
        with phase(EMIT):
            values = execution.start(program, examples) or {}
            made = emitted(target, found, values)
        if not isinstance(made, Failed):
            return found, made, values
        call = _offender(program, target, kept, found, made.piece, examples)
        kept[_kept_name(call, made.piece)] = made.reason


def _kept_name(call: fx.Node, piece: Piece) -> str:
    """The key of a call that a piece of one side shall not have."""
    return call.name if piece.host is None else on_host(call.name)


def lowered(program: Program, target: Target, kept: Mapping[str, str]) -> Partition:
    """The program in pieces, each graph rewritten, worked round, and verified at the end."""
    found = partition(program, target, kept=kept, has_casts=target.has_casts)
    for piece in found.walk():
        if piece.graph is None:
            continue
        _ended(phases.LOWER, piece, piece.host or target)
        lay_out(piece)
        own = piece.host or target
        with phase(REWRITE):
            piece.graph = own.improve(piece.graph)
        drop_unread(piece)
        take_unsigned(piece, own.env, own.constraints)
        _ended(phases.BOUNDARY, piece, own)
        if own.workarounds is not None:
            own.workarounds(piece.graph)
            _ended(phases.WORKAROUNDS, piece, own)
        with phase(PROVE):
            verify(piece.graph, own.env, own.constraints)
            piece.undefined = prove_defined(piece)
    return found


def _ended(phase: str, piece: Piece, target: Target) -> None:
    assert piece.graph is not None
    check = partial(verify, piece.graph, target.env, target.constraints)
    ended(phase, partial(print_graph, piece.graph), check)


def _offender(
    program: Program, target: Target, kept: Mapping[str, str], found: Partition, piece: Piece,
    examples: Sequence[Any],
) -> fx.Node:  # fmt: skip
    """The first call with which the graph of a piece fails: by halves."""
    others = [c.name for p in found.walk() if p is not piece for c in p.calls]
    low, high = 0, len(piece.calls)  # so many calls compile, and so many do not
    while high - low > 1:
        middle = (low + high) // 2
        left = [*others, *(c.name for c in piece.calls[middle:])]
        left += [on_host(name) for name in left]
        if _fails(program, target, kept, left, examples):
            high = middle
        else:
            low = middle
    return _call_of(piece.calls[low])


def _call_of(node: fx.Node) -> fx.Node:
    """The call that a result belongs to: what picks one of several is none of its own."""
    while torchapi.target_name(node) == "getitem" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _fails(
    program: Program, target: Target, kept: Mapping[str, str], left: Sequence[str],
    examples: Sequence[Any],
) -> bool:  # fmt: skip
    tried = lowered(program, target, {**dict.fromkeys(left, "left out of a trial"), **kept})
    if any(piece.undefined for piece in tried.walk()):
        return True
    return target.emit is not None and isinstance(
        emitted(target, tried, execution.start(program, examples) or {}, mends=False), Failed
    )

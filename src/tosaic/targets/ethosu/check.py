"""Checks that a stream computes its TOSA graph: run on the simulator, beside the interpreter.

Vela 5.2 compiles some forms wrongly, beside others even such as are right alone. So every stream is
compared bit by bit for an input that calibration saw and for random ones. What this finds is a
failure of Vela like any other: the call stays on the CPU, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.errors import ToolFailed, TosaicError
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.lowering.alternatives.mask import Mask
from tosaic.runtime.timing import CHECK, phase
from tosaic.targets.ethosu.dataflow import Misread, check_dataflow
from tosaic.targets.ethosu.delegate import Delegate, compile_graph, origins
from tosaic.targets.ethosu.vela import VelaConfig
from tosaic.targets.ethosu.weight_codec import decoding_ahead

RANDOM = 2  # inputs beside the one that calibration saw
_DRAWN = 8  # inputs in all, where the graph has no result for some
_LEFT_OUT = "nothing was checked of the stream, as check=False asks"


@dataclass(frozen=True, slots=True)
class Fault:
    """A graph that Vela refuses or compiles wrongly, and the operators at fault where known."""

    failure: ToolFailed
    ops: tuple[Op, ...] = ()


def trial(
    graph: Graph, config: VelaConfig, given: Sequence[Array] | None = None, check: bool = True
) -> Delegate | Fault:
    """Compile a graph as it stands and check the stream: the delegate, or what is wrong.

    ``given`` is an input of the graph that calibration saw.
    """
    expected: list[Expected] = []
    try:
        if not check:
            made = compile_graph(graph, config)
            made.checks.append(_LEFT_OUT)
            return made
        made = compile_graph(graph, config, lambda m: expected.append(expected_of(m, graph, given)))
        with phase(CHECK):
            made.checks.extend(check_stream(made, expected[0]))
        if expected[0].seen:
            made.results.extend(expected[0].cases[0][1])
        return made
    except WrongResult as failure:
        return Fault(failure, failure.ops)
    except ToolFailed as failure:
        return Fault(failure)


class WrongResult(ToolFailed):
    """A stream that computes another result than its graph."""

    def __init__(self, reason: str, ops: tuple[Op, ...] = ()) -> None:
        super().__init__(f"Vela compiles the graph wrongly: {reason}")
        self.ops = ops


@dataclass(frozen=True, slots=True)
class Expected:
    """Inputs that a stream is tried with, each with the results that the interpreter gives."""

    cases: tuple[tuple[list[Array], list[Array]], ...]
    seen: int  # of the inputs, by calibration
    refused: str  # why other inputs have no result


def expected_of(model: Model, graph: Graph, given: Sequence[Array] | None = None) -> Expected:
    """Results for what calibration saw and for random inputs, where the graph has some."""
    cases: list[tuple[list[Array], list[Array]]] = []
    seen, refused = 0, ""
    for number, arrays in enumerate(inputs_for(graph, given)):
        if len(cases) - seen == RANDOM:
            break
        try:
            cases.append((arrays, model.run(*arrays)))
        except TosaicError as problem:  # no result, as for an index of nothing
            refused = problem.reason
        else:
            seen += given is not None and number == 0
    return Expected(tuple(cases), seen, refused)


def check_stream(made: Delegate, expected: Expected) -> Iterator[str]:
    """What was checked of a stream, in sentences; WrongResult if it differs from its graph."""
    try:
        ahead = decoding_ahead(made.simulation)
    except TosaicError as problem:  # no stream at all
        raise WrongResult(str(problem)) from None
    with ahead:
        yield _check_dataflow(made)
        for arrays, wanted in expected.cases:
            compare(made, arrays, wanted)
    yield _told(expected)


def _check_dataflow(made: Delegate) -> str:
    commands = origins(made.graph, made.result.database)
    if not commands:
        return "dataflow was not checked: Vela does not say which command is of which operator"
    try:
        if any(c.name == "BRANCH" for c in made.simulation.stream.commands):
            return "dataflow was not checked: which commands run depends on the data"
        check_dataflow(made.graph, made.simulation, commands)
    except Misread as problem:
        raise WrongResult(str(problem), (problem.op,) if problem.op is not None else ()) from None
    except TosaicError as problem:  # no stream at all
        raise WrongResult(str(problem)) from None
    return "dataflow: each command reads what the producers of its operator wrote"


def _told(expected: Expected) -> str:
    count, seen, refused = len(expected.cases), expected.seen, expected.refused
    if not count:
        return f"arithmetic was not checked: the graph has no result for any input tried: {refused}"
    kinds = ((seen, "of calibration"), (count - seen, "random"))
    inputs = [f"{n} {what}" for n, what in kinds if n]
    told = f"arithmetic: the stream equals its TOSA graph bit by bit for {count} "
    told += f"{'input' if count == 1 else 'inputs'} ({', '.join(inputs)})"
    return f"{told}; others have no result: {refused}" if refused else told


def compare(made: Delegate, arrays: Sequence[Array], wanted: Sequence[Array]) -> None:
    try:
        found = made.simulation.run(*arrays)
    except TosaicError as problem:
        raise WrongResult(str(problem)) from None
    if len(found) != len(wanted):
        raise WrongResult(f"it gives {len(found)} of {len(wanted)} results")
    for value, ours, right in zip(made.graph.outputs, found, wanted, strict=True):
        wrong = int(np.count_nonzero(ours.reshape(right.shape) != right.astype(ours.dtype)))
        if wrong:
            op = value.producer
            raise WrongResult(
                f"{wrong} of {right.size} elements of the result '{value.name}', of {op}, are "
                "others than TOSA's",
                (op,) if op is not None else (),
            )


def inputs_for(graph: Graph, given: Sequence[Array] | None) -> Iterator[list[Array]]:
    """What calibration saw, then random inputs: of the whole type, then such as were seen."""
    random = np.random.default_rng(0)
    if given is not None:
        yield list(given)
    for number in range(_DRAWN):
        seen = given if number >= RANDOM and given is not None else [None] * len(graph.inputs)
        yield [_numbers(random, *pair, number) for pair in zip(graph.inputs, seen, strict=True)]


def _numbers(random: np.random.Generator, value: Value, seen: Array | None, number: int) -> Array:
    """All that a type holds, less of it in later draws; 0 and 1 for a mask, small indices."""
    low, high = value.dtype.range
    if isinstance(value.quant, Mask):
        low, high = 0, 1
    elif seen is not None and seen.size:
        low, high = int(seen.min()), int(seen.max())
    elif value.quant is None:
        low, high = 0, 3
    if number > RANDOM:
        low, high = low >> (number - RANDOM), high >> (number - RANDOM)
    made: Array = random.integers(low, high + 1, value.shape).astype(value.dtype.array)
    return made

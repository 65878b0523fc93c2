"""Lowers a program to graphs for a target, and moves calls that its compiler refuses to the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import fx

from tosaic.errors import ToolFailed
from tosaic.front import torchapi
from tosaic.front.program import Program
from tosaic.ir.verify import verify
from tosaic.lowering.graph_boundary import drop_unread, lay_out, take_unsigned
from tosaic.lowering.partition import Partition, Piece, partition
from tosaic.lowering.target import Target
from tosaic.pipeline import execution
from tosaic.pipeline.definedness import prove_defined
from tosaic.pipeline.float_check import float_faults
from tosaic.rewrite import improve
from tosaic.runtime.progress import say


def compiled(
    program: Program, target: Target, examples: Sequence[Any] = ()
) -> tuple[Partition, tuple[Any, ...]]:
    """The program in pieces, and its graphs compiled for the target.

    What a target refuses is known beforehand. Should its compiler refuse a graph nevertheless, or
    compile it wrongly, the call that it fails at stays in PyTorch, with the reason. The graphs are
    checked with what the pieces before them make of the first of the ``examples`` that fits.
    """
    kept: dict[str, str] = {}
    while True:
        say("lowering to TOSA")
        found = lowered(program, target, kept)
        undefined = next((p for p in found.pieces if p.undefined), None)
        if undefined is not None:
            call = _offender(program, target, kept, found, undefined, examples)
            kept[call.name] = undefined.undefined or ""
            continue
        lower = partial(lowered, program, target)
        if target.check and (wrong := float_faults(program, target, found, examples, lower)):
            kept |= wrong
            continue
        if target.emit is None:
            return found, ()
        say(f"compiling for {target.name}")
        made = _emitted(program, target, found, examples)
        if not isinstance(made, _Failed):
            return found, made
        kept[_offender(program, target, kept, found, made.piece, examples).name] = made.reason


@dataclass(frozen=True, slots=True)
class _Failed:
    """A piece whose graph does not compile, or not rightly."""

    piece: Piece
    reason: str


def _emitted(
    program: Program, target: Target, found: Partition, examples: Sequence[Any],
    mends: bool = True,
) -> tuple[Any, ...] | _Failed:  # fmt: skip
    """What the graphs compile to, in order: each checked with what the pieces before it give."""
    assert target.emit is not None
    values, delegates = execution.start(program, examples) or {}, []
    left = len(found.graphs)
    for piece in found.pieces if left else ():
        if piece.graph is None:
            execution.try_call(piece, values)
            continue
        given = execution.try_operands(piece, values)
        try:
            made = target.emit(piece.graph, given, mends)
        except ToolFailed as failure:
            return _Failed(piece, failure.reason)
        piece.checks += made.checks
        delegates.append(made)
        left -= 1
        if not left:
            break
        execution.try_graph(piece, made.model, given, values)
    return tuple(delegates)


def lowered(program: Program, target: Target, kept: Mapping[str, str]) -> Partition:
    """The program in pieces, each graph rewritten and verified."""
    found = partition(
        program, target.env, constraints=target.constraints, kept=kept, has_casts=target.has_casts
    )
    for piece in found.pieces:
        if piece.graph is not None:
            lay_out(piece)
            piece.graph = improve(
                piece.graph, target.env, target.refuses, target.cost, target.judge
            )
            drop_unread(piece)
            take_unsigned(piece, target)
            verify(piece.graph, target.env, target.constraints)
            piece.undefined = prove_defined(piece)
    return found


def _offender(
    program: Program, target: Target, kept: Mapping[str, str], found: Partition, piece: Piece,
    examples: Sequence[Any],
) -> fx.Node:  # fmt: skip
    """The first call with which the graph of a piece fails: by halves."""
    others = [c.name for p in found.pieces if p is not piece for c in p.calls]
    low, high = 0, len(piece.calls)  # so many calls compile, and so many do not
    while high - low > 1:
        middle = (low + high) // 2
        left = [*others, *(c.name for c in piece.calls[middle:])]
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
    if any(piece.undefined for piece in tried.pieces):
        return True
    return target.emit is not None and isinstance(
        _emitted(program, target, tried, examples, mends=False), _Failed
    )

"""Emission: the graphs of a program through the target's compiler, in the order of a run.

Each graph is compiled and checked with the values that the pieces before it give for an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tosaic.errors import ToolFailed, ToolMissing
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.target import Compiled, Target
from tosaic.pipeline import execution


@dataclass(frozen=True, slots=True)
class Failed:
    """A piece whose graph does not compile, or not rightly."""

    piece: Piece
    reason: str


def emitted(
    target: Target, found: Partition, values: execution.Values, mends: bool = True
) -> tuple[Compiled, ...] | Failed:
    """What the graphs compile to, in order: each checked with what the pieces before it give.

    Values that become known on the way are added to those that the program begins with.
    """
    try:
        return tuple(_in_order(target, found.pieces, values, len(found.graphs), mends))
    except _Stopped as stopped:
        return stopped.failed


class _Stopped(Exception):
    """Ends the compilation of graphs at the first that fails."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


def _in_order(
    target: Target, pieces: Sequence[Piece], values: execution.Values, left: int, mends: bool
) -> Iterator[Compiled]:
    """The graphs of pieces compiled; no loop is run, and no graph, for values that nothing needs.

    ``left`` is how many graphs are left, which are checked with these values.
    """
    for piece in pieces:
        if piece.parts:
            if not left:
                return
            first, made = execution.first_step(piece, values), list[Compiled]()
            for each in _in_order(target, piece.parts, first, left, mends):
                made.append(each)
                yield each
            left -= len(made)
            if left:
                models = {id(each.graph): each.model for each in made}
                execution.try_loop(piece, models, values)
            continue
        if piece.graph is None:
            execution.try_call(piece, values)
            continue
        given = execution.try_operands(piece, values)
        try:
            emit = (piece.host or target).emit
            assert emit is not None
            made_now = emit(piece.graph, given, mends)
        except ToolMissing:
            raise
        except ToolFailed as failure:
            raise _Stopped(Failed(piece, failure.reason)) from failure
        piece.checks += made_now.checks
        yield made_now
        left -= 1
        if made_now.results:
            execution.give(piece, made_now.results, values)
        elif left:
            execution.try_graph(piece, made_now.model, given, values)

"""A program as graphs for a target, and the calls that its compiler turns out not to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import fx

from tosaic.errors import ToolFailed
from tosaic.front import torchapi
from tosaic.front.partition import Partition, Piece, partition
from tosaic.front.program import Program
from tosaic.ir.verify import verify
from tosaic.progress import say
from tosaic.rewrite import improve
from tosaic.targets.base import Target
from tosaic.targets.boundary import drop_unread, lay_out, take_unsigned


def compiled(program: Program, target: Target) -> tuple[Partition, tuple[Any, ...]]:
    """The program in pieces, and its graphs compiled for the target.

    What a target refuses is known beforehand. Should its compiler refuse a graph nevertheless,
    the call that it fails at stays in PyTorch, with the compiler's words.
    """
    kept: dict[str, str] = {}
    while True:
        say("lowering to TOSA")
        found = lowered(program, target, kept)
        if target.emit is None:
            return found, ()
        delegates = []
        say(f"compiling for {target.name}")
        for piece in found.pieces:
            made = _attempt(target, piece)
            if isinstance(made, ToolFailed):
                kept[_offender(program, target, kept, found, piece).name] = made.reason
                break
            if made is not None:
                delegates.append(made)
        else:
            return found, tuple(delegates)


def lowered(program: Program, target: Target, kept: Mapping[str, str]) -> Partition:
    """The program in pieces, each graph rewritten and verified."""
    found = partition(
        program, target.env, constraints=target.constraints, kept=kept, has_casts=target.has_casts
    )
    for piece in found.pieces:
        if piece.graph is not None:
            lay_out(piece)
            piece.graph = improve(piece.graph, target.env, target.refuses, target.cost)
            drop_unread(piece)
            take_unsigned(piece, target)
            verify(piece.graph, target.env, target.constraints)
    return found


def _attempt(target: Target, piece: Piece) -> Any:
    """What a piece compiles to, or the failure; None for a piece of PyTorch."""
    if piece.graph is None or target.emit is None:
        return None
    try:
        return target.emit(piece.graph)
    except ToolFailed as failure:
        return failure


def _offender(
    program: Program, target: Target, kept: Mapping[str, str], found: Partition, piece: Piece
) -> fx.Node:
    """The first call with which the graph of a piece fails: by halves."""
    others = [c.name for p in found.pieces if p is not piece for c in p.calls]
    low, high = 0, len(piece.calls)  # so many calls compile, and so many do not
    while high - low > 1:
        middle = (low + high) // 2
        left = [*others, *(c.name for c in piece.calls[middle:])]
        if _fails(program, target, kept, left):
            high = middle
        else:
            low = middle
    return _call_of(piece.calls[low])


def _call_of(node: fx.Node) -> fx.Node:
    """The call that a result belongs to: what picks one of several is none of its own."""
    while torchapi.target_name(node) == "getitem" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def _fails(program: Program, target: Target, kept: Mapping[str, str], left: Sequence[str]) -> bool:
    tried = lowered(program, target, {**dict.fromkeys(left, "left out of a trial"), **kept})
    return any(isinstance(_attempt(target, p), ToolFailed) for p in tried.pieces)

"""Splits a program: between PyTorch and a target, and the processor beside it, if it has one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import fx

from tosaic.front.program import Program
from tosaic.lowering.partition import Partition, Partitioner, Piece, Refusal
from tosaic.lowering.target import Target


def partition(
    program: Program,
    target: Target,
    *,
    expose: bool = False,
    kept: Mapping[str, str] = MappingProxyType({}),
    has_casts: bool = False,
) -> Partition:
    """Split a program into TOSA graphs and what PyTorch runs round them.

    With ``expose`` the graphs give every value that they compute. ``kept`` are calls that PyTorch
    keeps whatever their rules say, by the name of the node, with the reason. With ``has_casts``
    graphs quantize and dequantize themselves what they take and give as real numbers.
    """
    first = Partitioner(program, target, expose, kept, has_casts)
    return first.run() if target.host is None else _shared(first, target.host)


def refusals(program: Program, target: Target) -> list[Refusal]:
    """What a partition would leave to PyTorch, and why, without its graphs."""
    trial = Partitioner(program, target, False, {}, False)
    trial.try_calls()
    return trial.refused if target.host is None else _beside(trial, target.host).refused


def on_host(name: str) -> str:
    """The key under which ``kept`` has a call that the host does not get either."""
    return f"{name} on the host"


def _beside(first: Partitioner, host: Target) -> Partitioner:
    """The calls that a device has refused, tried on its host."""
    first.leave_steps()
    kept = {node.name: "the device runs it" for node in first.accepted}
    kept |= {node.name: first.kept[key] for node in first.program.calls
             if (key := on_host(node.name)) in first.kept}  # fmt: skip
    second = Partitioner(first.program, host, first.expose, kept, first.has_casts)
    second.try_calls()
    own = {node.name for node in first.accepted | first.folded | first.dequantized}
    second.refused = [refusal for refusal in second.refused if refusal.node not in own]
    return second


def _shared(first: Partitioner, host: Target) -> Partition:
    """A program between a device and its host: calls of one level and one side are a graph.

    A call's level counts how often the way to it changes sides, of which there are three with
    PyTorch, so that no group needs another of its level.
    """
    first.try_calls()
    second = _beside(first, host)
    for node in first.program.calls:
        side = _side(node, first, second)
        levels = [0 if side is None else 1]
        for argument in map(first.source, map(second.source, node.all_input_nodes)):
            if argument in first.level and not (side and argument in side.folded):
                levels.append(first.level[argument] + (_side(argument, first, second) is not side))
        first.level[node] = second.level[node] = max(levels)
    placed: list[tuple[int, int, Piece]] = []
    for order, side in enumerate((first, second)):
        side.is_whole = False
        side.find_reads()
        for level, piece in side.placed_pieces():
            if piece.node is None or (order and _side(piece.node, first, second) is None):
                piece.host = host if order else None
                placed.append((level, order if piece.node is None else -1, piece))
    placed.sort(key=lambda row: row[:2])
    pieces = _read([piece for *_, piece in placed], first.program)
    return Partition(pieces, second.refused, first.hosted)


def _side(node: fx.Node, *sides: Partitioner) -> Partitioner | None:
    return next((side for side in sides if node in side.accepted), None)


def _read(pieces: list[Piece], program: Program) -> list[Piece]:
    """The pieces that others or the user read; a call of PyTorch's may have been for the host."""
    read, kept = set(program.results), list[Piece]()
    for piece in reversed(pieces):
        if piece.node is None or piece.node in read:
            read.update(piece.inputs)
            kept.append(piece)
    return kept[::-1]

"""The order of a graph's ports: inputs as the program's arguments, outputs as its results.

Who runs a saved file by position gives and gets tensors as the model does. What PyTorch or another
graph gives or reads comes behind them, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from torch import fx

from tosaic.front.calls import origin
from tosaic.front.program import Program

if TYPE_CHECKING:
    from tosaic.lowering.partition import Piece

T = TypeVar("T")


def order_ports(piece: Piece, program: Program, source: Callable[[fx.Node], fx.Node]) -> None:
    """Sort a piece's ports. ``source`` gives what a result is the dequantized form of."""
    assert piece.graph is not None
    arguments = {node: place for place, node in enumerate(program.inputs)}
    results: dict[fx.Node, int] = {}
    for place, node in enumerate(program.outputs):
        if isinstance(node, fx.Node):
            results.setdefault(node, place)
            results.setdefault(source(node), place)
    order = _sorted([arguments.get(origin(node), len(arguments)) for node in piece.inputs])
    piece.inputs, piece.graph.inputs = _by(order, piece.inputs), _by(order, piece.graph.inputs)
    order = _sorted([results.get(node, len(program.outputs)) for node in piece.outputs])
    piece.outputs, piece.graph.outputs = _by(order, piece.outputs), _by(order, piece.graph.outputs)
    piece.output_quants = _by(order, piece.output_quants)


def _sorted(places: Sequence[int]) -> list[int]:
    return sorted(range(len(places)), key=places.__getitem__)


def _by(order: Sequence[int], items: Sequence[T]) -> list[T]:
    return [items[index] for index in order]

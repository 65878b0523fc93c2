"""Checks lowered float graphs against PyTorch on the example inputs.

Each graph is interpreted with what PyTorch computes before it, and its results are compared with
PyTorch's. Where they differ by more than rounding explains, the values inside are compared as well,
and each call that differs although its operands agree is run alone with PyTorch's own operands. One
that is wrong even so stays in PyTorch. Quantized calls may differ by a step: where they are in the
graph too, only the others are run alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import TosaicError
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.program import Program
from tosaic.interp.model import Model
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.sides import partition
from tosaic.lowering.target import Target
from tosaic.pipeline import execution
from tosaic.pipeline.execution import Values

Lower = Callable[[Mapping[str, str]], Partition]
# Relative to the largest magnitude, well above what sums in another order lose.
_TOLERANCES = {torch.float32: 1e-3, torch.float16: 3e-2, torch.bfloat16: 0.1,
               torch.float8_e4m3fn: 0.125, torch.float8_e5m2: 0.25}  # fmt: skip
_FEW = 0.01  # of the elements may differ: at a jump, where rounding decides
_ROUNDINGS = 1000  # as much as PyTorch's own rounding loses may be lost
_CANDIDATES = 8


def float_faults(
    program: Program, target: Target, found: Partition, examples: Sequence[Any], lower: Lower
) -> dict[str, str]:
    """Calls whose graphs differ from PyTorch, by name, with the reason; notes what was compared."""
    if "FP" not in target.env.profiles:
        return {}
    pieces = [p for p in found.pieces if _is_real(p) and _float_calls(program, p)]
    if not pieces:
        return {}
    values = _eager(program, examples)
    for piece in pieces:
        made = None if values is None else _run(piece, values)
        if values is None or made is None:
            piece.checks.append("the example has no values to compare the graph with PyTorch by")
            continue
        apart = [n for n, ours in made.items() if _differs(ours, values[n])]
        wrong = _at_fault(program, target, piece, values, lower) if apart else {}
        if wrong:
            return wrong
        count = f"{len(made)} result{'s' if len(made) > 1 else ''}"
        piece.checks.append(
            f"{count} of the graph and each call alone, compared with PyTorch on the example"
            if apart
            else f"{count} of the graph compared with PyTorch on the example"
        )
    return {}


def agree(program: Program, other: Program, examples: Sequence[Any]) -> bool:
    """Whether two forms of a program compute the same in PyTorch, as far as examples show it."""
    if any(_is_random(node) for node in program.calls):
        return True
    found = [_eager(p, examples) or {} for p in (program, other)]
    pairs = zip(*([v.get(n) for n in p.outputs] for p, v in zip((program, other), found)))
    return not any(_differs(made, right) for right, made in pairs)


def _is_random(node: fx.Node) -> bool:
    overload = torchapi.overload_of(node)
    return overload is not None and not torchapi.is_repeatable(overload)


def _is_real(piece: Piece) -> bool:
    """Whether a graph computes with real numbers alone."""
    graph = piece.graph
    return graph is not None and all(v.quant is None for v in (*graph.inputs, *graph.outputs))


def _float_calls(program: Program, piece: Piece) -> list[fx.Node]:
    """The calls of a graph that do not lie between quantized operands and a quantized result."""
    after, before = set[fx.Node](), set[fx.Node]()
    for node in program.calls:
        if torchapi.target_name(node) in DEQUANTIZE or not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    for node in reversed(program.calls):
        if torchapi.target_name(node) == QUANTIZE or not before.isdisjoint(node.users):
            before.add(node)
    ends = (QUANTIZE, *DEQUANTIZE)
    others = [n for n in piece.calls if n not in after or n not in before]
    return [n for n in others if torchapi.target_name(n) not in ends]


def _eager(program: Program, examples: Sequence[Any]) -> Values | None:
    """What PyTorch computes of an example, by node; what it refuses is left out."""
    values = execution.start(program, examples)
    if values is None:
        return None
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has seen them, or will
        for node in program.calls:
            if all(n in values for n in node.all_input_nodes):
                with suppress(RuntimeError, ValueError, IndexError, TypeError):
                    values[node] = torchapi.evaluate(node, values)
    return values


def _run(piece: Piece, values: Values) -> Values | None:
    """What a graph makes of PyTorch's values, by node; None where it has no result for them."""
    given = execution.try_operands(piece, values)
    made: Values = {}
    if given is None or piece.graph is None or any(n not in values for n in piece.outputs):
        return None
    execution.try_graph(piece, Model(piece.graph), given, made)
    return made or None


def _differs(ours: Any, right: Any, more: float = 0.0) -> bool:
    """Whether two tensors differ by more than rounding explains."""
    if not isinstance(ours, Tensor) or not isinstance(right, Tensor):
        return False
    if ours.shape != right.shape or ours.dtype != right.dtype:
        return True
    if not right.is_floating_point():
        return int((ours != right).sum()) > _FEW * right.numel()
    tolerance, wide = _TOLERANCES.get(right.dtype, 1e-3), right.detach().double()
    known = wide.isfinite()
    largest = float(wide[known].abs().max()) if bool(known.any()) else 0.0
    bound, error = tolerance * largest + more, (ours.double() - wide).abs()
    return int((known & ~(error <= bound)).sum()) > _FEW * right.numel()


def _at_fault(
    program: Program, target: Target, piece: Piece, values: Values, lower: Lower
) -> dict[str, str]:
    """The first call that is wrong even if it is given PyTorch's own operands."""
    inside, members = dict(values), set(piece.calls)
    for part in partition(program, target, expose=True, has_casts=target.has_casts).pieces:
        made = _run(part, values) if part.graph is not None else None
        inside.update(made or {})
    agree = {n for n, right in values.items() if not _differs(inside.get(n), right)}
    floats = _float_calls(program, piece)
    calls = [n for n in floats if n not in agree and agree.issuperset(n.all_input_nodes)]
    computing = (n for n in program.calls if torchapi.target_name(n) not in DEQUANTIZE)
    others = {n.name: "left out of a trial" for n in computing}
    for node in (calls or floats)[:_CANDIDATES]:
        alone = lower({name: why for name, why in others.items() if name != node.name})
        for part in alone.pieces:
            if part.graph is None or not members.issuperset(part.calls):
                continue
            made = _run(part, values) or {}
            lost = _rounding(node, values)
            if any(_differs(ours, values[n], lost) for n, ours in made.items()):
                name = torchapi.target_name(node)
                return {node.name: f"its lowering gives other numbers than {name} on the example"}
    return {}


def _rounding(node: fx.Node, values: Values) -> float:
    """A bound of what rounding may lose, by results in more bits.

    Those differ from PyTorch's own, and from results of operands that are rounded otherwise: the
    spread of numbers that are nearly equal is all rounding.
    """
    with suppress(RuntimeError, ValueError, IndexError, TypeError, TosaicError), torch.no_grad():
        fine, moved = (
            torchapi.evaluate(node, {n: _wide(values[n], by) for n in node.all_input_nodes
                                     if n in values}) for by in (0.0, 1.0)
        )  # fmt: skip
        right = values[node]
        if isinstance(fine, Tensor) and isinstance(right, Tensor) and fine.is_floating_point():
            lost = torch.maximum((fine - right.double()).abs(), (fine - moved).abs())
            known = lost[lost.isfinite()]
            return _ROUNDINGS * float(known.max()) if known.numel() else 0.0
    return 0.0


def _wide(value: Any, by: float) -> Any:
    """A tensor in more bits, every other element larger by so many roundings."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    wide, step = value.double(), by * torch.finfo(value.dtype).eps
    return wide * (1 + step * (torch.arange(wide.numel()).reshape(wide.shape) % 2))

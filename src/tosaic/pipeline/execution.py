"""Executes the pieces of a program: operands from PyTorch's values, results back to PyTorch.

A graph takes tensors in its own order of axes and its own integers, PyTorch in others; both
engines, and the checks that run while a program is compiled, go through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from tosaic.boundary.arguments import first_values, given_values, narrowed
from tosaic.boundary.memory_order import ordered, restored
from tosaic.boundary.qparams import real_numbers, without_nan
from tosaic.errors import InvalidInput, TosaicError
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE
from tosaic.front.program import Program
from tosaic.interp.kernel import to_numpy, to_torch
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Quant, Unsigned, Value
from tosaic.lowering.alternatives.mask import Mask
from tosaic.lowering.partition import Piece

Values = dict[fx.Node, Any]
_FEW = 16  # steps of a loop whose results a check needs


def operands(piece: Piece, values: Mapping[fx.Node, Any]) -> list[Tensor]:
    """What the graph of a piece is given, of what PyTorch has."""
    assert piece.graph is not None
    ready = [operand(n, values[n], v) for n, v in zip(piece.inputs, piece.graph.inputs)]
    return [ordered(*pair) for pair in zip(ready, piece.input_orders, strict=True)]


def operand(node: fx.Node, value: Any, wanted: Value) -> Tensor:
    """A tensor as a graph takes it; a mask may be int8 there."""
    tensor = narrowed(node.name, value)
    if isinstance(wanted.quant, Unsigned):
        return tensor.view(torch.int8)  # that is how TOSA holds uint8
    return tensor.to(torch.int8) if isinstance(wanted.quant, Mask) else tensor


def give(piece: Piece, arrays: Iterable[Array], values: Values) -> None:
    """The results of a graph as PyTorch has them, by node."""
    assert piece.graph is not None
    given = zip(
        piece.outputs, arrays, piece.graph.outputs, piece.output_orders, piece.output_quants,
        strict=True,
    )  # fmt: skip
    for node, array, out, order, quant in given:
        values[node] = result(node, array, out, order, quant)


def result(
    node: fx.Node, array: Array, out: Value, order: tuple[int, ...] | None, quant: Quant | None
) -> Tensor:
    """What a graph gives, as PyTorch has it."""
    tensor, example = restored(to_torch(array, out.dtype), order), node.meta.get("val")
    if isinstance(out.quant, Unsigned):
        tensor = tensor.view(torch.uint8)
    tensor = dequantized(tensor, quant)
    is_code = quant is None and out.quant is not None
    return tensor.to(example.dtype) if isinstance(example, Tensor) and not is_code else tensor


def dequantized(integers: Tensor, quant: Quant | None) -> Tensor:
    """The real numbers that integers stand for, where they do."""
    return integers if quant is None else real_numbers(integers, quant)


def give_all(piece: Piece, run: Callable[..., list[Array]], runs: Sequence[Values]) -> None:
    """The same for several runs: stacked, where all operands and results have rows."""
    assert piece.graph is not None
    given = [operands(piece, values) for values in runs]
    if len(runs) == 1 or not all(v.shape for v in (*piece.graph.inputs, *piece.graph.outputs)):
        results = [run(*each) for each in given]
    else:
        stacked = run(*(torch.cat(some) for some in zip(*given)))
        results = list(zip(*(np.split(array, len(runs)) for array in stacked)))
    for arrays, values in zip(results, runs, strict=True):
        give(piece, arrays, values)


def call(piece: Piece, values: Values) -> None:
    """Run a piece of PyTorch; what it quantizes is a number."""
    assert piece.node is not None
    source = piece.node.args[0] if torchapi.target_name(piece.node) == QUANTIZE else None
    known = values
    if isinstance(source, fx.Node):
        known = {**values, source: without_nan(values[source])}
    values[piece.node] = torchapi.evaluate(piece.node, known)


def start(program: Program, examples: Iterable[Any]) -> Values | None:
    """What a run on the first example that fits begins with; None if no example has values."""
    for item in examples:
        for arguments in _readings(program, item):
            if any(isinstance(v, Tensor) and v.is_meta for v in torchapi.flatten(arguments)[0]):
                continue
            try:
                leaves = [leaf.value for leaf in given_values(program, arguments, {})]
            except InvalidInput:
                continue
            return first_values(program, leaves, [first for _, first in program.states])
    return None


def _readings(program: Program, item: Any) -> Iterable[tuple[Any, ...]]:
    """An example as arguments: in order, by name, or as the only one; a batch as its first."""
    forms: list[tuple[Any, ...]] = [(item,)]
    if isinstance(item, (tuple, list)):
        forms.insert(0, tuple(item))
    elif isinstance(item, Mapping):
        names = [node.name for node in program.arguments]
        if all(name in item for name in names):
            forms.insert(0, tuple(item[name] for name in names))
    yield from forms
    for form in forms:
        yield tuple(_cut(value, program) for value in form)


def _cut(value: Any, program: Program) -> Any:
    """The first of a batch, where an argument of the program has such rows."""
    for node in program.arguments:
        example = node.meta.get("val")
        if isinstance(example, Tensor) and hasattr(value, "shape") and example.dim():
            count, *rest = example.shape
            if tuple(value.shape[1:]) == tuple(rest) and len(value) > count:
                return value[:count]
    return value


def try_call(piece: Piece, values: Values) -> None:
    """Run a piece of PyTorch where its operands are known and it takes them."""
    if any(node not in values for node in piece.inputs):
        return
    with suppress(TosaicError, RuntimeError, ValueError, IndexError, TypeError), torch.no_grad():
        call(piece, values)


def try_operands(piece: Piece, values: Values) -> list[Array] | None:
    """What the graph of a piece is given; None where that is not known."""
    if piece.graph is None or any(node not in values for node in piece.inputs):
        return None
    try:
        given = zip(operands(piece, values), piece.graph.inputs, strict=True)
        return [to_numpy(tensor.contiguous(), port.dtype) for tensor, port in given]
    except TosaicError:
        return None


def try_graph(piece: Piece, model: Model, given: list[Array] | None, values: Values) -> None:
    """Run a graph where its operands are known and it has a result for them."""
    if given is not None:
        with suppress(TosaicError):
            give(piece, model.run(*given), values)


Runner = Callable[[Piece, list[Tensor]], Iterable[Array]]


def loop(piece: Piece, run: Runner, values: Values, most: int = 0) -> None:
    """Run a loop: its step as often as it counts, each graph of it by ``run``.

    With ``most`` the results of so many steps stand for those of all others.
    """
    step = piece.step
    assert piece.node is not None
    assert step is not None

    seen: list[list[Tensor]] = []

    def once(*given: Tensor) -> list[Tensor]:
        if 0 < most <= len(seen):
            return seen[-1]
        inner: Values = {**step.tensors, **dict(zip(step.inputs, given, strict=True))}
        for part in piece.parts:
            one(part, run, inner)
        results = [inner[n] for n in step.outputs]
        if most:
            seen.append(results)
        return results

    made = torchapi.SCAN(once, *fx.map_arg(piece.node.args[1:], lambda n: values[n]))
    for item in piece.outputs:
        values[item] = made[int(str(item.args[1]))]


def one(piece: Piece, run: Runner, values: Values) -> None:
    """Run one piece, each graph of it by ``run``."""
    if piece.parts:
        loop(piece, run, values)
    elif piece.graph is None:
        call(piece, values)
    else:
        give(piece, run(piece, operands(piece, values)), values)


def first_step(piece: Piece, values: Values) -> Values:
    """What the first step of a loop begins with, as far as that is known."""
    assert piece.node is not None
    assert piece.step is not None
    call = torchapi.scan_of(piece.node)
    shown = [values.get(n) for n in call.carried]
    for line, axis in call.lines:
        x, places = values.get(line), call.block or 1
        if x is not None:
            x = x.narrow(axis, call.order[0] * places, places)
        shown.append(x if x is None or call.block else x.squeeze(axis))
    shown += [values.get(n) for n in call.read]
    found = {n: v for n, v in zip(piece.step.inputs, shown, strict=True) if v is not None}
    return {**piece.step.tensors, **found}


def try_loop(piece: Piece, models: Mapping[int, Model], values: Values) -> None:
    """Run a loop by the interpreter where its operands are known and it has a result for them."""
    if all(node in values for node in piece.inputs):
        with suppress(TosaicError), torch.no_grad():
            loop(piece, lambda part, given: models[id(part.graph)].run(*given), values, _FEW)

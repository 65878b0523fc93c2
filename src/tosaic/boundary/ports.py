"""Changes the types of inputs and outputs of a quantized program to those that a user asks for.

Such a program takes and gives real numbers; its first calls quantize and its last dequantize.
With integers instead, an input is dequantized and an output quantized, and where the program does
the opposite right there, both calls fall away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.qparams import QParams, input_qparams, qparams_of
from tosaic.boundary.types import IO, Leaf, requested
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE, label, origin
from tosaic.front.imported import Imported
from tosaic.front.program import Program

_TO_FLOAT = {"aten.to.dtype", "aten._to_copy.default"}


def qparams_at(program: Program, node: Any) -> QParams | None:
    """The same for an input or an output, which the program quantizes last or gives as it came."""
    is_given = isinstance(node, fx.Node) and node.op == "placeholder"
    return input_qparams(program, node) if is_given else _quantized(node)


@dataclass(frozen=True, slots=True)
class Ends:
    """The type that is asked for of each input and each output; None where it stays as it is."""

    inputs: tuple[IO | None, ...]
    outputs: tuple[IO | None, ...]

    def __bool__(self) -> bool:
        return any(end is not None for end in (*self.inputs, *self.outputs))


def ends_of(program: Program, io: Any) -> Ends:
    """What ``io`` asks of a program's arguments and results; InvalidInput if it has no such."""
    taken = [_leaf(label(n), n) for n in program.arguments]
    for position in program.written:
        taken[position] = replace(taken[position], fixed="the model writes to it")
    own = program.outputs[: len(program.outputs) - program.changes]
    given = [_leaf(name, n) for name, n in zip(names_of(program), own)]
    inputs, outputs = requested(io, taken, given)
    return Ends(tuple(inputs), tuple(outputs))


def with_ends(source: Imported, ends: Ends) -> Imported:
    """A quantized program with other types of inputs and outputs.

    An input that the model itself takes as uint8, and makes floats of, is uint8 with a scale of 1.
    """
    model = source.model
    if not ends and not any(_casts(n) for n in model.graph.nodes if n.op == "placeholder"):
        return source
    return source.with_model(_Ports(torchapi.module_of(model), source).apply(ends))


def _is_check(call: fx.Node) -> bool:
    """Whether a call only checks the type of a tensor, as export has it."""
    return torchapi.target_name(call) == "aten._assert_tensor_metadata.default"


def _casts(node: fx.Node) -> list[fx.Node]:
    """The calls that make float32 of an input of uint8, if nothing else is computed with it."""
    example = node.meta.get("val")
    calls = [user for user in node.users if user.op != "output" and not _is_check(user)]
    if not isinstance(example, Tensor) or example.dtype is not torch.uint8:
        return []
    is_cast = (
        torchapi.target_name(call) in _TO_FLOAT
        and torchapi.bound_arguments(call).get("dtype") is torch.float32
        for call in calls
    )
    return calls if all(is_cast) else []


class _Ports:
    def __init__(self, module: fx.GraphModule, source: Imported) -> None:
        self.module, self.graph = module, module.graph
        self.end = module.graph.output_node()
        self.inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.outputs, self.spec = torchapi.flatten(self.end.args[0])
        self.names, self.made = source.outputs, set[fx.Node]()

    def apply(self, ends: Ends) -> fx.GraphModule:
        for node, io in zip(self.inputs, ends.inputs):
            for cast in _casts(node):
                self._read(node, cast)
            if io is not None:
                self._take(node, io)
        for index, io in enumerate(ends.outputs):
            if io is not None:
                self.outputs[index] = self._give(index, io)
        self.end.args = (torchapi.unflatten(self.outputs, self.spec),)
        for node in reversed(self.graph.nodes):
            if (
                not node.users
                and (_quantized(node) or _dequantized(node))
                and node not in self.made
            ):
                self.graph.erase_node(node)
        self.module.recompile()
        return self.module

    def _read(self, node: fx.Node, cast: fx.Node) -> None:
        """Bytes as the whole numbers that they are."""
        qparams = QParams(1.0, low=0, high=255, dtype=torch.uint8)
        with self.graph.inserting_before(cast):
            real = self._call(torch.ops.quantized_decomposed.dequantize_per_tensor, node, qparams)
        real.meta = dict(cast.meta)
        cast.replace_all_uses_with(real)
        self.outputs = [real if output is cast else output for output in self.outputs]
        for call in (cast, *filter(_is_check, list(node.users))):
            self.graph.erase_node(call)

    def _take(self, node: fx.Node, io: IO) -> None:
        """Let an input be integers; calls that quantize it to just these fall away."""
        readers = list(node.users)
        found = [m for reader in readers if (m := _quantized(reader)) is not None]
        qparams = _qparams_for(f"input {label(node)}", found, io)
        example = node.meta["val"]
        with self.graph.inserting_after(node):
            real = self._call(torch.ops.quantized_decomposed.dequantize_per_tensor, node, qparams)
        real.meta = dict(node.meta)
        node.replace_all_uses_with(real, delete_user_cb=lambda user: user is not real)
        node.meta = {**node.meta, "val": example.to(qparams.dtype)}
        self.outputs = [real if output is node else output for output in self.outputs]
        for reader in readers:
            if _quantized(reader) == qparams:
                reader.replace_all_uses_with(node)
                self.outputs = [node if output is reader else output for output in self.outputs]
                self.graph.erase_node(reader)

    def _give(self, index: int, io: IO) -> fx.Node:
        """An output as integers: those that the program has dequantized last, or new ones."""
        node = _first(self.outputs[index])
        given = _dequantized(node)
        qparams = _qparams_for(f"output {self.names[index]}", [given] if given else [], io)
        if given == qparams and isinstance(node.args[0], fx.Node):
            return node.args[0]
        with self.graph.inserting_before(self.end):
            made = self._call(torch.ops.quantized_decomposed.quantize_per_tensor, node, qparams)
        example = node.meta.get("val")
        if isinstance(example, Tensor):
            made.meta["val"] = example.to(qparams.dtype)
        return made

    def _call(self, packet: Any, node: fx.Node, qparams: QParams) -> fx.Node:
        m = qparams
        made = self.graph.call_function(
            packet.default, (node, m.scale, m.zero_point, m.low, m.high, m.dtype)
        )
        self.made.add(made)
        return made


def names_of(program: Program) -> tuple[str, ...]:
    """Of each output: its key where the result is a dict, else the call it comes from; unique."""
    if program.names:
        return program.names  # from before it was quantized
    own = program.outputs[: len(program.outputs) - program.changes]
    keys, found = [] if program.out_spec is None else list(_keys(program.out_spec, "")), list[str]()
    for index, node in enumerate(own):
        name = keys[index] if index < len(keys) else ""
        name = name or (label(origin(node)) if isinstance(node, fx.Node) else f"output_{index}")
        found.append(name if name not in found else f"{name}_{index}")
    return tuple(found)


def _keys(spec: Any, prefix: str) -> Iterator[str]:
    """For each leaf of a structure the keys that lead to it; "" without a dict on the way."""
    children = spec.children()
    if spec.is_leaf():
        yield prefix
    names = torchapi.keys_of(spec)
    for number, child in enumerate(children):
        key = names[number] if names else number if prefix else ""
        yield from _keys(child, f"{prefix}_{key}" if prefix else str(key))


def _quantized(call: Any) -> QParams | None:
    is_call = isinstance(call, fx.Node) and torchapi.target_name(call) == QUANTIZE
    return qparams_of(call) if is_call else None


def _dequantized(node: Any) -> QParams | None:
    is_call = isinstance(node, fx.Node) and torchapi.target_name(node) in DEQUANTIZE
    return qparams_of(node) if is_call else None


def _first(node: Any) -> Any:
    """The same real numbers without quantizing them again to steps that they are."""
    given = _dequantized(node)
    before = node.args[0].args[0] if given is not None and _quantized(node.args[0]) else None
    first = _dequantized(before)
    if given is None or first is None or not given.means(first):
        return node
    return _first(before)


def _leaf(name: str, node: Any) -> Leaf:
    """A tensor at the boundary; only one of real numbers has a type that can be chosen."""
    source = origin(node) if isinstance(node, fx.Node) else None
    example = source.meta.get("val") if source is not None else None
    if not isinstance(example, Tensor):
        return Leaf(name, fixed="it is no tensor")
    if example.dtype is torch.float32:
        return Leaf(name)
    kind = str(example.dtype).removeprefix("torch.")
    return Leaf(name, kind, f"it is {kind} in the model, and only float32 is quantized")


def _qparams_for(what: str, found: list[QParams], io: IO) -> QParams:
    """The parameters in the wanted type: as given, or after the widest range there is."""
    if not found and io.scale is None:
        raise InvalidInput(
            f"{what} is not quantized in the program, so {io.dtype} has no scale for it: give one "
            f'as tosaic.IO("{io.dtype}", scale=..., zero_point=...), or "float"'
        )
    some = found or [QParams(1.0, low=-128, high=127, dtype=torch.int8)]
    widest = max(some, key=lambda qparams: qparams.ends[1] - qparams.ends[0])
    return widest.become(io)

"""The CPU part of a program: the ATen calls that stay, and one call for each delegate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from tosaic.boundary.memory_order import FORMATS, order_of, ordered, restored
from tosaic.boundary.qparams import real_numbers
from tosaic.errors import Unsupported
from tosaic.executorch.delegates import torch_type
from tosaic.front import torchapi
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.mask import Mask
from tosaic.lowering.partition import Piece
from tosaic.pipeline.artifact import Artifact

STATE = "state_"  # how the names of tensors that the program changes begin


class Outer(nn.Module):
    """Takes the leaves of the program's inputs, however they are nested; gives its outputs."""

    def __init__(self, body: fx.GraphModule, out_spec: Any) -> None:
        super().__init__()
        self.body, self.out_spec = body, out_spec

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs, _ = torchapi.flatten((args, kwargs))
        flat = self.body(*inputs)
        return flat if self.out_spec is None else torchapi.unflatten(flat, self.out_spec)


def outer_module(artifact: Artifact, delegates: Mapping[int, Any]) -> Outer:
    """The remainder and the calls of delegates, ExecuTorch's lowered modules by piece."""
    spec = artifact.program.out_spec
    body = _Assembly(artifact).run(delegates)
    return Outer(body, spec if spec is not None and torchapi.is_written_as_text(spec) else None)


def example_inputs(artifact: Artifact) -> tuple[Any, ...]:
    """Stand-ins for the inputs, with their sizes, types and order in memory."""
    return tuple(_stand_in(node) for node in artifact.program.arguments)


def _stand_in(node: fx.Node) -> Any:
    example = node.meta.get("val")
    if not isinstance(example, Tensor):
        return example
    shape = torchapi.known_shape(example)
    if shape is None:
        raise Unsupported(f"the input {node.name} has no fixed sizes, and a delegate needs them")
    made = torch.zeros(shape, dtype=example.dtype)
    order = order_of(node)
    return restored(ordered(made, order).contiguous(), order)


class _Assembly:
    def __init__(self, artifact: Artifact) -> None:
        self.program, self.pieces = artifact.program, artifact.partition.pieces
        self.graph, self.root = fx.Graph(), nn.Module()
        self.tensors = dict(self.program.tensors)
        self.names: dict[int, str] = {}  # of the delegates
        self.made: dict[fx.Node, fx.Node] = {}
        self.reordered: set[fx.Node] = set()  # by views, or made of such

    def run(self, delegates: Mapping[int, Any]) -> fx.GraphModule:
        program = self.program
        for node in program.arguments:
            self.made[node] = self.graph.placeholder(node.name)
        states = zip(program.inputs[len(program.arguments) :], program.states)
        for number, (node, (name, first)) in enumerate(states):
            plain = name.replace(".", "_")
            self.made[node] = self._held(first, f"{STATE}{number}_{plain}")
        for piece in self.pieces:
            self._piece(piece, delegates)
        outputs = [self._known(o) if isinstance(o, fx.Node) else o for o in program.outputs]
        own = len(outputs) - program.changes
        changed = program.inputs[len(program.arguments) :]
        changed += [program.arguments[position] for position in program.written]
        for node, value in zip(changed, outputs[own:]):
            self._apply(torch.ops.aten.copy_.default, self.made[node], value)
        self.graph.output(outputs[:own])
        return fx.GraphModule(self.root, self.graph)

    def _piece(self, piece: Piece, delegates: Mapping[int, Any]) -> None:
        if piece.parts:
            self._loop(piece, delegates)
        elif piece.node is not None:
            self._call(piece.node)
        else:
            self._delegate(piece, delegates[id(piece)])

    def _loop(self, piece: Piece, delegates: Mapping[int, Any]) -> None:
        """The calls of all steps; the delegates are the same ones."""
        step = piece.step
        assert piece.node is not None
        assert step is not None
        call = torchapi.scan_of(piece.node)
        self.tensors.update(step.tensors)

        def once(*given: Any) -> list[Any]:
            self.made.update(zip(step.inputs, given, strict=True))
            for part in piece.parts:
                self._piece(part, delegates)
            return [self._known(n) for n in step.outputs]

        state, xs, read = (
            [self._known(n) for n in group] for group in (call.carried, call.xs, call.read)
        )
        lines: list[list[Any]] = []
        for index in call.order:
            elements = [self._element(x, axis, call, index) for x, axis in zip(xs, call.axes)]
            results = once(*state, *elements, *read)
            state = results[: len(state)]
            lines.append(results[len(state) :])
        kinds = [list(kind) for kind in zip(*(reversed(lines) if call.back else lines))]
        for item in piece.outputs:
            place = int(str(item.args[1]))
            line = kinds[place - len(state)] if place >= len(state) else []
            join = torch.ops.aten.cat.default if call.block else torch.ops.aten.stack.default
            self.made[item] = self._apply(join, line, call.axis_of(place)) if line else state[place]

    def _element(self, x: fx.Node, axis: int, call: torchapi.ScanCall, index: int) -> fx.Node:
        if not call.block:
            return self._apply(torch.ops.aten.select.int, x, axis, index)
        ends = index * call.block, (index + 1) * call.block
        return self._apply(torch.ops.aten.slice.Tensor, x, axis, *ends)

    def _known(self, node: fx.Node) -> fx.Node:
        """A value of the program; a tensor of its own is brought in when it is first read."""
        if node not in self.made:
            region = self.program.regions.get(node)
            if region is not None:
                self.root.add_module(node.name, region)
                self.made[node] = self.graph.get_attr(node.name)
            else:
                number = len(list(self.root.buffers(recurse=False)))
                self.made[node] = self._held(self.tensors[node], f"constant_{number}")
        return self.made[node]

    def _held(self, tensor: Tensor, name: str) -> fx.Node:
        self.root.register_buffer(name, tensor.detach())
        return self.graph.get_attr(name)

    def _call(self, node: fx.Node) -> None:
        """A call as it is; what it writes to is a copy, and its result."""
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._known)
        for position in torchapi.written_positions(node):
            copied = self._apply(torch.ops.aten.clone.default, args[position])
            args = (*args[:position], copied, *args[position + 1 :])
        assert callable(node.target)
        sources = node.all_input_nodes
        if self.reordered & {*sources} or (sources and order_of(node) != order_of(sources[0])):
            self.reordered.add(node)
        self.made[node] = self.graph.call_function(node.target, args, kwargs)

    def _delegate(self, piece: Piece, delegate: Any) -> None:
        from executorch.exir.delegate import executorch_call_delegate

        assert piece.graph is not None
        name = self.names.setdefault(id(delegate), f"delegate_{len(self.names)}")
        self.root.add_module(name, delegate)
        ready = [
            self._apply(_dense, self._known(node), torch_type(value), order, node in self.reordered)
            for node, value, order in zip(
                piece.inputs, piece.graph.inputs, piece.input_orders, strict=True
            )
        ]
        call = self.graph.call_function(
            executorch_call_delegate, (self.graph.get_attr(name), *ready)
        )
        given = zip(piece.outputs, piece.graph.outputs, piece.output_quants, strict=True)
        for position, (node, value, quant) in enumerate(given):
            part = self._apply(operator.getitem, call, position)
            if quant is not None and not isinstance(quant, Mask):
                what = quant.scale, quant.zero_point, quant.axis  # fx writes these down
                part = self._apply(_real, part, *what)
            self.made[node] = self._apply(_typed, part, _type_of(node, value, quant))

    def _apply(self, function: Callable[..., Any], *args: Any) -> fx.Node:
        return self.graph.call_function(function, args)


def _dense(
    tensor: Tensor, dtype: torch.dtype, order: tuple[int, ...] | None, is_reordered: bool
) -> Tensor:
    """A tensor as a delegate takes it: its bytes are copied as they lie in memory.

    ExecuTorch makes copies of views, which lie in PyTorch's own order whatever the view's was.
    """
    tensor = _typed(tensor, dtype)
    if is_reordered:
        tensor = tensor.contiguous()
    if ordered(tensor, order).is_contiguous():
        return tensor
    form = torch.contiguous_format if order is None else FORMATS.get(tensor.dim())
    if form is None:
        raise Unsupported("ExecuTorch has no call that gives a tensor of three axes another order")
    return tensor.clone(memory_format=form)


def _real(tensor: Tensor, *what: Any) -> Tensor:
    return real_numbers(tensor, Quant(*what))


def _typed(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor if tensor.dtype is dtype else tensor.to(dtype)


def _type_of(node: fx.Node, value: Value, quant: Quant | None) -> torch.dtype:
    """The type that PyTorch expects of a result: TOSA's indices have 32 bits, PyTorch's 64."""
    example = node.meta.get("val")
    is_code = quant is None and isinstance(value.quant, Quant)
    return torch_type(value) if is_code or not isinstance(example, Tensor) else example.dtype

"""Programs that ExecuTorch's compiler has nothing to do for: delegates, integers round them.

What is delegated whole leaves quantize and dequantize calls, lookups of tables, and tensors of 64
bits that the delegate has 32 of; out variants of these are all that the runtime needs. For these
ExecuTorch, which takes longer to load than most networks take to compile, is not asked; for
everything else it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.memory_order import order_of
from tosaic.executorch.delegates import Blob, torch_type
from tosaic.executorch.memory import TYPES
from tosaic.executorch.programfile import (
    Call,
    DelegateData,
    Jump,
    Method,
    Numbers,
    TensorValue,
    Value,
)
from tosaic.front import torchapi
from tosaic.lowering.partition import Piece
from tosaic.pipeline.artifact import Artifact

_CODES = {dtype: code for code, dtype in TYPES.items()}
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
_CONVERT = ("dim_order_ops::_to_dim_order_copy", "out")
_COPY, _SELECT = ("aten::copy_", ""), ("aten::select_copy", "int_out")
_PERMUTE = ("aten::permute_copy", "out")
_LOOKUPS = ("aten.embedding.default", "aten.index_select.default")
_LITERALS = "scale", "zero_point", "quant_min", "quant_max", "dtype"


class NotPlain(Exception):
    """Something that ExecuTorch's own compiler is needed for."""


def plain_method(
    artifact: Artifact, blobs: Mapping[int, Blob], specs: Sequence[tuple[str, bytes]],
    name: str = "forward",
) -> Method:  # fmt: skip
    """The program round the delegates as ExecuTorch's runtime takes it, or NotPlain."""
    return _Plain(artifact, blobs, tuple(specs)).method(name)


class _Plain:
    def __init__(
        self, artifact: Artifact, blobs: Mapping[int, Blob], specs: tuple[tuple[str, bytes], ...]
    ) -> None:
        self.program, self.pieces = artifact.program, artifact.partition.pieces
        self.tensors = dict(self.program.tensors)
        self.blobs, self.specs = blobs, specs
        self.values: list[Value] = []
        self.made: dict[fx.Node, int] = {}
        self.calls: list[Call | Jump] = []
        self.operators: list[tuple[str, str]] = []
        self.delegates: list[DelegateData] = []
        self.constants: dict[int, bytes] = {}
        self.aliases: dict[int, int] = {}
        self.growing: set[int] = set()

    def method(self, name: str) -> Method:
        program = self.program
        if program.changes:
            raise NotPlain("the program keeps state")
        inputs = [self._input(node) for node in program.arguments]
        for piece in self.pieces:
            self._piece(piece)
        outputs = [self._output(output) for output in program.outputs]
        if len(set(outputs)) != len(outputs) or set(outputs) & set(inputs):
            raise NotPlain("a result is given twice, or is an input")
        _, in_spec = torchapi.flatten((tuple(inputs), {}))
        out_spec = program.out_spec
        if out_spec is None or not torchapi.is_written_as_text(out_spec):
            _, out_spec = torchapi.flatten(list(outputs))
        return Method(
            self.values, inputs, outputs, self.calls, self.operators, self.delegates,
            torchapi.written_structure(in_spec), torchapi.written_structure(out_spec), name,
            {k: part.data for blob in self.blobs.values() for k, part in blob.outside.items()},
            self.constants, self.aliases, self.growing,
        )  # fmt: skip

    def _input(self, node: fx.Node) -> int:
        example: Any = node.meta.get("val")
        shape = torchapi.known_shape(example) if isinstance(example, Tensor) else None
        if shape is None:
            raise NotPlain(f"{node.name} has no fixed sizes")
        return self._tensor(node, example.dtype, shape, order_of(node))

    def _output(self, output: Any) -> int:
        if not isinstance(output, fx.Node) or output not in self.made:
            raise NotPlain("a result is not computed")
        return self.made[output]

    def _piece(self, piece: Piece) -> None:
        if piece.graph is not None:
            self._delegate(piece)
            return
        if piece.parts:
            self._loop(piece)
            return
        assert piece.node is not None
        node, name = piece.node, torchapi.target_name(piece.node)
        bound = torchapi.bound_arguments(node)
        if name in _LOOKUPS:
            self._lookup(node, name, bound)
            return
        source = bound.get("input")
        if name not in (_QUANTIZE, _DEQUANTIZE) or source not in self.made:
            raise NotPlain(f"{name} is for ExecuTorch to compile")
        given = self._of(source)
        real = bound.get("out_dtype") or torch.float32
        made = self._tensor(
            node, bound["dtype"] if name == _QUANTIZE else real, given.sizes, given.dim_order
        )
        literals = [self._literal(bound[key]) for key in _LITERALS]
        if name == _DEQUANTIZE:
            literals.append(self._literal(bound.get("out_dtype")))
        operator = (name.replace(".", "::", 1).rpartition(".")[0], "out")
        self._call(operator, self.made[source], *literals, made, made)

    def _lookup(self, node: fx.Node, name: str, bound: Mapping[str, Any]) -> None:
        """A call on tensors and numbers, in the order of its schema."""
        example, args = node.meta["val"], list[int]()
        for value in bound.values():
            args.append(self._known(value) if isinstance(value, fx.Node) else self._value(value))
        made = self._tensor(node, example.dtype, tuple(example.shape))
        self._call((name.replace(".", "::", 1).rpartition(".")[0], "out"), *args, made, made)

    def _delegate(self, piece: Piece) -> None:
        graph, blob = piece.graph, self.blobs[id(piece)]
        assert graph is not None
        is_outside = any(part.file for part in blob.outside.values())
        if is_outside or any(quant is not None for quant in piece.output_quants):
            raise NotPlain("weights lie outside, or results stand for real numbers")
        args = []
        for node, value, order in zip(piece.inputs, graph.inputs, piece.input_orders):
            wanted = _tensor(torch_type(value), _restored(value.shape, order), order)
            args.append(self._converted(self._known(node), wanted))
        results = []
        for node, value, order in zip(piece.outputs, graph.outputs, piece.output_orders):
            sizes = _restored(value.shape, order)
            args.append(self._tensor(node, torch_type(value), sizes, order))
            example = node.meta.get("val")
            if isinstance(example, Tensor) and value.quant is None:
                results.append((node, _tensor(example.dtype, sizes, order)))
        self.calls.append(Call("", len(self.delegates), tuple(args)))
        self.delegates.append(DelegateData(blob.backend, blob.data, self.specs))
        for node, wanted in results:
            self.made[node] = self._converted(self.made[node], wanted)

    def _known(self, node: fx.Node) -> int:
        """A value of the program; a tensor of its own becomes a constant when it is first read."""
        if node not in self.made:
            tensor = self.tensors.get(node)
            if tensor is None:
                raise NotPlain(f"{node.name} is not computed")
            data = tensor.detach().contiguous()
            made = self._tensor(node, data.dtype, tuple(data.shape), None)
            self.constants[made] = data.numpy().tobytes()
        return self.made[node]

    def _loop(self, piece: Piece) -> None:
        """A loop of instructions: elements are copied out of sequences, results into others."""
        step = piece.step
        assert piece.node is not None
        assert step is not None
        call = torchapi.scan_of(piece.node)
        count = call.count
        self.tensors.update(step.tensors)
        index, one, last = self._value(0), self._value(1), self._value(count)
        state = [self._copied(self._known(n), step.inputs[i]) for i, n in enumerate(call.carried)]
        lines = [self._in_blocks(self._known(n), call, axis) for n, axis in call.lines]
        names = step.inputs[len(state) :]
        self.made.update(zip(names[len(lines) :], map(self._known, call.read)))
        start, at = len(self.calls), index
        if call.back:
            at = self._value(0)
            self._call(_number("sub"), self._value(count - 1), index, at)
        for line, axis, name in zip(lines, call.axes, names):
            sizes = self._sizes(line)
            made = self._tensor(name, *self._kind(line), (*sizes[:axis], *sizes[axis + 1 :]))
            self._call(_SELECT, line, self._value(axis), at, made, made)
        for part in piece.parts:
            self._piece(part)
        results = [self._known(n) for n in step.outputs]
        if set(results[: len(state)]) & set(state):
            raise NotPlain("a step gives what it is given")
        wanted = {int(str(item.args[1])): item for item in piece.outputs}
        filled = {}
        for place in range(len(state), len(results)):
            if place in wanted:
                kind, sizes = self._kind(results[place]), self._sizes(results[place])
                filled[place] = self._value(_tensor(*kind, (count, *sizes), None))
                self.growing.add(filled[place])
                self._call(("executorch_prim::et_copy_index", "tensor"), filled[place],
                           results[place], at)  # fmt: skip
        for own, result in zip(state, results):
            self._copy(own, result)
        ends = self._value(False)
        self._call(_number("add"), index, one, index)
        self._call(_number("eq"), index, last, ends)
        self.calls.append(Jump(ends, start))
        self._call(_number("sub"), index, last, index)  # for the next run
        for place, item in wanted.items():
            made = state[place] if place < len(state) else filled[place]
            self.made[item] = made if place < len(state) else self._laid_out(place, made, call)

    def _copied(self, source: int, node: fx.Node) -> int:
        """What is carried, in memory of its own."""
        made = self._tensor(node, *self._kind(source), self._sizes(source))
        self._copy(made, source)
        return made

    def _copy(self, to: int, source: int) -> None:
        self._call(_COPY, to, source, self._value(False), to)

    def _alias(self, source: int, sizes: tuple[int, ...]) -> int:
        """Another tensor in the place of one."""
        if source in self.constants:
            raise NotPlain("a loop reads a constant in another form")
        made = self._value(_tensor(*self._kind(source), sizes, None))
        self.aliases[made] = self.aliases.get(source, source)
        return made

    def _in_blocks(self, line: int, call: torchapi.ScanCall, axis: int) -> int:
        """A sequence with an axis of the elements of a loop."""
        sizes = self._sizes(line)
        if not call.block:
            return line
        return self._alias(line, (*sizes[:axis], call.count, call.block, *sizes[axis + 1 :]))

    def _laid_out(self, place: int, filled: int, call: torchapi.ScanCall) -> int:
        """A sequence that was filled element by element, with its elements along an axis.

        Another tensor in its place: a loop's has the size that the last instruction gave it.
        """
        (count, *sizes), axis = self._sizes(filled), call.axis_of(place)
        before, rest = sizes[:axis], sizes[axis:]
        whole = [count, *rest] if not call.block else [count * rest[0], *rest[1:]]
        if all(size == 1 for size in before):
            return self._alias(filled, (*before, *whole))
        order = [*range(1, axis + 1), 0, *range(axis + 1, len(sizes) + 1)]
        permuted = self._value(_tensor(*self._kind(filled), (*before, count, *rest), None))
        places = self._value(Numbers(tuple(self._literal(i) for i in order)))
        still = self._alias(filled, (count, *sizes))
        self._call(_PERMUTE, still, places, permuted, permuted)
        return self._alias(permuted, (*before, *whole))

    def _kind(self, index: int) -> tuple[torch.dtype]:
        found = self.values[index]
        if not isinstance(found, TensorValue) or found.dim_order != tuple(range(len(found.sizes))):
            raise NotPlain("a loop has tensors in another order of axes")
        return (TYPES[found.scalar_type],)

    def _sizes(self, index: int) -> tuple[int, ...]:
        found = self.values[index]
        assert isinstance(found, TensorValue)
        return found.sizes

    def _converted(self, index: int, wanted: TensorValue) -> int:
        """A tensor in the type that is wanted, which is all that may differ."""
        given = self.values[index]
        assert isinstance(given, TensorValue)
        if given == wanted:
            return index
        if (given.sizes, given.dim_order) != (wanted.sizes, wanted.dim_order):
            raise NotPlain("a tensor has another form than the delegate takes")
        made, blocking = self._value(wanted), self._value(False)
        order = [self._literal(dimension) for dimension in wanted.dim_order]
        self._call(_CONVERT, index, blocking, self._value(Numbers(tuple(order))), made, made)
        return made

    def _call(self, operator: tuple[str, str], *args: int) -> None:
        if operator not in self.operators:
            self.operators.append(operator)
        self.calls.append(Call("out", self.operators.index(operator), args))

    def _value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _tensor(
        self, node: fx.Node, dtype: torch.dtype, sizes: tuple[int, ...], order: Any = None
    ) -> int:
        self.made[node] = self._value(_tensor(dtype, sizes, order))
        return self.made[node]

    def _literal(self, value: Any) -> int:
        if isinstance(value, torch.dtype):
            value = _CODES[value]
        if value is not None and type(value) not in (int, float):
            raise NotPlain(f"{value!r} is no plain number")
        return self._value(value)

    def _of(self, node: fx.Node) -> TensorValue:
        found = self.values[self.made[node]]
        assert isinstance(found, TensorValue)
        return found


def _number(name: str) -> tuple[str, str]:
    return f"executorch_prim::{name}", "Scalar"


def _tensor(dtype: torch.dtype, sizes: tuple[int, ...], order: Any) -> TensorValue:
    if dtype not in _CODES:
        raise NotPlain(f"{dtype} has no code")
    dims = tuple(range(len(sizes)) if order is None else order)
    return TensorValue(_CODES[dtype], dtype.itemsize, tuple(sizes), dims)


def _restored(shape: tuple[int, ...], order: tuple[int, ...] | None) -> tuple[int, ...]:
    """Sizes as PyTorch has them, of a tensor as a graph has it."""
    return shape if order is None else tuple(shape[order.index(i)] for i in range(len(shape)))

"""Dataflow check of a stream: each byte that a command reads was written by one of its producers.

The commands are walked in order without any arithmetic. Every byte of memory carries a label: the
operator of the TOSA graph that wrote it last (Vela's debug database says which command is of which
operator), the input that it belongs to, or its place among the constants. What a command reads has
to come from the operands of its operator, looked up through operators that have no command of their
own, and has to be read in the layout that it was written in. So stale reads and wrong regions are
found whatever the data, and in whole networks at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tosaic.ir.graph import Graph, Op, Value
from tosaic.sim.ethosu.convolution import ConvolutionRun
from tosaic.sim.ethosu.featuremap import BRICK, FeatureMap
from tosaic.sim.ethosu.image import size_of
from tosaic.sim.ethosu.memory import INTERNAL, Block
from tosaic.sim.ethosu.operation import Operand, Operation
from tosaic.sim.ethosu.output import table_block
from tosaic.sim.ethosu.program import Step
from tosaic.sim.ethosu.simulation import Simulation
from tosaic.sim.ethosu.weights import Layer
from tosaic.targets.ethosu.delegate import Origin

Labels = NDArray[np.int32]
Source = Op | Value
_UNWRITTEN, _CONSTANT = 0, -1  # labels; smaller ones are places among the constants
_COPY = "MemoryCopy"
# Operators that Vela does within the commands of their operands or readers: of one and the same a
# part may be done there, and the rest, or what another reader is given, by a command of its own.
_FUSED = frozenset(
    {"CONCAT", "SLICE", "PAD", "RESHAPE", "TRANSPOSE", "TILE", "IDENTITY", "REVERSE", "RESCALE",
     "CLAMP", "CAST", "TABLE"}
)  # fmt: skip


class Misread(Exception):
    """A command reads what none of its producers has written; ``op`` is its operator."""

    def __init__(self, what: str, op: Op | None = None) -> None:
        super().__init__(what)
        self.op = op


@dataclass(frozen=True, slots=True)
class _Writer:
    """Who has written bytes, and how they lie.

    A copy has the sources of what it copies, too; there are none where it copies constants.
    """

    source: Source | None
    layout: _Layout | None
    copied: frozenset[Source] | None = None

    def is_among(self, allowed: frozenset[Source]) -> bool:
        return self.source in allowed or (self.copied is not None and self.copied <= allowed)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Bytes of an element; strides of bricks, 0 where there is one; whether bricks lie as rows.

    A convolution with dilation and a transposed one with strides read and write every so many rows,
    of which ``gap`` is a multiple.
    """

    element: int
    bricks: tuple[int, int, int] | None = None
    is_linear: bool = True
    gap: int = 1

    def fits(self, other: _Layout, moves: bool) -> bool:
        """Whether bytes that were written in a layout can be read in another."""
        if self.element != other.element:
            return moves and self.is_linear and other.is_linear
        if self.bricks is None or other.bricks is None:
            return self.is_linear and other.is_linear
        (row, *written), (other_row, *read) = self.bricks, other.bricks
        (low, high), gap = sorted((row, other_row)), self.gap if row > other_row else other.gap
        if low and (high % low or gap % (high // low)):
            return False
        return all(a == b or not a or not b for a, b in zip(written, read))


def check_dataflow(graph: Graph, simulation: Simulation, commands: Mapping[int, Origin]) -> None:
    """Misread with the first command that reads what it should not.

    ``commands`` are the operators that commands come from, by offset in the stream.
    """
    _Walk(graph, simulation, commands).run()


class _Walk:
    def __init__(
        self, graph: Graph, simulation: Simulation, commands: Mapping[int, Origin]
    ) -> None:
        self.graph, self.simulation = graph, simulation
        self.producers = _Producers(graph, {o.op for o in commands.values() if o.op is not None})
        self.steps = list(_with_origins(simulation, commands))
        self.writers: dict[_Writer, int] = {}
        self.by_label: list[_Writer] = []
        self.chains: dict[int, int] = {}
        self.kept: int = _UNWRITTEN
        self.weights: dict[Op, set[tuple[Layer, int]]] = {}
        self._lay_out()

    def run(self) -> None:
        for step, origin in self.steps:
            try:
                self._step(step, origin)
            except Misread as problem:
                op = origin.op if origin is not None else None
                place = f"{step.command.place}, of {op}" if op else step.command.place
                raise Misread(f"{problem} (at {place})", op) from None
        self._check_outputs()
        self._check_weights()

    def _lay_out(self) -> None:
        """Labels for each region, one for as many bytes as all accesses have in common."""
        image = self.simulation.image
        ends = [(b, Block(b.region, b.address, (size_of(b),), (1,), 1))
                for b in (*image.inputs, *image.outputs)]  # fmt: skip
        blocks = [block for _, block in ends]
        blocks += [b for step, _ in self.steps for b in _blocks(step)]
        self.unit = math.gcd(*(n for b in blocks for n in _steps(b))) or 1
        sizes = {**self.simulation.sizes, INTERNAL: 1 << 16}
        self.constants, size = image.weights_region, len(image.weights)
        self.limits = {**sizes, self.constants: size}
        self.regions: dict[int, Labels] = {
            region: np.zeros(-(-size // self.unit), np.int32) for region, size in sizes.items()
        }
        for value, (_, block) in zip(self.graph.inputs, ends):
            self._view(block)[...] = self._label(value, _Layout(max(1, value.dtype.bits // 8)))

    def _label(
        self, source: Source | None, layout: _Layout | None = None,
        copied: frozenset[Source] | None = None,
    ) -> int:  # fmt: skip
        writer = _Writer(source, layout, copied)
        if writer not in self.writers:
            self.by_label.append(writer)
            self.writers[writer] = len(self.by_label)
        return self.writers[writer]

    def _bounded(self, block: Block) -> Block:
        """The block; Misread if it is not within its region."""
        span = block.span
        if span.start < 0 or span.stop > self.limits.get(block.region, 0):
            raise Misread(f"{span}, which is not there")
        return block

    def _view(self, block: Block) -> Labels:
        """The labels of a block."""
        run, outer = self._bounded(block).merged
        if block.region == self.constants:
            first = -1 - block.span.start // self.unit
            if outer:  # which of them it is does not matter but for weights
                return np.full((*(size for size, _ in outer), run // self.unit), first, np.int32)
            return np.arange(first, first - run // self.unit, -1, np.int32)
        labels = self.regions[block.region]
        first, *rest = (n // self.unit for n in (block.start, *(s for _, s in outer)))
        item = labels.itemsize
        sizes = (*(size for size, _ in outer), run // self.unit)
        strides = (*(item * stride for stride in rest), item)
        return np.ndarray(sizes, np.int32, labels, item * first, strides)

    def _step(self, step: Step, origin: Origin | None) -> None:
        transfer = step.transfer
        if transfer is not None:
            target = self._view(transfer.target)
            if transfer.index is None:
                target[...] = self._view(transfer.source).reshape(target.shape).copy()
                return
            read = {*self._labels(transfer.source), *self._labels(transfer.index)}
            target[...] = self._label(None, copied=self._sources(read))
        elif step.operation is not None:
            self._operation(step.operation, origin)
            if isinstance(step.run, ConvolutionRun) and origin is not None:
                self._note_weights(step.run, origin.op)

    def _operation(self, operation: Operation, origin: Origin | None) -> None:
        op = origin.op if origin is not None else None
        moves = op is None or (origin is not None and origin.kind == _COPY)
        read: set[int] = set()
        for operand in operation.inputs:
            read |= self._read(operand, op, operation.kind == "POOL")
        if operation.start == "keep":
            self._verify(self.kept, op)
        output = operation.output
        for block in operation.scales:
            self._constant(block, "scales")
        if output.lookup is not None:
            self._constant(table_block(output.lookup), "its table")
        copied = self._sources(read) if moves else None
        if not operation.emit:
            self.kept = self._label(op, copied=copied)
        if output.map is not None and operation.emit:
            layout = _layout(output.map, op)
            is_known = operation.kind != "POOL" or not layout.is_linear  # not halves of elements
            label = self._label(op, layout if is_known else None, copied)
            for block in output.map.exact:
                self._view(block)[...] = label
        elif output.chain is not None:
            self.chains[output.chain] = self._label(op, copied=copied)

    def _read(self, operand: Operand, op: Op | None, moves: bool) -> set[int]:
        """Verify what an operand reads; its labels. What only moves may take halves of elements."""
        read: set[int] = set()
        if operand.chain is not None:
            read.add(self.chains.get(operand.chain, _UNWRITTEN))
        for block in operand.map.exact if operand.map is not None else ():
            read.update(self._labels(block))
        for label in read:
            self._verify(label, op, operand.map, moves)
        return read

    def _labels(self, block: Block) -> list[int]:
        """The labels of a block; one stands for all constants."""
        if block.region == self.constants:
            return [_CONSTANT]
        return _distinct(self._view(block))

    def _sources(self, labels: set[int]) -> frozenset[Source]:
        writers = [self.by_label[label - 1] for label in labels if label > 0]
        return frozenset(s for w in writers for s in (w.copied or [w.source]) if s is not None)

    def _verify(
        self, label: int, op: Op | None, how: FeatureMap | None = None, moves: bool = False
    ) -> None:
        """Misread if bytes of that label are none of an operator's, or lie in another way."""
        name = how.name if how is not None else "what it goes on with"
        if label == _UNWRITTEN:
            raise Misread(f"{name} has bytes that nothing has written")
        if op is None or label < 0:
            return
        allowed = self.producers.of(op)
        writer = self.by_label[label - 1]
        if not writer.is_among(allowed):
            raise Misread(f"{name} was last written by {_named(writer.source)}, no producer of it")
        layout = writer.layout
        if how is not None and layout is not None and not layout.fits(_layout(how, op), moves):
            raise Misread(f"{name} is read in another layout than {_named(writer.source)} wrote")

    def _constant(self, block: Block, what: str) -> tuple[int, int]:
        """Where among the constants a run of bytes comes from; Misread if it is no such run."""
        if block.region == self.constants:
            start = self._bounded(block).span.start
            return -1 - start // self.unit, block.bytes // self.unit
        labels = self._view(block).reshape(-1)
        first = int(labels[0])
        if first >= 0 or not np.array_equal(labels, np.arange(first, first - len(labels), -1)):
            raise Misread(f"{what} that are no run of constants: {block.span}")
        return first, len(labels)

    def _note_weights(self, run: ConvolutionRun, op: Op | None) -> None:
        """Which bytes an operator has for weights, and in which order they are taken."""
        data, unit = self.simulation.image.weights, self.unit
        for block in run.coded.weights:
            first, count = self._constant(block, "weights")
            start = (-1 - first) * unit
            if op is not None:
                found = (run.layer, hash(data[start : start + count * unit]))
                self.weights.setdefault(op, set()).add(found)

    def _check_outputs(self) -> None:
        for value, end in zip(self.graph.outputs, self.simulation.outputs):
            block = Block(end.region, end.address, (size_of(end),), (1,), 1)
            allowed = self.producers.at(value)
            for label in _distinct(self._view(block)):
                writer = self.by_label[label - 1] if label > 0 else None
                if label < 0:
                    continue
                if writer is None or not writer.is_among(allowed):
                    who = _named(writer.source) if writer else "nothing that computes it"
                    op = value.producer
                    raise Misread(f"the result '{value.name}' was last written by {who}", op)

    def _check_weights(self) -> None:
        """Operators whose encoded weights are all equal have equal ones."""
        first: dict[frozenset[tuple[Layer, int]], Op] = {}
        for op, places in self.weights.items():
            other = first.setdefault(frozenset(places), op)
            if other is not op and not _equal_weights(other, op):
                raise Misread(f"{op} is given the weights of {other}", op)


class _Producers:
    """Which operators and inputs the operands of an operator come from.

    An operator without a command of its own is done by those of its operands or readers. Constants
    may be anywhere: Vela adds its own.
    """

    def __init__(self, graph: Graph, active: set[Op]) -> None:
        self.active = active
        self.read: dict[Op, frozenset[Source]] = {}
        self.known: dict[Value, frozenset[Source]] = {v: frozenset([v]) for v in graph.inputs}
        for op in graph.ops:
            for out in op.outs:
                self.known[out] = self._made_by(op)

    def _made_by(self, op: Op) -> frozenset[Source]:
        found: frozenset[Source] = frozenset([op]) if op in self.active else frozenset()
        return found if op in self.active and op.name not in _FUSED else found | self._read_by(op)

    def _read_by(self, op: Op) -> frozenset[Source]:
        return frozenset[Source]().union(*map(self.at, op.ins))

    def at(self, value: Value) -> frozenset[Source]:
        """Where the bytes of a value come from."""
        return self.known.get(value, frozenset())

    def of(self, op: Op) -> frozenset[Source]:
        """Where what the commands of an operator read may come from: its own inner values, too."""
        if op not in self.read:
            self.read[op] = self._read_by(op) | {op}
        return self.read[op]


def _with_origins(
    simulation: Simulation, commands: Mapping[int, Origin]
) -> Iterator[tuple[Step, Origin | None]]:
    """The steps that compute or copy; commands before the last of an operator are its own."""
    found: list[tuple[Step, Origin | None]] = []
    origin: Origin | None = None
    for step in reversed([*simulation.program.steps()]):
        if step.operation is not None or step.transfer is not None:
            origin = commands.get(step.command.offset, origin)
            found.append((step, origin))
    return reversed(found)


def _blocks(step: Step) -> Iterator[Block]:
    """All that a step reads and writes."""
    if step.transfer is not None:
        yield step.transfer.source
        yield step.transfer.target
        if step.transfer.index is not None:
            yield step.transfer.index
    operation = step.operation
    if operation is None:
        return
    output = operation.output
    for stored in (*(operand.map for operand in operation.inputs), output.map):
        if stored is not None:
            yield from stored.exact
    yield from operation.coded.weights if operation.coded is not None else ()
    yield from operation.scales
    if output.lookup is not None:
        yield table_block(output.lookup)


def _steps(block: Block) -> Iterator[int]:
    """Numbers that are multiples of the bytes of a label."""
    run, outer = block.merged
    yield block.start
    yield run
    for _, stride in outer:
        yield stride


def _distinct(labels: Labels) -> list[int]:
    """The labels that there are; one stands for all constants."""
    first = int(labels.flat[0])
    others = labels[labels != first]
    if len(others) and int(others.min()) < 0:
        others = np.maximum(others, _CONSTANT)
    return [first, *np.unique(others).tolist()] if len(others) else [first]


def _layout(stored: FeatureMap, op: Op | None) -> _Layout:
    size = stored.dtype.itemsize
    name = "stride" if op is not None and op.name == "TRANSPOSE_CONV2D" else "dilation"
    gap = op.attrs.get(name, (1, 1))[-2] if op is not None else 1
    if not stored.brick:
        return _Layout(size)
    height, width, depth = stored.shape
    by_row, by_column, by_brick = stored.strides
    bricks = (by_row if height > 1 else 0, by_column if width > 1 else 0,
              by_brick if depth > BRICK else 0)  # fmt: skip
    is_row = width == 1 and (depth <= BRICK or by_brick == BRICK * size)
    is_column = depth == BRICK and (height == 1 or by_row == width * by_column)
    return _Layout(size, bricks, is_row or is_column, gap)


def _equal_weights(one: Op, other: Op) -> bool:
    """Whether two operators have the same weights, less their zero points."""
    if one.name != other.name or "weight" not in {o.name for o in one.defn.operands}:
        return True  # another operator has them in another shape
    arrays = []
    for op in (one, other):
        weight, zero = (op.operand(name) for name in ("weight", "weight_zp"))
        if weight.const is None or zero.const is None:
            return True
        arrays.append(weight.const.array.astype(np.int16) - zero.const.array.astype(np.int16))
    mine, its = arrays
    return mine.shape != its.shape or np.array_equal(mine, its)


def _named(source: Source | None) -> str:
    return f"the input '{source.name}'" if isinstance(source, Value) else str(source)

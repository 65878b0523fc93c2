"""The partitioner: which calls become TOSA, in which groups, and the reason for each refusal.

Every call runs its rule once. What is accepted forms groups: calls between which no path leads
through PyTorch. A call's level counts how often the way to it changes sides, so the accepted
calls of one level are such a group, and as large as can be. Where there is one group, what the
rules have built is its graph; the calls of several are lowered again, each group by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from tosaic.boundary.qparams import is_unsigned
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE, origin
from tosaic.front.precision import left_in_float, refused_in_integers
from tosaic.front.program import Program, from_module
from tosaic.ir.graph import Graph, Quant, Value
from tosaic.lowering.alternatives.cast import to_real
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.host_placement import host_reason
from tosaic.lowering.int64_ranges import Ranges
from tosaic.lowering.port_order import order_ports
from tosaic.lowering.target import Target
from tosaic.lowering.walk import Walker, named_output, parameters
from tosaic.passes.fold_constants import are_tensors
from tosaic.spec.check import check_level
from tosaic.spec.dtypes import TensorType


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that stays in PyTorch: its operator, the reason, and where the user wrote it."""

    op: str
    reason: str
    where: str
    node: str = ""

    def __str__(self) -> str:
        return f"{self.op}: {self.reason}" + (f" (at {self.where})" if self.where else "")


@dataclass(slots=True)
class Piece:
    """A part of a program that runs in one place: a graph, one call of PyTorch, or a loop.

    A loop is a call of which ``step`` is the program of one step and ``parts`` are its pieces.

    An order says which axis of a tensor is which of the graph's, where they are not the same.
    ``output_quants`` belong to outputs that stand for real numbers where PyTorch reads them.
    ``checks`` are sentences on what was proved or tried of the graph, for the report;
    ``undefined`` says of an operator that some input makes it unpredictable.
    """

    node: fx.Node | None = None
    graph: Graph | None = None
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    input_orders: list[tuple[int, ...] | None] = field(default_factory=list)
    output_orders: list[tuple[int, ...] | None] = field(default_factory=list)
    output_quants: list[Quant | None] = field(default_factory=list)
    calls: list[fx.Node] = field(default_factory=list)  # that a graph was made of
    checks: list[str] = field(default_factory=list)
    undefined: str | None = None
    host: Target | None = None  # where a graph runs on the processor beside the device
    step: Program | None = None
    parts: list[Piece] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How often a loop calls its step."""
        return torchapi.scan_of(self.node).count if self.node is not None and self.parts else 1


@dataclass(slots=True)
class Partition:
    """Pieces in an order in which they can run, and why PyTorch keeps what it keeps.

    ``hosted`` are calls that the device takes and the host is faster at.
    """

    pieces: list[Piece]
    refused: list[Refusal]
    hosted: list[Refusal] = field(default_factory=list)

    @property
    def graphs(self) -> list[Graph]:
        return [p.graph for p in self.walk() if p.graph is not None]

    def walk(self) -> Iterator[Piece]:
        """All pieces, those of a loop behind it."""
        return (piece for piece, _ in called(self.pieces))


def called(pieces: Iterable[Piece], times: int = 1) -> Iterator[tuple[Piece, int]]:
    """Pieces, those of a loop behind it, and how often each of them runs."""
    for piece in pieces:
        yield piece, times
        yield from called(piece.parts, times * piece.count)


class Partitioner:
    """Tries the calls of a program on one target, and groups those that it takes."""

    def __init__(
        self, program: Program, target: Target, expose: bool, kept: Mapping[str, str],
        has_casts: bool,
    ) -> None:  # fmt: skip
        self.program, self.target, self.env = program, target, target.env
        self.has_casts, self.real = has_casts, set[fx.Node]()
        self.expose, self.kept = expose, kept
        self.ranges = Ranges(program.tensors)
        self.trial = Walker(program, Lowering.of(target), self.ranges)
        self.accepted: set[fx.Node] = set()
        self.folded: set[fx.Node] = set()  # constants of a graph
        self.dequantized: set[fx.Node] = (
            set()
        )  # dequantize calls, which only say what integers mean
        self.refused: list[Refusal] = []
        self.hosted: list[Refusal] = []
        self.is_whole = True  # whether the trial has built what accepted calls need, and no more
        self.loops: dict[fx.Node, tuple[Program, Partition]] = {}
        self.level: dict[fx.Node, int] = {}
        self.reads: dict[fx.Node, bool] = {}

    def try_calls(self) -> None:
        for node in self.program.inputs:
            self._outside(node)
        for node in self.program.calls:
            self._try(node)
            self._place(node)

    def run(self) -> Partition:
        self.try_calls()
        self.leave_steps()
        self.find_reads()
        return Partition([piece for _, piece in self.placed_pieces()], self.refused, self.hosted)

    def _try(self, node: fx.Node) -> None:
        """Run the rule of a call; a boundary quantize is PyTorch's, and no refusal."""
        target, count = torchapi.target_name(node), len(self.trial.b.graph.ops)
        if target == QUANTIZE and not self._is_inside(node.args[0]) and not self._casts(node):
            self._boundary(node)
            return
        chosen = host_reason(node) if self.target.host_costs else ""
        if chosen:
            self.hosted.append(Refusal(target, chosen, torchapi.location(node).place, node.name))
            self._outside(node)
            return
        if self._is_loop(node):
            self.is_whole = False
            self._outside(node)
            return
        try:
            with self.trial.b.scratch() as scratch:
                self._check_kept(node)
                result = self.trial.call(node)
                self._can_pass(result)
                scratch.commit()
        except Unsupported as refusal:
            reason = "" if "FP" in self.env.profiles else refused_in_integers(node)
            reason = reason or left_in_float(node) + refusal.reason
            place = torchapi.location(node).place
            if target != "getitem":  # a result of a call that is refused itself
                self.refused.append(Refusal(target, reason, place, node.name))
            if target == QUANTIZE:
                self._boundary(node)
            else:
                self._outside(node)
            return
        if _is_fixed(result):
            self.folded.add(node)
        elif target in DEQUANTIZE:
            self.dequantized.add(node)
        else:
            self.accepted.add(node)
            # Regions are lowered with the ranges of what they are given, and again without.
            self.is_whole &= not torchapi.is_region_call(node)
            return
        self.is_whole &= len(self.trial.b.graph.ops) == count

    def _is_loop(self, node: fx.Node) -> bool:
        """Whether a call is a loop that the host runs, or an item of its results."""
        if torchapi.target_name(node) == "getitem":
            return node.args[0] in self.loops
        if not torchapi.is_scan(node) or not self.target.traits.host_loops:
            return False
        step = from_module(self.program.regions[torchapi.scan_of(node).step])
        found = Partitioner(step, self.target, self.expose, self.kept, self.has_casts).run()
        if found.graphs:
            self.loops[node] = step, found
            self.refused += found.refused
        return bool(found.graphs)

    def _check_kept(self, node: fx.Node) -> None:
        """PyTorch keeps all calls of a function if it keeps one of them."""
        curve = self.trial.curve(node) if self.kept else None
        for call in (node,) if curve is None else curve.calls:
            if call.name in self.kept:
                raise Unsupported(self.kept[call.name])

    def _can_pass(self, result: Any) -> None:
        """What passes through is copied where it is given, so a graph must be able to hold it."""
        for value in result if isinstance(result, list | tuple) else [result]:
            if isinstance(value, Value) and value.producer is None and not value.is_const:
                with self.trial.b.scratch():
                    self.trial.b.IDENTITY(value)

    def _is_inside(self, node: Any) -> bool:
        source = self.source(node)
        return node in self.dequantized or source in self.accepted or source in self.folded

    def _casts(self, node: fx.Node) -> bool:
        """Whether a graph quantizes what PyTorch gives it: real numbers, and not to uint8."""
        given = self.trial.values.get(node.args[0]) if isinstance(node.args[0], fx.Node) else None
        is_real = isinstance(given, Value) and given.dtype.is_float
        return self.has_casts and is_real and not is_unsigned(node)

    def source(self, node: fx.Node) -> fx.Node:
        """The node that a value comes from."""
        while node in self.dequantized:
            node = node.all_input_nodes[0]
        return node

    def _boundary(self, node: fx.Node) -> None:
        """PyTorch quantizes; the integers it gives are an input."""
        try:
            quant, kind = parameters(torchapi.bound_arguments(node))
        except Unsupported as refusal:
            self.trial.missing[node] = refusal.reason
            return
        source = origin(node)
        example = source.meta.get("val")  # PT2E gives its own calls none
        self.trial.codes.add(node)
        if not isinstance(example, torch.Tensor):
            return
        shape = torchapi.known_shape(example)
        if shape is None:
            self.trial.missing[node] = f"{source.name} has a size that depends on the input"
        else:
            self._give(node, Value(TensorType(kind, shape), node.name, quant=quant))

    def _outside(self, node: fx.Node) -> None:
        """A value that PyTorch computes, as far as TOSA can hold such a value."""
        example = node.meta.get("val")
        self.ranges.outside(node)
        if not isinstance(example, torch.Tensor):
            return
        kind, shape = TYPES.get(example.dtype), torchapi.known_shape(example)
        if example.dtype is torch.uint8 and self._only_dequantized(node):
            kind = TYPES[torch.int8]
        if kind is None:
            self.trial.missing[node] = f"{node.name} is {example.dtype}, which TOSA does not have"
        elif node in self.ranges.wide:
            self.trial.missing[node] = f"{node.name} may need more than the 32 bits of TOSA"
        elif shape is None:
            self.trial.missing[node] = f"{node.name} has a size that depends on the input"
        else:
            self._give(node, Value(TensorType(kind, shape), node.name))

    def _only_dequantized(self, node: fx.Node) -> bool:
        users = self.program.users.get(node, ())
        return all(torchapi.target_name(user) in DEQUANTIZE for user in users)

    def _give(self, node: fx.Node, value: Value) -> None:
        """An input of the trial, unless no graph of the level can have such an input."""
        try:
            check_level(node.name, value.type, self.env)
        except Unsupported as refusal:
            self.trial.missing[node] = refusal.reason
        else:
            self.trial.take(node, value)

    def _place(self, node: fx.Node) -> None:
        """Count how often the way to a call changes between TOSA and PyTorch."""
        inside = node in self.accepted
        level = int(inside)  # what reads inputs or nothing at all comes after PyTorch's first calls
        for argument in map(self.source, node.all_input_nodes):
            if argument in self.level and not (inside and argument in self.folded):
                crossing = (argument in self.accepted) is not inside
                level = max(level, self.level[argument] + crossing)
        self.level[node] = level

    def leave_steps(self) -> None:
        """Where a group would do nothing but quantize again, PyTorch does that."""
        levels: dict[int, list[fx.Node]] = {}
        for node in self.accepted:
            levels.setdefault(self.level[node], []).append(node)
        for nodes in levels.values():
            if all(torchapi.target_name(node) == QUANTIZE for node in nodes):
                self.accepted -= set(nodes)
                self.is_whole = False

    def find_reads(self) -> None:
        """For each call whether PyTorch reads its result, dequantized or not; readers first.

        What a graph gives as real numbers it does not give as integers for that.
        """
        if self.has_casts:
            ends = self.dequantized & self.program.results
            self.real = {n for n in ends if self.source(n) in self.accepted and not is_unsigned(n)}
        for node in reversed(self.program.calls):
            self.reads[node] = node not in self.real and (node in self.program.results or any(
                self.reads[user]
                if user in self.folded or user in self.dequantized
                else user not in self.accepted
                for user in self.program.users.get(node, ())
            ))  # fmt: skip

    def placed_pieces(self) -> list[tuple[int, Piece]]:
        """The pieces in order, each with its level."""
        levels: dict[int, tuple[list[fx.Node], list[fx.Node]]] = {}
        for node in self.program.calls:
            inside, outside = levels.setdefault(self.level[node], ([], []))
            if node in self.accepted:
                inside.append(node)
            elif self._runs(node):
                outside.append(node)
        pieces: list[tuple[int, Piece]] = []
        for level in sorted(levels):
            inside, outside = levels[level]
            pieces += [(level, self._call(n)) for n in outside]
            if inside:
                group = self._group(inside)
                pieces += [(level, group)] if group.outputs else []
        return pieces

    def _call(self, node: fx.Node) -> Piece:
        """A call of PyTorch, or a loop, which gives the items of its result."""
        if node not in self.loops:
            return Piece(node, inputs=node.all_input_nodes, outputs=[node])
        step, found = self.loops[node]
        given, items = torchapi.scan_of(node).operands, self.program.users.get(node, [])
        return Piece(node, inputs=given, outputs=items, step=step, parts=found.pieces)

    def _runs(self, node: fx.Node) -> bool:
        """Whether PyTorch has to call a node: not if it only folds or dequantizes for TOSA."""
        if node.args and node.args[0] in self.loops:
            return False  # a loop gives its items itself
        return self.reads[node] or not (node in self.folded or node in self.dequantized)

    def _group(self, nodes: list[fx.Node]) -> Piece:
        """The calls of one level together, from what they read to what others read."""
        members = set(nodes)
        is_all = self.is_whole and members == self.accepted
        walker, inputs = self._as_tried(nodes) if is_all else self._again(nodes)
        piece = Piece(graph=walker.b.graph, inputs=inputs, calls=nodes)
        taken: set[Value] = set()
        for node in nodes:
            if not self._is_given(node, members, walker.values[node]):
                continue
            value = named_output(walker.b, walker.values[node], walker.name(node), taken)
            walker.b.output(value)
            piece.outputs.append(node)
            is_real = self.reads[node] and node not in self.trial.codes
            piece.output_quants.append(value.quant if is_real else None)
        for node in self.program.calls if self.real else ():
            if node in self.real and self.source(node) in members:
                real = to_real(walker.b, walker.values[self.source(node)])
                walker.b.output(named_output(walker.b, real, walker.name(node), taken))
                piece.outputs.append(node)
                piece.output_quants.append(None)
        order_ports(piece, self.program, self.source)
        piece.input_orders = [None] * len(piece.inputs)
        piece.output_orders = [None] * len(piece.outputs)
        return piece

    def _as_tried(self, nodes: list[fx.Node]) -> tuple[Walker, list[fx.Node]]:
        """What the trial has built, from what its calls read in that order."""
        inside = self.accepted | self.dequantized | self.folded
        inputs = [node for node in self._order(nodes) if node not in inside]
        self.trial.reorder(inputs)
        self.trial.b.loc = torchapi.location(nodes[-1])
        return self.trial, inputs

    def _again(self, nodes: list[fx.Node]) -> tuple[Walker, list[fx.Node]]:
        """Calls lowered into a graph of their own, and what that reads."""
        walker = Walker(self.program, Lowering.of(self.target))
        walker.codes, walker.missing = self.trial.codes, self.trial.missing
        walker.unsigned = self.trial.unsigned
        members, inputs = set(nodes), list[fx.Node]()
        for node in self._order(nodes):
            given = self.trial.values.get(node)
            if node in members or node in self.dequantized:
                walker.call(node)
            elif node in self.folded:
                walker.values[node] = given
            elif not isinstance(given, Value):
                raise Unsupported(f"{node.name} cannot be an input of a TOSA graph")
            else:
                walker.take(node, given)
                inputs.append(node)
        return walker, inputs

    def _order(self, nodes: list[fx.Node]) -> Iterator[fx.Node]:
        """The calls of a group, each behind its operands."""
        known = {*self.program.tensors, *self.program.regions, *nodes}

        def behind(node: fx.Node) -> Iterator[fx.Node]:
            for argument in node.all_input_nodes:
                if argument not in known:
                    known.add(argument)
                    if argument in self.dequantized:
                        yield from behind(argument)
                    yield argument

        for node in nodes:
            yield from behind(node)
            yield node

    def _is_given(self, node: fx.Node, members: set[fx.Node], value: Any) -> bool:
        """Whether a group has to give a value: PyTorch or another group reads it."""
        return isinstance(value, Value) and (
            self.expose
            or self.reads[node]
            or any(
                self._is_given(user, members, value)
                if user in self.dequantized
                else user not in members and user not in self.folded
                for user in self.program.users.get(node, ())
            )
        )


def _is_fixed(result: Any) -> bool:
    """Whether no input changes what a call gives, be it one value or several."""
    several = result if isinstance(result, (list, tuple)) else [result]
    constant = bool(several) and all(isinstance(v, Value) and v.is_const for v in several)
    return constant or are_tensors(result)

"""Unrolls recurrent layers into the calls of one step after the other.

PyTorch's own parts would do, but not say what belongs together. Here each call has a ``Mark``: the
gates and the cell want 16 bits where the target has them, and what stands for the same thing at
every step has one range. All steps read the same weights, the products with the inputs of several
steps are one call, and a layer that runs backwards turns nothing round. How many steps follows from
memory: their products, of 16 bits, take less of it than a long sequence, and half of that where
the results of the other direction wait. Compilers compute last operands first: where the order is
free, what is needed longest comes last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK, Mark, mark_of

aten = torch.ops.aten
# Beyond it sigmoid is 0 or 1 and tanh is −1 or 1, to half a step of int16.
_BENDS = (-11.0, 11.0)


def steps(node: fx.Node, at_once: int) -> fx.GraphModule | None:
    """The parts of a recurrent call, from its operands to its results; None for any other.

    The products of ``at_once`` steps are one call, or of more where memory allows it.
    """
    make = _FORMS.get(torchapi.target_name(node))
    if make is None:
        return None
    parts = Parts(node, at_once)
    parts.take_all()
    return parts.module(make(parts, **parts.arguments()))


class Parts:
    """A graph that is written call by call, each with the shape of its result."""

    def __init__(self, node: fx.Node, at_once: int = 1) -> None:
        self.node, self.at_once, self.graph = node, at_once, fx.Graph()
        self.given: dict[fx.Node, fx.Node] = {}
        self.results: dict[Any, Tensor] = {}
        self.root = torch.nn.Module()

    def take_all(self) -> None:
        """Take what the call takes."""
        for source in self.node.all_input_nodes:
            self.given[source] = self.take(source.name, source.meta["val"])

    def take(self, name: str, like: Tensor) -> fx.Node:
        made: fx.Node = self.graph.placeholder(name)
        made.meta["val"] = torchapi.stand_in_beside(self.node, like)
        return made

    def module(self, results: Any) -> fx.GraphModule:
        self.graph.output(results)
        return fx.GraphModule(self.root, self.graph)

    def arguments(self) -> dict[str, Any]:
        bound = torchapi.bound_arguments(self.node)
        return {k: fx.map_arg(v, lambda n: self.given[n]) for k, v in bound.items()}

    def call(
        self, target: Any, *args: Any, wide: bool = False, tie: str = "",
        limits: tuple[float, float] | None = None,
    ) -> fx.Node:  # fmt: skip
        made = self.graph.call_function(target, args)
        made.meta["val"] = self._result(made)
        made.meta[MARK] = Mark(wide, f"{self.node.name}.{tie}" if tie else "", limits)
        return made

    def _result(self, call: fx.Node) -> Tensor:
        """A stand-in for the result, made once for all calls that are alike."""

        def described(node: fx.Node) -> Any:
            return tuple(node.meta["val"].shape), node.meta["val"].dtype

        key = call.target, str(fx.map_arg(call.args, described))
        if key not in self.results:
            assert callable(call.target)
            args = fx.map_arg(call.args, lambda n: n.meta["val"])
            self.results[key] = torchapi.computed_beside(self.node, call.target, args)
        return self.results[key]

    def part(self, x: fx.Node, start: int, end: int) -> fx.Node:
        """Some of the last axis."""
        return self.call(aten.slice.Tensor, x, -1, start, end, wide=mark_of(x).wide)


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of one direction of one layer."""

    of_input: fx.Node
    of_hidden: fx.Node
    input_bias: fx.Node | None = None
    hidden_bias: fx.Node | None = None
    projection: fx.Node | None = None


State = tuple[fx.Node, ...]
Step = Callable[[Parts, Weights, fx.Node, State, str], State]


def _lstm_step(p: Parts, w: Weights, given: fx.Node, state: State, tie: str) -> State:
    """From the share of the input in the gates and (h, c) to the next (h, c)."""
    hidden, cell = state
    size = cell.meta["val"].shape[-1]
    hidden = p.call(aten.linear.default, hidden, w.of_hidden, w.hidden_bias, wide=True,
                    tie=f"{tie}.gates/own")  # fmt: skip
    gates = p.call(aten.add.Tensor, given, hidden, wide=True, tie=f"{tie}.sums", limits=_BENDS)

    def gate(number: int, bend: Any = aten.sigmoid.default) -> fx.Node:
        return p.call(bend, p.part(gates, number * size, (number + 1) * size), wide=True)

    kept = p.call(aten.mul.Tensor, gate(1), cell, wide=True, tie=f"{tie}.cell/kept")
    came = p.call(aten.mul.Tensor, gate(0), gate(2, aten.tanh.default), wide=True,
                  tie=f"{tie}.cell/came")  # fmt: skip
    cell = p.call(aten.add.Tensor, came, kept, wide=True, tie=f"{tie}.cell")
    bent = p.call(aten.tanh.default, cell, wide=True)
    name = "full" if w.projection else "hidden"
    hidden = p.call(aten.mul.Tensor, gate(3), bent, tie=f"{tie}.{name}")
    if w.projection is not None:
        hidden = p.call(aten.linear.default, hidden, w.projection, None, tie=f"{tie}.hidden")
    return hidden, cell


def _gru_step(p: Parts, w: Weights, given: fx.Node, state: State, tie: str) -> State:
    """h becomes n + z · (h − n), where n has seen h through r."""
    (hidden,) = state
    size = hidden.meta["val"].shape[-1]
    own = p.call(aten.linear.default, hidden, w.of_hidden, w.hidden_bias, wide=True,
                 tie=f"{tie}.gates/own")  # fmt: skip

    def gate(start: int) -> fx.Node:
        total = p.call(aten.add.Tensor, p.part(given, start, start + size),
                       p.part(own, start, start + size), wide=True, tie=f"{tie}.sums",
                       limits=_BENDS)  # fmt: skip
        return p.call(aten.sigmoid.default, total, wide=True)

    reset, update = gate(0), gate(size)
    past = p.call(aten.mul.Tensor, reset, p.part(own, 2 * size, 3 * size), wide=True,
                  tie=f"{tie}.gates/past")  # fmt: skip
    new = p.call(aten.add.Tensor, p.part(given, 2 * size, 3 * size), past, wide=True,
                 tie=f"{tie}.sums/new", limits=_BENDS)  # fmt: skip
    new = p.call(aten.tanh.default, new, wide=True)
    apart = p.call(aten.sub.Tensor, hidden, new, wide=True, tie=f"{tie}.apart")
    moved = p.call(aten.mul.Tensor, apart, update, wide=True, tie=f"{tie}.apart/moved")
    return (p.call(aten.add.Tensor, new, moved, tie=f"{tie}.hidden"),)


def _rnn_step(bend: Any, limits: tuple[float, float] | None) -> Step:
    def step(p: Parts, w: Weights, given: fx.Node, state: State, tie: str) -> State:
        (hidden,) = state
        own = p.call(aten.linear.default, hidden, w.of_hidden, w.hidden_bias, wide=True,
                     tie=f"{tie}.gates/own")  # fmt: skip
        total = p.call(aten.add.Tensor, given, own, wide=True, tie=f"{tie}.sums", limits=limits)
        return (p.call(bend, total, tie=f"{tie}.hidden"),)

    return step


@dataclass(frozen=True, slots=True)
class Line:
    """What a layer reads along an axis of steps: a tensor, or the parts of each step's last axis.

    Parts stay apart, so that the memory of a step is free again when it is read.
    """

    axis: int
    length: int
    whole: fx.Node | None = None
    parts: tuple[tuple[fx.Node, ...], ...] = ()
    made: dict[tuple[int, int], fx.Node] = field(default_factory=dict)

    @property
    def width(self) -> int:
        read = self.parts[0] if self.whole is None else (self.whole,)
        return sum(v.meta["val"].shape[-1] for v in read)

    def block(self, p: Parts, start: int, end: int) -> fx.Node:
        """Some steps in a row, made once."""
        if (start, end) not in self.made:
            self.made[start, end] = self._block(p, start, end)
        return self.made[start, end]

    def _block(self, p: Parts, start: int, end: int) -> fx.Node:
        if self.whole is not None:
            is_all = end - start == self.length
            cut = aten.slice.Tensor, self.whole, self.axis, start, end
            return self.whole if is_all else p.call(*cut)
        rows = self.parts[start:end]
        batch = rows[0][0].meta["val"].shape[0]
        if batch > 1 and self.axis == 0:
            return p.call(aten.stack.default, [_side_by_side(p, row) for row in rows], 0)
        flat = _side_by_side(p, [part for row in rows for part in row])
        size = [batch, end - start] if self.axis else [end - start, batch]
        return p.call(aten.view.default, flat, [*size, self.width])


def _side_by_side(p: Parts, parts: Sequence[fx.Node]) -> fx.Node:
    return parts[0] if len(parts) == 1 else p.call(aten.cat.default, list(parts), -1)


def direction(
    p: Parts, step: Step, w: Weights, x: Line, state: State, back: bool, room: int, tie: str
) -> tuple[list[fx.Node], State]:
    """All hidden states of a sequence in its order, and the last state of all.

    ``room`` is the memory that the products with several inputs have.
    """
    share = 2 * w.of_input.meta["val"].shape[0]
    count = min(x.length, max(p.at_once, (room - 1) // share))
    shares: dict[int, fx.Node] = {}
    seen: list[fx.Node] = []
    for index in reversed(range(x.length)) if back else range(x.length):
        start = index - index % count
        if start not in shares:
            part = x.block(p, start, min(start + count, x.length))
            shares[start] = p.call(aten.linear.default, part, w.of_input, w.input_bias, wide=True,
                                   tie=f"{tie}.gates/given")  # fmt: skip
        given = p.call(aten.select.int, shares[start], x.axis, index - start, wide=True)
        state = step(p, w, given, state, tie)
        seen.append(state[0])
    return seen[::-1] if back else seen, state


def _layers(
    p: Parts, step: Step, input: fx.Node, states: Sequence[fx.Node], params: Sequence[fx.Node],
    has_biases: bool, num_layers: int, bidirectional: bool, batch_first: bool,
) -> list[fx.Node]:  # fmt: skip
    """The sequence of the last layer, and each state after the last step of all layers."""
    ways, axis = 2 if bidirectional else 1, 1 if batch_first else 0
    each = len(params) // (num_layers * ways)
    last: list[State] = []
    x = Line(axis, input.meta["val"].shape[axis], input)
    wide = ways * states[0].meta["val"].shape[-1]
    for layer in range(num_layers):
        seen = []
        for way in range(ways):
            number = layer * ways + way
            weights = weights_of(params[number * each : (number + 1) * each], has_biases)
            state = tuple(
                p.call(aten.select.int, s, 0, number, wide=kind > 0)
                for kind, s in enumerate(states)
            )
            room = x.length * max(x.width, wide)
            room //= 2 if (way, ways) == (0, 2) else 1  # computed behind the other
            found, state = direction(p, step, weights, x, state, way == 1, room, str(number))
            seen.append(found)
            last.append(state)
        x = Line(axis, x.length, parts=tuple(zip(*seen)))
        if bidirectional and layer + 1 < num_layers:  # one layer after the other, not step by step
            x = Line(axis, x.length, x.block(p, 0, x.length))
    ends = [
        p.call(aten.stack.default, list(kind), 0, wide=number > 0)
        for number, kind in enumerate(zip(*last))
    ]
    lines = [p.call(aten.stack.default, line, axis) for line in seen]
    return [_side_by_side(p, lines), *ends]


def weights_of(params: Sequence[fx.Node], has_biases: bool) -> Weights:
    pair, rest = params[:2], params[2:]
    biases = rest[:2] if has_biases else [None, None]
    return Weights(*pair, *biases, *rest[len(biases) if has_biases else 0 :])


def _lstm(
    p: Parts, input: fx.Node, hx: Sequence[fx.Node], params: Sequence[fx.Node], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Any:  # fmt: skip
    made = _layers(
        p, _lstm_step, input, hx, params, has_biases, num_layers, bidirectional, batch_first
    )
    return tuple(made)


def _plain(step: Step) -> Any:
    """A layer whose state is one tensor."""

    def form(
        p: Parts, input: fx.Node, hx: fx.Node, params: Sequence[fx.Node], has_biases: bool,
        num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        made = _layers(
            p, step, input, [hx], params, has_biases, num_layers, bidirectional, batch_first
        )
        return tuple(made)

    return form


def _cell(step: Step) -> Any:
    """One step alone; an LSTM's state is two tensors."""

    def form(
        p: Parts, input: fx.Node, hx: Any, w_ih: fx.Node, w_hh: fx.Node,
        b_ih: fx.Node | None = None, b_hh: fx.Node | None = None,
    ) -> Any:  # fmt: skip
        weights = Weights(w_ih, w_hh, b_ih, b_hh)
        given = p.call(aten.linear.default, input, w_ih, b_ih, wide=True, tie="cell.gates")
        several = isinstance(hx, (list, tuple))
        state = step(p, weights, given, tuple(hx) if several else (hx,), "cell")
        return state if several else state[0]

    return form


_tanh_step, _relu_step = _rnn_step(aten.tanh.default, _BENDS), _rnn_step(aten.relu.default, None)
# One step of a layer, by its operator.
STEPS: dict[str, Step] = {
    "aten.lstm.input": _lstm_step, "aten.gru.input": _gru_step,
    "aten.rnn_tanh.input": _tanh_step, "aten.rnn_relu.input": _relu_step,
}  # fmt: skip
_FORMS: dict[str, Any] = {
    "aten.lstm.input": _lstm,
    "aten.gru.input": _plain(_gru_step),
    "aten.rnn_tanh.input": _plain(_tanh_step),
    "aten.rnn_relu.input": _plain(_relu_step),
    "aten.lstm_cell.default": _cell(_lstm_step),
    "aten.gru_cell.default": _cell(_gru_step),
    "aten.rnn_tanh_cell.default": _cell(_tanh_step),
    "aten.rnn_relu_cell.default": _cell(_relu_step),
}

"""Recurrent layers as loops: the calls of one step are a function, called for each element.

All layers of one direction are one step; where there are two directions, each layer has a loop
forwards and one backwards. Weights are constants of the function, states are carried. Ties and
marks are those of the steps of an unrolled layer, so both forms have the same integers.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.hints import MARK, Mark
from tosaic.passes.match import values_of
from tosaic.passes.unroll_rnn import STEPS, Parts, State, Weights, weights_of

aten = torch.ops.aten
_KINDS = "hidden", "cell"


def loops(node: fx.Node, longest: int) -> fx.GraphModule | None:
    """The parts of a recurrent call, as loops if it has more than ``longest`` steps in all."""
    step = STEPS.get(torchapi.target_name(node))
    if step is None or not longest:
        return None
    parts = Parts(node)
    parts.take_all()
    arguments = parts.arguments()
    axis = 1 if arguments["batch_first"] else 0
    count = arguments["input"].meta["val"].shape[axis]
    ways = 2 if arguments["bidirectional"] else 1
    if not isinstance(count, int) or count * ways * arguments["num_layers"] <= longest:
        return None
    held = {made: values_of(source) for source, made in parts.given.items()}
    if any(held.get(p) is None for p in arguments["params"]):
        return None
    return _Loops(parts, arguments, axis, count, ways, held).module()


class _Loops:
    def __init__(
        self, parts: Parts, arguments: dict[str, Any], axis: int, count: int, ways: int,
        held: dict[fx.Node, Tensor | None],
    ) -> None:  # fmt: skip
        self.parts, self.axis, self.count, self.ways = parts, axis, count, ways
        self.step, self.held = STEPS[torchapi.target_name(parts.node)], held
        self.input, self.layers = arguments["input"], arguments["num_layers"]
        self.has_biases, self.params = arguments["has_biases"], arguments["params"]
        given = arguments["hx"]
        self.states: Sequence[fx.Node] = [given] if isinstance(given, fx.Node) else given
        self.last: dict[int, list[fx.Node]] = {}

    def module(self) -> fx.GraphModule:
        p, x = self.parts, self.input
        if self.ways == 1:
            x = self._loop(x, list(range(self.layers)), False)
        else:
            for layer in range(self.layers):
                sides = [self._loop(x, [2 * layer + way], way == 1) for way in range(2)]
                x = p.call(aten.cat.default, sides, -1)
        ends = [
            p.call(aten.stack.default, [self.last[n][kind] for n in sorted(self.last)], 0,
                   wide=kind > 0)
            for kind in range(len(self.states))
        ]  # fmt: skip
        return p.module((x, *ends))

    def _loop(self, x: fx.Node, numbers: list[int], back: bool) -> fx.Node:
        """The hidden states of a sequence behind some layers, each of which feeds the next."""
        p = self.parts
        carried = [
            p.call(aten.select.int, s, 0, number, wide=kind > 0)
            for number in numbers for kind, s in enumerate(self.states)
        ]  # fmt: skip
        name = f"step_{numbers[0]}"
        p.root.add_module(name, self._body(x, carried, numbers))
        function = p.graph.create_node("get_attr", name)
        call = p.graph.call_function(
            torchapi.SCAN, (function, tuple(carried), (x,), (), self.count, self.axis, back)
        )
        shown = [c.meta["val"] for c in carried]
        hidden = shown[-len(self.states)]
        sizes = [*hidden.shape]
        sizes.insert(self.axis, self.count)
        line = torchapi.computed_beside(p.node, hidden.new_empty, (sizes,))
        call.meta["val"] = (*shown, line)
        made = []
        for place, value in enumerate(call.meta["val"]):
            item = p.graph.call_function(operator.getitem, (call, place))
            kind = place % len(self.states) if place < len(shown) else 0
            item.meta["val"], item.meta[MARK] = value, Mark(kind > 0)
            made.append(item)
        each = len(self.states)
        for place, number in enumerate(numbers):
            self.last[number] = made[place * each : (place + 1) * each]
        return made[-1]

    def _body(self, x: fx.Node, carried: list[fx.Node], numbers: list[int]) -> fx.GraphModule:
        """One step: from states and an element to the next states and the result."""
        body, node = Parts(self.parts.node), self.parts.node
        state: list[fx.Node] = []
        for place, given in enumerate(carried):
            number, kind = numbers[place // len(self.states)], place % len(self.states)
            made = body.take(f"{_KINDS[kind]}_{number}", given.meta["val"])
            made.meta[MARK] = Mark(kind > 0, f"{node.name}.{number}.{_KINDS[kind]}")
            state.append(made)
        whole = x.meta["val"]
        element = torchapi.computed_beside(node, whole.select, (self.axis, 0))
        value = body.take("element", element)
        value.meta[MARK] = Mark()
        following: list[fx.Node] = []
        for place, number in enumerate(numbers):
            w, tie = self._weights(body, number), str(number)
            given = body.call(aten.linear.default, value, w.of_input, w.input_bias, wide=True,
                              tie=f"{tie}.gates/given")  # fmt: skip
            own: State = tuple(state[place * len(self.states) : (place + 1) * len(self.states)])
            made_state = self.step(body, w, given, own, tie)
            value = made_state[0]
            following += made_state
        return body.module((*following, value))

    def _weights(self, body: Parts, number: int) -> Weights:
        each = len(self.params) // (self.layers * self.ways)
        own = self.params[number * each : (number + 1) * each]
        return weights_of([self._hold(body, p) for p in own], self.has_biases)

    def _hold(self, body: Parts, parameter: fx.Node) -> fx.Node:
        """A parameter as a constant of a step."""
        values = self.held[parameter]
        assert values is not None
        name = f"weight_{len(list(body.root.buffers()))}"
        body.root.register_buffer(name, values.detach(), persistent=False)
        made = body.graph.create_node("get_attr", name)
        made.meta["val"] = parameter.meta["val"]
        return made

"""Recurrent layers as loops: the calls of a few steps are a function, called again and again.

All layers of one direction are one loop; where there are two directions, each layer has a loop
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
from tosaic.ir.traits import Traits
from tosaic.passes.match import free_name, values_of
from tosaic.passes.rnn_states import STATES, Layers
from tosaic.passes.unroll_rnn import STEPS, Line, Parts, State, Weights, direction, weights_of

aten = torch.ops.aten
_KINDS = "hidden", "cell"
_LAST = "tosaic.last"  # results of a loop whose last element is a value that it carries


def loops(node: fx.Node, traits: Traits) -> fx.GraphModule | None:
    """The parts of a recurrent call as loops, if it has so many steps."""
    step = STEPS.get(torchapi.target_name(node))
    if step is None or not traits.longest_unrolled:
        return None
    parts = Parts(node)
    parts.take_all()
    arguments = parts.arguments()
    axis = 1 if arguments["batch_first"] else 0
    count = arguments["input"].meta["val"].shape[axis]
    ways = 2 if arguments["bidirectional"] else 1
    total = count * ways * arguments["num_layers"] if isinstance(count, int) else 0
    if total <= traits.longest_unrolled:
        return None
    held = {made: values_of(source) for source, made in parts.given.items()}
    if any(held.get(p) is None for p in arguments["params"]):
        return None
    return _Loops(parts, arguments, axis, count, _block(count, traits), held).module()


def _block(count: int, traits: Traits) -> int:
    """How many steps are a call: the divisor of all that is nearest to what the device wants."""
    wanted = traits.steps_a_call
    fits = [n for n in range(2, min(2 * wanted, count // 2 + 1)) if count % n == 0]
    return min((1, *fits), key=lambda n: max(n / wanted, wanted / n))


def steps_of(node: fx.Node) -> int | None:
    """How many steps a recurrent call has; None for any other call."""
    if torchapi.is_scan(node):
        return torchapi.scan_of(node).count
    if torchapi.target_name(node) not in STEPS:
        return None
    arguments = torchapi.bound_arguments(node)
    count = arguments["input"].meta["val"].shape[1 if arguments["batch_first"] else 0]
    return count if isinstance(count, int) else None


def read_last(module: fx.GraphModule) -> bool:
    """Let what reads the last element of a loop's results read what the loop carries instead.

    The results of all steps need not be kept then.
    """
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=aten.select.int):
        item, axis, index = node.args
        call = item.args[0] if item.target is operator.getitem else None
        if not isinstance(call, fx.Node) or not torchapi.is_scan(call):
            continue
        same, place, found = call.meta.get(_LAST, {}), item.args[1], torchapi.scan_of(call)
        sizes = item.meta["val"].shape
        end = 0 if found.back else sizes[axis] - 1
        at = axis % len(sizes), index % sizes[axis]
        if place in same and at == (found.axis_of(place), end):
            with module.graph.inserting_before(node):
                last = module.graph.call_function(operator.getitem, (call, same[place]))
            last.meta = dict(node.meta)
            node.replace_all_uses_with(last)
            module.graph.erase_node(node)
            changed = True
    return changed


class _Loops:
    def __init__(
        self, parts: Parts, arguments: dict[str, Any], axis: int, count: int, block: int,
        held: dict[fx.Node, Tensor | None],
    ) -> None:  # fmt: skip
        self.parts, self.axis, self.count, self.block = parts, axis, count, block
        self.ways = 2 if arguments["bidirectional"] else 1
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
        p.root.add_module(name, self._body(x, carried, numbers, back))
        function = p.graph.create_node("get_attr", name)
        how = self.count // self.block, (self.axis, self.axis), back, self.block
        call = p.graph.call_function(torchapi.SCAN, (function, tuple(carried), (x,), (), *how))
        shown = [c.meta["val"] for c in carried]
        hidden = shown[-len(self.states)]
        sizes = [*hidden.shape]
        sizes.insert(self.axis, self.count)
        line = torchapi.computed_beside(p.node, aten.new_empty.default, (hidden, sizes))
        call.meta["val"] = (*shown, line)
        call.meta[_LAST] = {len(shown): len(shown) - len(self.states)}
        call.meta[STATES] = self._states(numbers, back)
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

    def _body(self, x: fx.Node, carried: list[fx.Node], numbers: list[int], back: bool) -> Any:
        """A few steps: from states and some elements to the next states and the results."""
        body, node, each = Parts(self.parts.node, self.block), self.parts.node, len(self.states)
        state: list[fx.Node] = []
        for place, given in enumerate(carried):
            number, kind = numbers[place // each], place % each
            made = body.take(f"{_KINDS[kind]}_{number}", given.meta["val"])
            made.meta[MARK] = Mark(kind > 0, f"{node.name}.{number}.{_KINDS[kind]}")
            state.append(made)
        whole = x.meta["val"]
        some = torchapi.computed_beside(node, torch.narrow, (whole, self.axis, 0, self.block))
        elements = body.take("elements", some)
        elements.meta[MARK] = Mark()
        line, following = Line(self.axis, self.block, elements), list[fx.Node]()
        for place, number in enumerate(numbers):
            own: State = tuple(state[place * each : (place + 1) * each])
            seen, last = direction(
                body, self.step, self._weights(body, number), line, own, back, 0, str(number)
            )
            line = Line(self.axis, self.block, parts=tuple((hidden,) for hidden in seen))
            following += last
        return body.module((*following, line.block(body, 0, self.block)))

    def _weights(self, body: Parts, number: int) -> Weights:
        return weights_of([self._hold(body, p) for p in self._own(number)], self.has_biases)

    def _own(self, number: int) -> Sequence[fx.Node]:
        """The parameters of a layer and direction."""
        each = len(self.params) // (self.layers * self.ways)
        found: Sequence[fx.Node] = self.params[number * each : (number + 1) * each]
        return found

    def _states(self, numbers: list[int], back: bool) -> Layers:
        values = [[self.held[p] for p in self._own(number)] for number in numbers]
        parameters = tuple(tuple(v.detach() for v in row if v is not None) for row in values)
        name = torchapi.target_name(self.parts.node)
        return Layers(name, parameters, self.has_biases, self.axis, back)

    def _hold(self, body: Parts, parameter: fx.Node) -> fx.Node:
        """A parameter as a constant of a step."""
        values = self.held[parameter]
        assert values is not None
        name = free_name(body.root, f"weight_{len(list(body.root.buffers()))}")
        body.root.register_buffer(name, values.detach(), persistent=False)
        made = body.graph.create_node("get_attr", name)
        made.meta["val"] = parameter.meta["val"]
        return made

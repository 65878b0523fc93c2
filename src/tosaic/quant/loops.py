"""Loops in the quantizer: one range on both sides of a border, and integers across it.

A sequence and its elements, and what is carried before, in and behind a loop, are one value each.
Their observers have one range, so nothing is rescaled where they meet; once all is converted, the
integers themselves go in, round and out, and no step computes with real numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE
from tosaic.front.hints import MARK, Mark, mark_of
from tosaic.front.roles import is_real
from tosaic.passes.rnn_states import STATES
from tosaic.quant.annotations import ANNOTATION, annotation
from tosaic.quant.observer import RangeObserver
from tosaic.quant.pt2e import ObserverBase

_OPERATORS = torch.ops.quantized_decomposed
Pairs = list[tuple[fx.Node, fx.Node]]


def scans(module: fx.GraphModule) -> list[fx.Node]:
    return [n for n in module.graph.nodes if torchapi.is_scan(n)]


def body_of(call: fx.Node) -> fx.GraphModule:
    module = call.graph.owning_module
    assert module is not None
    found = torchapi.attribute(module, str(torchapi.scan_of(call).step.target))
    assert isinstance(found, fx.GraphModule)
    return found


def border_nodes(call: fx.Node) -> tuple[Pairs, Pairs]:
    """Operands beside what the step knows them as, and items of the result beside the step's."""
    graph = body_of(call).graph
    given = torchapi.scan_of(call).operands
    inputs = list(zip(given, graph.find_nodes(op="placeholder"), strict=True))
    results: Any = graph.output_node().args[0]
    return inputs, [(user, results[user.args[1]]) for user in call.users]


def mark_carried(module: fx.GraphModule) -> None:
    """Let what a loop carries have one range, and 16 bits unless its calls say otherwise."""
    for call in scans(module):
        body = body_of(call)
        results: Any = body.graph.output_node().args[0]
        inputs = body.graph.find_nodes(op="placeholder")
        count = len(torchapi.scan_of(call).carried)
        for place, (begin, end) in enumerate(zip(inputs[:count], results)):
            if is_real(begin) and isinstance(end, fx.Node):
                known = mark_of(end)
                mark = known if known.tie else replace(known, wide=True, tie=f"carried {place}")
                end.meta[MARK], begin.meta[MARK] = mark, Mark(mark.wide, mark.tie)
        for node in inputs[count:]:
            node.meta.setdefault(MARK, Mark())
        mark_carried(body)


def annotate_border(
    call: fx.Node, spec_of: Callable[[fx.Node], Any]
) -> Iterator[tuple[fx.Node, Any]]:
    """Ask for each value at the border what the step asks for; results with what is asked."""
    inputs, results = border_nodes(call)
    read = {outer: spec_of(inner) for outer, inner in inputs if is_real(outer)}
    call.meta[ANNOTATION] = annotation(read, None)
    for item, inner in results:
        if is_real(item):
            item.meta[ANNOTATION] = annotation({}, spec_of(inner))
            yield item, item.meta[ANNOTATION].output_qspec


def join_ranges(prepared: fx.GraphModule) -> None:
    """Let observers on both sides of a border have one range.

    Elements have that of their sequence, and so has a result of 8 bits; what is carried has the
    range of the step, which sees more of it.
    """
    for call in scans(prepared):
        carried = torchapi.scan_of(call).carried
        inputs, results = border_nodes(call)
        ends: Any = body_of(call).graph.output_node().args[0]
        for (_, begins), end in zip(inputs[: len(carried)], ends):
            _join(observer_of(end), _reader(begins))  # such as the known range of a tanh
        for place, (outer, inner) in enumerate(inputs):
            pair = observer_of(outer), _reader(inner)
            _join(*(reversed(pair) if place < len(carried) else pair))
        for item, inner in sorted(results, key=lambda r: -int(str(r[0].args[1]))):
            own = _reader(item)
            is_line = int(str(item.args[1])) >= len(carried)
            narrow = own is not None and own.dtype is torch.int8
            pair = own, observer_of(inner)
            _join(*(pair if is_line and narrow else reversed(pair)))
        join_ranges(body_of(call))


def _join(first: Any, second: Any) -> None:
    """Let the second observer have the range of the first, unless it has another's already."""
    if not isinstance(first, ObserverBase) or not isinstance(second, RangeObserver):
        return
    limits = [(o.dtype, o.quant_min, o.quant_max) for o in (first, second)]
    leader: Any = first
    while getattr(leader, "like", ()):
        leader = leader.like[0]
    if limits[0] == limits[1] and leader is not second and not second.like:
        second.like = (first,)


def _reader(node: fx.Node) -> Any:
    """The observer that reads a value."""
    return next((observer_of(u) for u in node.users if observer_of(u)), None)


def observer_of(node: fx.Node) -> Any:
    """The observer that a node calls, or None."""
    if node.op != "call_module" or node.graph.owning_module is None:
        return None
    found = node.graph.owning_module.get_submodule(str(node.target))
    return found if isinstance(found, ObserverBase) else None


def pass_integers(module: fx.GraphModule) -> None:
    """Let the integers of quantized values go into a loop, round it and out of it."""
    for call in scans(module):
        call.meta.pop(STATES, None)  # float weights, of which nobody asks any more
        pass_integers(body_of(call))
        _Border(call).pass_all()
        module.recompile()


class _Border:
    def __init__(self, call: fx.Node) -> None:
        self.call, self.body = call, body_of(call)
        self.inputs = self.body.graph.find_nodes(op="placeholder")
        end: Any = self.body.graph.output_node()
        self.end, self.results = end, list(end.args[0])
        given = torchapi.scan_of(call)
        self.groups = [list(group) for group in (given.carried, given.xs, given.read)]

    def pass_all(self) -> None:
        carried, shown = len(self.groups[0]), list(self.call.meta["val"])
        for place, node in enumerate(self.inputs):
            meaning = _read_as(node)
            is_carried = place < carried
            if meaning is None or (is_carried and _given_as(self.results[place]) != meaning):
                continue
            if is_carried:
                shown[place] = self._give(place, meaning)
            self._take(place, node, meaning)
        for place in range(carried, len(self.results)):
            if (given := _given_as(self.results[place])) is not None:
                shown[place] = self._give(place, given)
        self.end.args = (tuple(self.results),)
        self.call.args = (self.call.args[0], *map(tuple, self.groups), *self.call.args[4:])
        self.call.meta["val"] = tuple(shown)
        torchapi.sweep(self.body.graph)
        self.body.recompile()

    def _take(self, place: int, node: fx.Node, meaning: tuple[Any, ...]) -> None:
        """An operand as integers."""
        for user in list(node.users):
            if user is not self.end:
                user.replace_all_uses_with(node)
                self.body.graph.erase_node(user)
        node.meta["val"] = _integers(self.call, node.meta["val"], meaning)
        for group in self.groups:
            if place < len(group):
                group[place] = self._quantized(group[place], meaning)
                return
            place -= len(group)

    def _quantized(self, node: fx.Node, meaning: tuple[Any, ...]) -> fx.Node:
        if "dequantize_per_tensor" in str(node.target) and tuple(node.args[1:]) == meaning:
            source = node.args[0]
            assert isinstance(source, fx.Node)
            return source
        with self.call.graph.inserting_before(self.call):
            target = _OPERATORS.quantize_per_tensor.default
            return self.call.graph.call_function(target, (node, *meaning))

    def _give(self, place: int, meaning: tuple[Any, ...]) -> Tensor:
        """A result as integers, which those that read it dequantize."""
        self.results[place] = self.results[place].args[0]
        graph = self.call.graph
        items = [u for u in self.call.users if u.args[1] == place]
        shown = _integers(self.call, self.call.meta["val"][place], meaning)
        for item in items:
            item.meta["val"] = shown
            users = list(item.users)
            with graph.inserting_after(item):
                real = graph.call_function(
                    _OPERATORS.dequantize_per_tensor.default, (item, *meaning)
                )
            for user in users:
                if torchapi.target_name(user) == QUANTIZE and tuple(user.args[1:]) == meaning:
                    user.replace_all_uses_with(item)
                    graph.erase_node(user)
                else:
                    user.replace_input_with(item, real)
            if not real.users:
                graph.erase_node(real)
        return shown


def _read_as(node: fx.Node) -> tuple[Any, ...] | None:
    """What all readers quantize a value to."""
    found = {tuple(u.args[1:]) for u in node.users if torchapi.target_name(u) == QUANTIZE}
    others = [u for u in node.users if torchapi.target_name(u) != QUANTIZE]
    return found.pop() if len(found) == 1 and not others else None


def _given_as(node: Any) -> tuple[Any, ...] | None:
    """What the integers mean that a value is dequantized from."""
    is_real = isinstance(node, fx.Node) and "dequantize_per_tensor" in str(node.target)
    return tuple(node.args[1:]) if is_real else None


def _integers(beside: fx.Node, like: Tensor, meaning: tuple[Any, ...]) -> Tensor:
    empty = torch.empty(tuple(like.shape), dtype=meaning[-1])
    return torchapi.stand_in_beside(beside, empty)

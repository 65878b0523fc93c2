"""The values of all steps of a loop, which are observed together.

Histograms do not depend on how values come, so this is the same in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.lowering.support import constants
from tosaic.passes.rnn_states import Layers
from tosaic.quant.loops import observer_of
from tosaic.quant.observer import RangeObserver

_SAME = 1e-4  # as far as two kernels of a layer may differ, of 1 and of a state
_MOST = 1 << 26  # values of all steps that are held at once
Watch = Callable[[Sequence[Tensor]], object]
Made = tuple[tuple[Tensor, ...], Sequence[Tensor]]


@dataclass(frozen=True)
class Recorded:
    """A step whose observers look at its values later; ``watches`` are told those of some nodes."""

    step: fx.GraphModule
    watches: Mapping[Watch, list[fx.Node]]

    @classmethod
    def of(
        cls, step: fx.GraphModule, layers: Mapping[fx.Node, Callable[[Tensor], None]]
    ) -> Recorded | None:
        """``layers`` are told their inputs. None where that is not the same as to observe step by
        step: a step with branches or loops, or observers of rows."""
        found: dict[Watch, list[fx.Node]] = {}
        fixed = constants(step.graph)
        for node in step.graph.nodes:
            observer = observer_of(node)
            if torchapi.is_region_call(node) or getattr(observer, "row", None) is not None:
                return None
            source = _source(node) if observer is not None else node
            if isinstance(observer, RangeObserver):
                if source in fixed:
                    return None
                found.setdefault(observer.see_all, []).append(source)
            elif node in layers and isinstance(node.args[0], fx.Node):
                found[_each(layers[node])] = [_source(node.args[0])]
        return cls(step, found)

    def run(self, arguments: tuple[Any, ...], layers: Layers | None) -> Any:
        """What a loop gives; None if the values of all steps are too many."""
        sizes = (n.meta["val"].numel() for nodes in self.watches.values() for n in nodes)
        if sum(sizes) * arguments[3] > _MOST:
            return None
        made = None if layers is None else self._at_once(arguments, layers)
        results, seen = self._in_turn(arguments) if made is None else made
        values = iter(seen)
        for watch, nodes in self.watches.items():
            watch([next(values) for _ in nodes])
        return results

    def _in_turn(self, arguments: tuple[Any, ...]) -> Made:
        seen: list[tuple[Tensor, ...]] = []

        def once(*given: Any) -> Any:
            results, values = self._compiled(*given)
            seen.append(values)
            return results

        results = torchapi.SCAN(once, *arguments)
        return results, [torch.cat(v) if v[0].dim() else torch.stack(v) for v in zip(*seen)]

    def _at_once(self, arguments: tuple[Any, ...], layers: Layers) -> Made | None:
        """All steps side by side, from the states that fused kernels give; None if these differ
        from what the steps make of them, as where a pass has changed the step's weights."""
        carried, xs, read, count, axes, back, block = arguments
        each = block or 1
        known = layers.states(xs[0], carried)
        lines = [_elements(x, axis, count, block, back) for x, axis in zip(xs, axes)]
        given = [*(k[:-1:each] for k in known), *lines]
        step = torch.func.vmap(self._computed, in_dims=(*[0] * len(given), *[None] * len(read)))
        results, seen = step(*given, *read)
        for made, expected in zip(results, known):
            if not torch.allclose(made, expected[each::each], _SAME, _SAME):
                return None
        ends = [made[-1] for made in results[: len(carried)]]
        places = zip(results[len(carried) :], axes[len(xs) :])
        whole = [_in_line(made, axis, block, back) for made, axis in places]
        return (*ends, *whole), [v.flatten(0, 1) if v.dim() > 1 else v for v in seen]

    def _computed(self, *given: Tensor) -> Made:
        """The results of a step and what is looked at, node by node."""
        arguments, known = iter(given), dict[fx.Node, Any]()
        for node in self.step.graph.nodes:
            if node.op == "placeholder":
                known[node] = next(arguments)
            elif node.op == "get_attr":
                known[node] = torchapi.attribute(self.step, str(node.target))
            elif node.op == "call_module":
                known[node] = known[node.all_input_nodes[0]]
            elif node.op == "call_function":
                args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: known[n])
                known[node] = node.target(*args, **kwargs)
        results: Any = fx.map_arg(self.step.graph.output_node().args[0], lambda n: known[n])
        return tuple(results), tuple(known[n] for n in self._watched)

    @cached_property
    def _watched(self) -> list[fx.Node]:
        return [node for nodes in self.watches.values() for node in nodes]

    @cached_property
    def _compiled(self) -> fx.GraphModule:
        """The same as a program without observers, for many calls."""
        graph, known = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.step.graph.nodes:
            if node.op == "call_module":
                known[node] = known[node.all_input_nodes[0]]
            elif node.op != "output":
                known[node] = graph.node_copy(node, lambda n: known[n])
        results = fx.map_arg(self.step.graph.output_node().args[0], lambda n: known[n])
        graph.output((results, tuple(known[n] for n in self._watched)))
        return fx.GraphModule(self.step, graph)


def _source(node: fx.Node) -> fx.Node:
    """The value that an observer looks at, be it behind others."""
    while observer_of(node) is not None:
        node = node.all_input_nodes[0]
    return node


def _each(look: Callable[[Tensor], None]) -> Watch:
    def see(values: Sequence[Tensor]) -> None:
        for value in values:
            look(value)

    return see


def _elements(x: Tensor, axis: int, count: int, block: int, back: bool) -> Tensor:
    """The elements of a sequence along axis 0, in the order of the steps."""
    sizes = *x.shape[:axis], count, *([block] if block else []), *x.shape[axis + 1 :]
    made = x.reshape(sizes).movedim(axis, 0)
    return made.flip(0) if back else made


def _in_line(made: Tensor, axis: int, block: int, back: bool) -> Tensor:
    """The results of all steps as a sequence."""
    made = (made.flip(0) if back else made).movedim(0, axis)
    return made.flatten(axis, axis + 1) if block else made

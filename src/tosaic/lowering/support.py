"""Support check of a call: its rule runs on stand-in tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import SymInt, Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.registry import rule_for
from tosaic.ir.graph import Quant, Value
from tosaic.lowering.alternatives.mask import is_mask, mask_input
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.lowering.target import Target
from tosaic.passes.fold_constants import folded
from tosaic.spec import dtypes as d


class Trial:
    """Runs rules on stand-ins of the program's own types; nothing that they build is kept."""

    def __init__(self, target: Target, constants: set[fx.Node]) -> None:
        self.target, self.constants = target, constants
        self._answers: dict[Any, Unsupported | None] = {}

    def wanted(self, call: fx.Node) -> tuple[Quant, d.DType] | None:
        """What the result of a call must become; None if it may stay as it is."""
        return None

    def refusal(self, *calls: fx.Node) -> Unsupported | None:
        """Why calls, each on the accumulators of those before it, do not lower; None if they do.

        Calls that differ in nothing that a rule sees are tried once.
        """
        key = self._key(calls)
        if key is None:
            return self._tried(calls)
        if key not in self._answers:
            self._answers[key] = self._tried(calls)
        return self._answers[key]

    def _key(self, calls: tuple[fx.Node, ...]) -> Any:
        """All that a rule sees of calls; None if it sees numbers."""
        if any(self._integers(n) is not None for call in calls for n in call.all_input_nodes):
            return None
        parts: list[Any] = []
        for call in calls:

            def described(node: fx.Node, call: fx.Node = call) -> Any:
                place = calls.index(node) if node in calls else -1
                return place, node in self.constants, self.described(call, node)

            given = str(fx.map_arg((call.args, call.kwargs), described))
            parts.append((call.target, given, self.wanted(call), *_read(call)))
        return tuple(parts)

    def described(self, call: fx.Node, node: fx.Node) -> Any:
        """What stands for an operand, in short."""
        example = node.meta.get("val")
        if not isinstance(example, Tensor):
            return node.name
        return example.dtype, tuple(example.shape)

    def _tried(self, calls: tuple[fx.Node, ...]) -> Unsupported | None:
        b, known = Lowering.of(self.target), dict[fx.Node, Value]()
        result: Any = None
        wanted = self.wanted(calls[-1])
        try:
            for call in calls:
                b.wanted = wanted if call is calls[-1] else None
                rule = rule_for(call)
                result = known[call] = rule.lower(b, **self._arguments(b, call, known))
            several = result if isinstance(result, (list, tuple)) else [result]
            for index, value in enumerate(several):
                if value is None and index in _read(calls[-1]):
                    raise Unsupported(f"result {index} of this operator has no form in TOSA")
                if wanted is None or value is None or value.quant is None or is_mask(value):
                    continue
                b.requantize(value, *wanted)
        except Unsupported as refusal:
            return refusal
        return None

    def _arguments(
        self, b: Lowering, call: fx.Node, known: Mapping[fx.Node, Value]
    ) -> dict[str, Any]:
        def stand_in(argument: Any, name: str) -> Any:
            if isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), SymInt):
                size = torchapi.likely_size(argument.meta["val"])
                if size is not None:
                    return size
            if isinstance(argument, fx.Node):
                return known[argument] if argument in known else self.value(b, argument, call, name)
            if isinstance(argument, (list, tuple)):
                return [stand_in(item, name) for item in argument]
            return argument

        bound = torchapi.bound_arguments(call)
        return {name: stand_in(value, name) for name, value in bound.items()}

    def value(self, b: Lowering, node: fx.Node, call: fx.Node, name: str) -> Value:
        """What stands for a tensor that a call has as the argument of that name."""
        known = self._integers(node)
        if known is not None:
            return b.tensor(known)
        return self.made(b, node, TYPES[_example(node).dtype], None)

    def _integers(self, node: fx.Node) -> Tensor | None:
        """The numbers of a constant that are no real ones: indices decide what a rule does."""
        if _is_real(node):
            return None
        if node.op == "get_attr":
            module = node.graph.owning_module
            return None if module is None else torchapi.attribute(module, str(node.target))
        if node.all_input_nodes and node not in self.constants:
            return None
        found = folded(node, {n: self._integers(n) for n in node.all_input_nodes})
        return found if isinstance(found, Tensor) else None

    def made(self, b: Lowering, node: fx.Node, kind: d.DType, quant: Quant | None) -> Value:
        """A constant or an input of the tensor's shape."""
        shape = torchapi.likely_shape(_example(node))
        if shape is None:
            raise Unsupported(f"{node.name} has a size that depends on the input")
        if node in self.constants:
            return b.const(lambda: np.zeros(shape), kind, quant=quant, shape=shape)
        if kind is d.BOOL:
            return mask_input(b, shape)
        return b.with_quant(b.input(kind, shape), quant)


def _read(call: fx.Node) -> list[int]:
    """Which of the results of a call are read."""
    items = [u for u in call.users if torchapi.target_name(u) == "getitem" and u.users]
    return sorted({index for item in items if isinstance(index := item.args[1], int)})


def _is_real(node: fx.Node) -> bool:
    example = node.meta.get("val")
    return not isinstance(example, Tensor) or example.dtype.is_floating_point


def _example(node: fx.Node) -> Tensor:
    example = node.meta.get("val")
    if not isinstance(example, Tensor):
        raise Unsupported(
            f"{node.name} is a number that is known only when it runs: keep it a tensor"
        )
    if example.dtype not in TYPES:
        raise Unsupported(f"{node.name} is {example.dtype}, which TOSA does not have")
    return example


def constants(graph: fx.Graph) -> set[fx.Node]:
    """Parameters, buffers, and what is computed from nothing else."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        inputs = node.all_input_nodes
        if node.op == "get_attr" or (
            node.op == "call_function" and inputs and found.issuperset(inputs)
        ):
            found.add(node)
    return found

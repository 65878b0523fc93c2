"""One call after the other: each runs its rule; quantize and dequantize fold into meaning."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.lower import TYPES, Lowering
from tosaic.front.program import Program
from tosaic.front.registry import rule_of
from tosaic.ir.graph import Quant, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env

_NAMESPACE = "quantized_decomposed"
QUANTIZE = f"{_NAMESPACE}.quantize_per_tensor.default"
DEQUANTIZE = {
    f"{_NAMESPACE}.dequantize_per_tensor.default",
    f"{_NAMESPACE}.dequantize_per_channel.default",
}


class Walker:
    """Lowers calls into a graph, one by one; ``values`` holds what each node became."""

    def __init__(self, program: Program, env: Env) -> None:
        self.program, self.b = program, Lowering(env)
        self.values: dict[fx.Node, Any] = dict(program.tensors)

    def take(self, node: fx.Node, value: Value) -> None:
        """Make a value of another graph or of PyTorch an input of this one."""
        made = self.b.input(value.dtype, value.shape, node.name)
        self.values[node] = self.b.marked(made, value.quant)

    def call(self, node: fx.Node) -> Any:
        """What a call becomes; Unsupported with the reason and the user's own line."""
        self.b.loc = torchapi.location(node)
        try:
            self.values[node] = self._lower(node, torchapi.target_name(node))
        except Unsupported as refusal:
            raise Unsupported(refusal.reason, refusal.where or self.b.loc) from None
        return self.values[node]

    def _lower(self, node: fx.Node, target: str) -> Any:
        if target == "getitem":
            picked = self.argument(node.args[0])[node.args[1]]
            if picked is None:
                raise Unsupported(f"result {node.args[1]} of this operator has no form in TOSA")
            return picked
        arguments = {k: self.argument(v) for k, v in torchapi.bound_arguments(node).items()}
        if target == QUANTIZE:
            return self.b.settle(arguments["input"], *parameters(arguments))
        if target in DEQUANTIZE:
            return self._dequantize(arguments)
        self.b.wanted = self._wanted(node)
        result = rule_of(target).lower(self.b, **arguments)
        if self.b.wanted is not None and isinstance(result, Value):
            result = self.b.settle(result, *self.b.wanted)
        return result

    def _dequantize(self, arguments: dict[str, Any]) -> Value:
        """Integers of a constant or an input get their meaning; a computed value has it."""
        value: Value = arguments["input"]
        if value.is_const or (value.quant is None and value.producer is None):
            value.quant = constant_parameters(arguments)
        return value

    def _wanted(self, node: fx.Node) -> tuple[Quant, d.DType] | None:
        """What the program quantizes the result to, if it does so right after the call."""
        for user in self.program.users.get(node, [])[:1]:
            if torchapi.target_name(user) == QUANTIZE:
                return parameters(torchapi.bound_arguments(user))
        return None

    def argument(self, argument: Any) -> Any:
        """An argument with nodes replaced by values; a tensor becomes a constant on the way."""
        if isinstance(argument, fx.Node):
            if argument not in self.values:
                raise Unsupported(f"it needs {argument.name}, which is not lowered")
            value = self.values[argument]
            return self.b.tensor(value) if isinstance(value, torch.Tensor) else value
        if isinstance(argument, (list, tuple)):
            return [self.argument(a) for a in argument]
        return argument


def parameters(arguments: dict[str, Any]) -> tuple[Quant, d.DType]:
    """Scale, zero point and type of a quantize or dequantize call."""
    kind = TYPES.get(arguments["dtype"])
    if kind is None or not kind.is_int:
        raise Unsupported(f"values cannot be quantized to {arguments['dtype']}")
    return Quant(float(arguments["scale"]), int(arguments["zero_point"])), kind


def constant_parameters(arguments: dict[str, Any]) -> Quant:
    """The meaning of a constant, with one scale or one for each channel."""
    if "scales" not in arguments:
        return parameters(arguments)[0]
    scales: Value = arguments["scales"]
    if scales.const is None:
        raise Unsupported("the scales of a constant must be constants")
    return Quant(tuple(scales.const.array.astype(float).tolist()), 0, int(arguments["axis"]))

"""Calls that convert integer operands to real numbers, as PyTorch promotes them."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE, fuses_activation, joins
from tosaic.front.precision import left_in_float
from tosaic.front.program import Program
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.cast import to_real
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import Lowering


class Reals:
    """Operands of calls as real numbers, each made once."""

    def __init__(self, program: Program, b: Lowering) -> None:
        self.program, self.b = program, b
        self.made: dict[Value, Value] = {}

    def keep(self, count: int) -> None:
        """Forget all but so many that were made first."""
        while len(self.made) > count:
            self.made.popitem()

    def operands(self, node: fx.Node, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """The operands of a call that computes with real numbers; None for one with integers."""
        if not self._computes(node, arguments):
            return None
        return {name: self._real(value) for name, value in arguments.items()}

    def _computes(self, node: fx.Node, arguments: dict[str, Any]) -> bool:
        """Whether a call is to compute with real numbers, where the target has those, too."""
        has_floats = "FP" in self.b.env.profiles
        if left_in_float(node) and any(map(_has_meaning, arguments.values())):
            if not has_floats:
                raise Unsupported(f"{self.b.env} has integers alone")
            return True
        example, weight = node.meta.get("val"), arguments.get("weight")
        if isinstance(example, torch.Tensor) and not example.dtype.is_floating_point:
            return False
        return has_floats and not _has_meaning(weight) and not self._becomes_integers(node)

    def _becomes_integers(self, node: fx.Node) -> bool:
        """Whether a result is quantized: at once, or after what rides on it or adds it up."""
        users, own = self.program.users.get(node, []), torchapi.target_name(node)
        for user in users:
            name = torchapi.target_name(user)
            follows = len(users) == 1 and (fuses_activation(own, name) or joins(own, name))
            goes_on = follows or name == "getitem"
            if name == QUANTIZE or (goes_on and self._becomes_integers(user)):
                return True
        return False

    def _real(self, argument: Any) -> Any:
        if isinstance(argument, list):
            return [self._real(item) for item in argument]
        if not _has_meaning(argument):
            return argument
        if argument not in self.made:
            self.made[argument] = to_real(self.b, argument)
        return self.made[argument]


def _has_meaning(argument: Any) -> bool:
    """Whether integers stand for real numbers."""
    if isinstance(argument, list):
        return any(map(_has_meaning, argument))
    return isinstance(argument, Value) and argument.quant is not None and not is_mask(argument)

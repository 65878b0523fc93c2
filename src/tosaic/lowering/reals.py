"""Calls that convert operands: integers to real numbers, 8-bit floats to those that compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import QUANTIZE, fuses_activation, fuses_sum
from tosaic.front.precision import left_in_float
from tosaic.front.program import Program
from tosaic.ir.graph import Value
from tosaic.lowering.alternatives.cast import float_cast, to_real
from tosaic.lowering.alternatives.data_movement import first
from tosaic.lowering.alternatives.mask import is_mask
from tosaic.lowering.builder import Lowering
from tosaic.spec import dtypes as d


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
        """Whether a result is quantized: at once, or after what is fused with it."""
        users, own = self.program.users.get(node, []), torchapi.target_name(node)
        for user in users:
            name = torchapi.target_name(user)
            follows = len(users) == 1 and (fuses_activation(own, name) or fuses_sum(own, name))
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


def by_rule(b: Lowering, lower: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What a rule makes; 8-bit floats that it has no form for become float32, and it them again."""
    kinds = [v.dtype for v in _values(list(arguments.values())) if v.dtype.is_float8]
    if not kinds:
        return lower(b, **arguments)

    def through_float32() -> Any:
        wide = {name: _each(value, narrow_to_wide) for name, value in arguments.items()}
        return _each(lower(b, **wide), wide_to_narrow)

    def narrow_to_wide(value: Value) -> Value:
        return float_cast(b, value, d.F32) if value.dtype.is_float8 else value

    def wide_to_narrow(value: Value) -> Value:
        return float_cast(b, value, kinds[0]) if value.dtype is d.F32 else value

    return first(b, lambda: lower(b, **arguments), through_float32)


def _values(argument: Any) -> list[Value]:
    if isinstance(argument, (list, tuple)):
        return [value for item in argument for value in _values(item)]
    return [argument] if isinstance(argument, Value) else []


def _each(argument: Any, change: Callable[[Value], Value]) -> Any:
    """An argument with its values changed."""
    if isinstance(argument, (list, tuple)):
        return [_each(item, change) for item in argument]
    return change(argument) if isinstance(argument, Value) else argument


def _has_meaning(argument: Any) -> bool:
    """Whether integers stand for real numbers."""
    if isinstance(argument, list):
        return any(map(_has_meaning, argument))
    return isinstance(argument, Value) and argument.quant is not None and not is_mask(argument)

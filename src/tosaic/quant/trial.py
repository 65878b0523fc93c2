"""Would a call lower in integers? Its rule runs on quantized stand-ins, and its answer counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import trial
from tosaic.front.lower import TYPES, Lowering
from tosaic.ir.graph import Quant, Value
from tosaic.quant.roles import is_real, role_of
from tosaic.quant.schemes import Scheme
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env
from tosaic.targets.base import Target

_STEP = 2.0**-6


class Trial(trial.Trial):
    """Runs rules on stand-ins in the integers of a scheme."""

    def __init__(
        self,
        scheme: Scheme,
        constants: set[fx.Node],
        target: Target | None = None,
        kind: Callable[[fx.Node, fx.Node | None], d.DType] | None = None,
    ) -> None:
        used = target or Target(scheme.env, Env.parse(scheme.env))
        super().__init__(used.env, constants, used.constraints)
        usual = TYPES[scheme.dtype]
        self.kind = kind or (lambda call, operand: usual)

    def wanted(self, call: fx.Node) -> tuple[Quant, d.DType] | None:
        kind = self.kind(call, None)
        return Quant(2 * _STEP, _zero(kind)), kind

    def described(self, call: fx.Node, node: fx.Node) -> Any:
        kind = self.kind(call, node) if is_real(node) else None
        return super().described(call, node), kind

    def value(self, b: Lowering, node: fx.Node, call: fx.Node, name: str) -> Value:
        role = role_of(call, name)
        if role.kind != "activation" and node not in self.constants:
            raise Unsupported(f"the {role.kind} {node.name} is computed, and must be a constant")
        if not is_real(node) or role.kind == "constant":
            return super().value(b, node, call, name)
        shape = node.meta["val"].shape
        if role.kind == "weight":
            return self.made(b, node, d.I8, Quant((_STEP,) * shape[role.axis], 0, role.axis))
        if role.kind == "bias":
            return self.made(b, node, d.I32, Quant((_STEP * _STEP,) * shape[0], 0, 0))
        kind = self.kind(call, node)
        return self.made(b, node, kind, Quant(_STEP, _zero(kind)))


def _zero(kind: d.DType) -> int:
    """Any zero point an activation may have."""
    return 3 if kind is d.I8 else 0

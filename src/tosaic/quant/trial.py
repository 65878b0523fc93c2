"""Would a call lower in integers? Its rule runs on quantized stand-ins, and its answer counts."""

from __future__ import annotations

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
    """Runs rules on stand-ins in the integers of a scheme; results are those of ``out``."""

    def __init__(
        self, scheme: Scheme, constants: set[fx.Node], target: Target | None, out: Scheme
    ) -> None:
        used = target or Target(scheme.env, Env.parse(_with(scheme.env, out.env)))
        super().__init__(used.env, constants, used.constraints)
        self.scheme, self.kind = scheme, TYPES[scheme.dtype]
        self.zero = _zero(self.kind)
        self.wanted = Quant(2 * _STEP, _zero(TYPES[out.dtype])), TYPES[out.dtype]

    def value(self, b: Lowering, node: fx.Node, call: fx.Node, name: str) -> Value:
        role = role_of(call, name)
        if role.kind != "activation" and node not in self.constants:
            raise Unsupported(f"the {role.kind} {node.name} is computed, and must be a constant")
        if not is_real(node) or role.kind == "constant":
            return super().value(b, node, call, name)
        shape = node.meta["val"].shape
        if role.kind == "weight":
            meaning = self._steps(_STEP, shape[role.axis], role.axis)
            return self.made(b, node, self.scheme.weight_kind, meaning)
        if role.kind == "bias":
            return self.made(b, node, d.I32, self._steps(_STEP * _STEP, shape[0], 0))
        return self.made(b, node, self.kind, Quant(_STEP, self.zero))

    def _steps(self, step: float, channels: int, axis: int) -> Quant:
        """Scales of a weight or a bias."""
        return Quant((step,) * channels, 0, axis) if self.scheme.per_channel else Quant(step)


def _zero(kind: d.DType) -> int:
    """Any zero point that an activation may have."""
    return 3 if kind is d.I8 else 0


def _with(one: str, other: str) -> str:
    """A specification with what two have."""
    names = dict.fromkeys([*one.split("+"), *other.split("+")])
    return "+".join(names)

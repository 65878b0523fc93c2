"""Support check in integers: the rule of a call runs on quantized stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import fuses_sum
from tosaic.front.roles import is_real, role_of
from tosaic.ir.graph import Quant, Value
from tosaic.lowering import support as trial
from tosaic.lowering.alternatives.stepwise import stepwise
from tosaic.lowering.builder import Lowering
from tosaic.lowering.target import Target
from tosaic.passes.fuse_unary import Curve
from tosaic.passes.match import only_user
from tosaic.quant.annotations import ANNOTATION
from tosaic.quant.schemes import Scheme
from tosaic.spec import dtypes as d

_STEP = 2.0**-6
_STEPS = {d.I16: 2.0**-15, d.I32: 1.0}  # what a table is good for is within the same range


class Trial(trial.Trial):
    """Runs rules on stand-ins in the integers of each call's scheme.

    ``kind`` is the type that a call reads an operand in, or gives its result in.
    """

    def __init__(
        self,
        constants: set[fx.Node],
        target: Target,
        kind: Callable[[fx.Node, fx.Node | None], d.DType],
        scheme: Callable[[fx.Node], Scheme | None],
    ) -> None:
        super().__init__(target, constants)
        self.kind, self.scheme = kind, scheme

    def wanted(self, call: fx.Node) -> tuple[Quant, d.DType] | None:
        kind = self.kind(call, None)
        return Quant(2 * _STEPS.get(kind, _STEP), _zero(kind)), kind

    def refuses_curve(self, curve: Curve) -> Unsupported | None:
        """Why no table does what several calls do with one value; None if one does."""
        b = Lowering.of(self.target)
        b.wanted, source = self.wanted(curve.last), curve.sources[0]
        kind = next(self.kind(call, source) for call in curve.calls if curve.read_by(call))
        try:
            x = self.made(b, source, kind, Quant(_STEPS.get(kind, _STEP), _zero(kind)))
            if kind is self.kind(curve.last, None) is d.I8 or kind is d.I32:
                b.table(x, curve)
            else:
                stepwise(b, x, _jump)
        except Unsupported as refusal:
            return refusal
        return None

    def described(self, call: fx.Node, node: fx.Node) -> Any:
        kind = self.kind(call, node) if is_real(node) else None
        return super().described(call, node), kind, self.scheme(call)

    def value(self, b: Lowering, node: fx.Node, call: fx.Node, name: str) -> Value:
        role = role_of(call, name)
        if role.kind != "activation" and node not in self.constants:
            raise Unsupported(f"the {role.kind} {node.name} is computed, and must be a constant")
        if not is_real(node) or role.kind == "constant":
            return super().value(b, node, call, name)
        shape = node.meta["val"].shape
        if role.kind == "weight":
            kind, meaning = self._weight(call, shape[role.axis], role.axis)
            return self.made(b, node, kind, meaning)
        if role.kind == "bias":
            _, meaning = self._weight(call, shape[0] if shape else 1, 0)
            return self.made(b, node, d.I32, _times(meaning, _STEP))
        kind = self.kind(call, node)
        return self.made(b, node, kind, Quant(_STEPS.get(kind, _STEP), _zero(kind)))

    def _weight(self, call: fx.Node, channels: int, axis: int) -> tuple[d.DType, Quant]:
        """The type of a call's weights, and what they mean."""
        scheme = self.scheme(call)
        assert scheme is not None
        meaning = Quant((_STEP,) * channels, 0, axis) if scheme.per_channel else Quant(_STEP)
        return scheme.weight_kind, meaning


def joined_sums(
    graph: fx.Graph, trial: Trial, scheme: Callable[[fx.Node], Scheme | None]
) -> dict[fx.Node, tuple[fx.Node, ...]]:
    """For each sum the layers that nothing else reads, if it can add their accumulators."""
    found: dict[fx.Node, tuple[fx.Node, ...]] = {}
    for node in graph.nodes:
        own = scheme(node) if node.op == "call_function" and is_real(node) else None
        if own is None or ANNOTATION in node.meta:
            continue
        name = torchapi.target_name(node)
        layers = tuple(
            n for n in node.all_input_nodes
            if n.op == "call_function" and n not in trial.constants and is_real(n)
            and scheme(n) == own and ANNOTATION not in n.meta
            and fuses_sum(torchapi.target_name(n), name) and only_user(n) is node
        )  # fmt: skip
        if layers and trial.refusal(*layers, node) is None:
            found[node] = layers
    return found


def _jump(x: Tensor) -> Tensor:
    """What stands for any function with jumps."""
    return (x > 0).to(x.dtype)


def _times(quant: Quant, factor: float) -> Quant:
    scale = quant.scale
    wider = tuple(s * factor for s in scale) if isinstance(scale, tuple) else scale * factor
    return Quant(wider, quant.zero_point, quant.axis)


def _zero(kind: d.DType) -> int:
    """Any zero point an activation may have."""
    return 3 if kind is d.I8 else 0

"""Would a call lower in integers? Its rule runs on stand-in tensors, and its answer counts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from torch import Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.lower import TYPES, Lowering
from tosaic.front.masks import is_mask, mask_input
from tosaic.front.registry import rule_of
from tosaic.ir.graph import Quant, Value
from tosaic.quant.roles import Role, is_real, role_of
from tosaic.quant.schemes import Scheme
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env
from tosaic.targets.base import Target

_STEP = 2.0**-6


class Trial:
    """Runs rules on quantized stand-ins; nothing that they build is kept."""

    def __init__(
        self, scheme: Scheme, constants: set[fx.Node], target: Target | None = None
    ) -> None:
        self.scheme, self.constants = scheme, constants
        self.target = target or Target(scheme.env, Env.parse(scheme.env))
        self.kind = TYPES[scheme.dtype]
        self.zero = 3 if self.kind is d.I8 else 0  # any zero point an activation may have

    def refusal(self, node: fx.Node, rider: fx.Node | None = None) -> Unsupported | None:
        """Why the call, with an activation on its accumulator, does not lower; None if it does."""
        b = Lowering(self.target.env, constraints=self.target.constraints)
        wanted = Quant(2 * _STEP, self.zero), self.kind
        try:
            b.wanted = None if rider else wanted
            rule = rule_of(torchapi.target_name(node))
            result = rule.lower(b, **self._arguments(b, node))
            if rider is not None:
                b.wanted = wanted
                arguments = self._arguments(b, rider, {node: result})
                result = rule_of(torchapi.target_name(rider)).lower(b, **arguments)
            for value in result if isinstance(result, (list, tuple)) else [result]:
                if value is not None and value.quant is not None and not is_mask(value):
                    b.settle(value, *wanted)
        except Unsupported as refusal:
            return refusal
        return None

    def _arguments(
        self, b: Lowering, call: fx.Node, known: Mapping[fx.Node, Value] = MappingProxyType({})
    ) -> dict[str, Any]:
        def stand_in(argument: Any, role: Role) -> Any:
            if isinstance(argument, fx.Node):
                return known[argument] if argument in known else self._value(b, argument, role)
            if isinstance(argument, (list, tuple)):
                return [stand_in(item, role) for item in argument]
            return argument

        bound = torchapi.bound_arguments(call)
        return {name: stand_in(value, role_of(call, name)) for name, value in bound.items()}

    def _value(self, b: Lowering, node: fx.Node, role: Role) -> Value:
        example = node.meta.get("val")
        if not isinstance(example, Tensor) or example.dtype not in TYPES:
            raise Unsupported(f"{node.name} is no tensor that TOSA knows")
        if role.kind != "activation" and node not in self.constants:
            raise Unsupported(f"the {role.kind} {node.name} is computed, and must be a constant")
        shape, quant = tuple(int(size) for size in example.shape), None
        kind = TYPES[example.dtype]
        if is_real(node) and role.kind != "constant":
            kind, quant = self.kind, Quant(_STEP, self.zero)
            if role.kind == "weight":
                kind, quant = d.I8, Quant((_STEP,) * shape[role.axis], 0, role.axis)
            elif role.kind == "bias":
                kind, quant = d.I32, Quant((_STEP * _STEP,) * shape[0], 0, 0)
        known = None if is_real(node) else self._integers(node)
        if known is not None:
            return b.tensor(known)
        if node in self.constants:
            return b.const(lambda: np.zeros(shape), kind, quant=quant, shape=shape)
        if kind is d.BOOL:
            return mask_input(b, shape)
        return b.marked(b.input(kind, shape), quant)

    def _integers(self, node: fx.Node) -> Tensor | None:
        """The numbers of a constant that are no real ones: indices decide what a rule does."""
        if node.op == "get_attr":
            module = node.graph.owning_module
            return None if module is None else torchapi.attribute(module, str(node.target))
        if torchapi.overload_of(node) is None or (
            node.all_input_nodes and node not in self.constants
        ):
            return None
        given = {n: self._integers(n) for n in node.all_input_nodes if not is_real(n)}
        if len(given) < len(node.all_input_nodes) or None in given.values():
            return None
        found = torchapi.evaluate(node, given)
        return found if isinstance(found, Tensor) else None

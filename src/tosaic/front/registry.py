"""The registry of lowering rules: one function an ATen operator, with its samples.

A rule has the arguments of the operator's schema behind the Builder. Running it is the support
check: it returns the result, or the Builder raises Unsupported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.hints import LACKS
from tosaic.spec.dtypes import I8, I16, DType

Lowered = Callable[..., Any]
Function = TypeVar("Function", bound=Lowered)


@dataclass(frozen=True, slots=True)
class Sample:
    """A use of an operator to test a rule with: shapes of tensor arguments, then the others.

    A tensor among the others is a constant, and ``...`` there, or in a list, the next tensor
    that is none.
    ``kinds`` are the types of tensors that are not real: "bool", "i32", and indices into n
    elements: "index:n" counts from 0, "signed:n" from either end, "distinct:n" repeats none.
    """

    shapes: tuple[tuple[int, ...], ...]
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()
    domain: tuple[float, float] = (-3.0, 3.0)
    steps: int = 1  # how far an integer result may be from the rounded real one
    steps16: int = 0  # the same for int16, where it is more
    kinds: tuple[str, ...] = ()
    whole: bool = False  # real numbers are whole, so that some are equal
    integers: tuple[DType, ...] | None = None  # where it has fewer integer forms than its rule

    def kind(self, index: int) -> str:
        """The type of a tensor argument, "" for real numbers."""
        return self.kinds[index] if index < len(self.kinds) else ""


@dataclass(frozen=True, slots=True)
class Rule:
    """How operators lower, and how the quantizer treats them.

    ``policy`` is FREE (every tensor has its own parameters), SHARED (the output has those of the
    input), WEIGHTED (argument 1 is a weight, argument 2 a bias), FIXED (the output lies within
    ``limits``, whatever the data) or NONE (stays in float).
    """

    lower: Lowered
    policy: str
    samples: tuple[Sample, ...]
    integers: tuple[DType, ...] = (I8, I16)
    integers_why: str = ""
    weight_axis: int = 0  # the axis of the output channels in a weight
    constants: bool = False  # tensors after the first are constants, which stay in float
    limits: tuple[float, float] | None = None
    masks: tuple[str, ...] = ()  # arguments that stay in float where they are constants
    wide: tuple[str, ...] = ()  # arguments that want 16 bits where the target has them


RULES: dict[str, Rule] = {}


def rule(
    *targets: str,
    policy: str = "FREE",
    samples: Sequence[Sample] = (),
    integers: Sequence[DType] = (I8, I16),
    why: str = "",
    weight_axis: int = 0,
    constants: bool = False,
    limits: tuple[float, float] | None = None,
    masks: tuple[str, ...] = (),
    wide: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Register a rule for overloads such as ``aten.relu.default``.

    ``integers`` are the quantized types that it has a form for, and ``why`` says why not more.
    """

    def register(lower: Function) -> Function:
        made = Rule(
            lower, policy, tuple(samples), tuple(integers), why, weight_axis, constants, limits,
            masks, wide,
        )  # fmt: skip
        RULES.update((target, made) for target in targets)
        return lower

    return register


def shared(*targets: str, samples: Sequence[Sample] = ()) -> Callable[[Function], Function]:
    """A rule whose result has the parameters of its operand: it moves numbers, or picks some."""
    return rule(*targets, policy="SHARED", samples=samples)


def rule_of(target: str) -> Rule:
    """The rule of an operator; Unsupported if there is none."""
    found = RULES.get(target)
    if found is None:
        raise Unsupported(f"there is no rule for {target}")
    return found


def rule_for(call: fx.Node) -> Rule:
    """The rule of a call; if there is none, Unsupported says which of its parts is refused."""
    target = torchapi.target_name(call)
    if target not in RULES and LACKS in call.meta:
        raise Unsupported(call.meta[LACKS])
    return rule_of(target)

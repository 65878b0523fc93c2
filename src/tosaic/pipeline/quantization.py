"""Quantization of each call as the report shows it: scheme, rule and parameters, or the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE, fuses_activation, fuses_sum
from tosaic.front.precision import CHOICE, Choice
from tosaic.front.program import Program
from tosaic.runtime.printed import Printed, grid
from tosaic.spec.dtypes import fits_int4

_FLOAT = "float"
BLOCK_LAYERS = ("tosaic.mx_linear.default", "tosaic.mx_conv2d.default")


@dataclass(frozen=True, slots=True)
class Integers:
    """The integers of a tensor: their type, and one scale and zero point or the ends of several."""

    dtype: str
    scales: tuple[float, ...]
    zero_point: int = 0
    channels: int = 1

    def __str__(self) -> str:
        if self.channels > 1:
            low, high = self.scales
            return f"{self.dtype}, {self.channels} scales {low:.3g} to {high:.3g}"
        zero = f", zero point {self.zero_point}" if self.zero_point else ""
        return f"{self.dtype}, scale {self.scales[0]:.3g}{zero}"


@dataclass(frozen=True, slots=True)
class QuantizedCall:
    """A call, the scheme it computes in, the rule it has it from, and its integers.

    ``reason`` says why a call is in float although a rule gave it a scheme. A result without
    integers goes on as an accumulator, or is in float.
    """

    node: str
    op: str
    module: str
    scheme: str
    rule: str
    reason: str = ""
    result: Integers | None = None
    weight: Integers | None = None


@dataclass(frozen=True)
class Quantization(Printed):
    """Every call that computes with real numbers; prints as a table."""

    calls: tuple[QuantizedCall, ...]

    @property
    def schemes(self) -> dict[str, int]:
        """How many calls each scheme has, the most frequent first."""
        return dict(Counter(call.scheme for call in self.calls).most_common())

    @property
    def floats(self) -> tuple[QuantizedCall, ...]:
        """The calls that are left in float."""
        return tuple(call for call in self.calls if call.scheme == _FLOAT)

    @property
    def summary(self) -> str:
        """How many calls have which scheme, in a line."""
        counts = ", ".join(f"{name} {count}" for name, count in self.schemes.items())
        return f"Calls by scheme: {counts}"

    def parts(self) -> Iterable[Any]:
        yield self.summary
        table = grid("module", "call", "scheme", "by", "result", "weight")
        for call in self.calls:
            if call.scheme != _FLOAT:
                made = [str(found or "") for found in (call.result, call.weight)]
                table.add_row(call.module, call.node, call.scheme, call.rule, *made)
        yield table
        if self.floats:
            left = grid("left in float", "operator", "module", "by", "why")
            for call in self.floats:
                left.add_row(call.node, call.op, call.module, call.rule, call.reason)
            yield left


def quantization_of(program: Program) -> Quantization | None:
    """What a program says of its quantization; None if it has none."""
    if not is_quantized(program):
        return None
    return Quantization(tuple(_call(program, n) for n in program.calls if _counts(program, n)))


def is_quantized(program: Program) -> bool:
    """Whether anything of a program computes in integers or block-scaled types by a scheme."""
    return any(map(_is_chosen, program.calls))


def _is_chosen(node: fx.Node) -> bool:
    name = torchapi.target_name(node)
    return name == QUANTIZE or name in BLOCK_LAYERS or CHOICE in node.meta


def _counts(program: Program, node: fx.Node) -> bool:
    """Whether a call computes with real numbers of the user's."""
    name, example = torchapi.target_name(node), node.meta.get("val")
    if name == QUANTIZE or name in DEQUANTIZE or name == "getitem":
        return False
    real = isinstance(example, torch.Tensor) and example.dtype.is_floating_point
    return (real or example is None or isinstance(example, (list, tuple))) and any(
        n not in program.tensors for n in node.all_input_nodes
    )


def _call(program: Program, node: fx.Node) -> QuantizedCall:
    result, weight = _result(program, node), _weight(program, node)
    choice = node.meta.get(CHOICE)
    rule, reason, scheme = "", "", ""
    if isinstance(choice, Choice):
        rule, reason = choice.rule, choice.reason
        scheme = _FLOAT if choice.scheme is None else choice.scheme.name
    place = torchapi.location(node)
    if torchapi.target_name(node) in BLOCK_LAYERS:
        scheme = _block_scheme(str(node.args[-1]))
    return QuantizedCall(
        node.name, torchapi.target_name(node), place.module.removeprefix("L['self']."),
        scheme or _inferred(result, weight), rule, reason, result, weight,
    )  # fmt: skip


def _block_scheme(element: str) -> str:
    """The scheme of a block-scaled layer, be it that the model came with it."""
    from tosaic.quant.schemes import BLOCK_SCHEMES  # for those who quantize

    return next(s.name for s in BLOCK_SCHEMES.values() if s.element.name == element)


def _inferred(result: Integers | None, weight: Integers | None) -> str:
    """The scheme of a call that another quantizer has chosen for."""
    if result is None and weight is None:
        return _FLOAT
    if result is not None and result.dtype == "int16":
        return "a16w8"
    return "a8w4" if weight is not None and weight.dtype == "int4" else "int8"


def _result(program: Program, node: fx.Node) -> Integers | None:
    """The integers of a result, after what is fused with it."""
    users, own = program.users.get(node, []), torchapi.target_name(node)
    for user in users:
        name = torchapi.target_name(user)
        if name == QUANTIZE:
            bound = torchapi.bound_arguments(user)
            kind = str(bound["dtype"]).removeprefix("torch.")
            return Integers(kind, (float(bound["scale"]),), int(bound["zero_point"]))
        is_fused = len(users) == 1 and fuses_activation(own, name) and not fuses_sum(own, name)
        if is_fused or name == "getitem":
            return _result(program, user)
    return None


def _weight(program: Program, node: fx.Node) -> Integers | None:
    weight = torchapi.bound_arguments(node).get("weight")
    if not isinstance(weight, fx.Node) or torchapi.target_name(weight) not in DEQUANTIZE:
        return None
    bound = torchapi.bound_arguments(weight)
    narrow = fits_int4(int(bound["quant_min"]), int(bound["quant_max"]))
    kind = "int4" if narrow else str(bound["dtype"]).removeprefix("torch.")
    if "scales" not in bound:
        return Integers(kind, (float(bound["scale"]),))
    scales = program.tensors[bound["scales"]].double()
    return Integers(kind, (float(scales.min()), float(scales.max())), channels=scales.numel())

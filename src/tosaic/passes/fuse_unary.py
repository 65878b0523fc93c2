"""Fuses chains of elementwise calls that compute a function of one value: one table in int8.

``c * tanh(x / c)``, a GELU or a hardswish written out: between a value and the last of its calls
nothing needs rounding, since 256 numbers have 256 results. The quantizer puts nothing between
such calls, and where a program has nothing there they are lowered as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.program import Program
from tosaic.front.registry import RULES

_MOST = 64  # calls
# Functions of single numbers that PyTorch does not call so.
_POINTWISE = frozenset({
    "aten.hardswish.default", "aten.where.ScalarOther", "aten.where.ScalarSelf",
    "aten.log_sigmoid.default",
})  # fmt: skip
_EQUALS = ("aten.eq.Scalar", "aten.ne.Scalar")
_JUMPS = frozenset({
    "floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "floor_divide", "remainder", "fmod",
    "gt", "ge", "lt", "le", "eq", "ne", "heaviside", "frac",
})  # fmt: skip
_EXACT = frozenset({
    "add", "sub", "rsub", "mul", "div", "neg", "abs", "clamp", "clamp_min", "clamp_max", "relu",
    "relu6", "hardtanh", "maximum", "minimum", "where", "masked_fill", "square", "to", "_to_copy",
})  # fmt: skip
_TESTS = frozenset(f"aten.{name}.Scalar" for name in ("eq", "ne", "lt", "le", "gt", "ge"))
_CASTS = frozenset({"aten.to.dtype", "aten._to_copy.default", "aten.type_as.default"})


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """``calls`` in their order make a function of what all ``sources`` are; the last gives it.

    ``arguments`` are those of the calls as they were found: observers may come between them.
    """

    sources: tuple[fx.Node, ...]
    calls: tuple[fx.Node, ...]
    arguments: tuple[Any, ...]
    numbers: Mapping[fx.Node, Tensor]

    @property
    def last(self) -> fx.Node:
        return self.calls[-1]

    def read_by(self, call: fx.Node) -> list[fx.Node]:
        """The sources that a call reads."""
        return [n for n in call.all_input_nodes if n in self.sources]

    @property
    def jumps(self) -> bool:
        """Whether the last bits of an argument can decide: PyTorch has them in float32."""
        return any(
            _plain(call) in _JUMPS or torchapi.bound_arguments(call).get("rounding_mode")
            for call in self.calls
        )

    def __call__(self, x: Tensor) -> Tensor:
        real = x.float() if self.jumps else x
        values = {**self.numbers, **dict.fromkeys(self.sources, real)}
        for call, given in zip(self.calls, self.arguments, strict=True):
            # What every processor computes alike is computed as PyTorch does, the rest as finely
            # as possible.
            kind = real.dtype if _plain(call) in _EXACT | _JUMPS else torch.float64
            read = {node: _as_kind(value, kind) for node, value in values.items()}
            args, kwargs = fx.map_arg(given, read.__getitem__)
            overload = torchapi.overload_of(call)
            assert overload is not None
            made = overload(*args, **kwargs)
            if (name := torchapi.target_name(call)) in _EQUALS:
                made = _is_near(args[0], args[1]) ^ (name != _EQUALS[0])
            # A cast has fewer bits, and what is computed of numbers alone may have another shape.
            values[call] = made.to(real.dtype) if made.is_floating_point() else made
        result: Tensor = values[self.last]
        return result.to(x.dtype).expand(x.shape)


def _plain(call: fx.Node) -> str:
    """``aten.floor.default`` as ``floor``."""
    return torchapi.target_name(call).partition(".")[2].partition(".")[0]


def _as_kind(value: Any, kind: torch.dtype) -> Any:
    return value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value


def _is_near(x: Tensor, number: float) -> Tensor:
    """Which of all numbers in their order is equal to one: that to which it would be rounded."""
    off = (x.double() - number).abs()
    apart = x.double().diff().abs()
    beside = torch.maximum(torch.cat([apart[:1], apart]), torch.cat([apart, apart[-1:]]))
    return (off == off.min()) & (off <= 0.51 * beside)  # the last of a range is half a step off


@dataclass(frozen=True, slots=True)
class Curves:
    """Finds curves. ``number`` gives a constant's tensor, ``users`` who reads a value, ``is_end``
    what a curve must not go beyond, and ``origin`` one node for all that are the same value."""

    number: Callable[[fx.Node], Tensor | None]
    users: Callable[[fx.Node], Sequence[fx.Node]]
    is_end: Callable[[fx.Node], bool]
    origin: Callable[[fx.Node], fx.Node] = lambda node: node

    def to(self, last: fx.Node, fits: Callable[[Curve], bool]) -> Curve | None:
        """The longest curve that fits and a call is the last of; a single call is none."""
        if not is_pointwise(last) or not _is_real(last):
            return None
        calls, best = {last}, None
        while len(calls) <= _MOST:
            front = self._read(calls)
            one = len(calls) > 1 and len({self.origin(n) for n in front}) == 1
            made = self._curve(front, calls) if one and _is_real(front[0]) else None
            if made is not None and fits(made):
                best = made
            inner = next((n for n in front if self._is_inner(n, calls, last)), None)
            if inner is None:
                break
            calls.add(inner)
        return best

    def _read(self, calls: set[fx.Node]) -> list[fx.Node]:
        """What calls read that is no call of them and no number."""
        read = dict.fromkeys(n for call in calls for n in call.all_input_nodes)
        return [n for n in read if n not in calls and not self._is_number(n)]

    def _is_number(self, node: fx.Node) -> bool:
        known = self.number(node)
        return known is not None and known.numel() == 1

    def _is_inner(self, node: fx.Node, calls: set[fx.Node], last: fx.Node) -> bool:
        if self.is_end(node) or not is_pointwise(node) or _shape(node) != _shape(last):
            return False
        return calls.issuperset(self.users(node))

    def _curve(self, sources: Sequence[fx.Node], calls: set[fx.Node]) -> Curve | None:
        if any(_shape(n) != _shape(sources[0]) for n in calls):
            return None
        order = _in_order(calls)
        read = {n: self.number(n) for call in calls for n in call.all_input_nodes}
        one = {n: known.detach().reshape(()) for n, known in read.items()
               if known is not None and known.numel() == 1}  # fmt: skip
        numbers = {n: k.double() if k.is_floating_point() else k for n, k in one.items()}
        given = tuple((call.args, call.kwargs) for call in order)
        return Curve(tuple(sources), tuple(order), given, numbers)


def curves_of(
    program: Program, is_stepwise: Callable[[Curve, fx.Node], bool] = lambda curve, result: False
) -> dict[fx.Node, Curve]:
    """The calls of a quantized program that are parts of functions of one int8 value.

    ``is_stepwise`` says of others whether they have an exact form, by what quantizes the result.
    """
    found: dict[fx.Node, Curve] = {}

    def users(node: fx.Node) -> Sequence[fx.Node]:
        return [node] if node in program.results else program.users[node]

    def fits(result: fx.Node, curve: Curve) -> bool:
        if not all(map(_is_quant, curve.sources)):
            return False
        return all(map(_is_byte, (result, *curve.sources))) or is_stepwise(curve, result)

    curves = Curves(program.tensors.get, users, _is_quant, _integers)
    for node in program.calls:
        last = node.args[0] if torchapi.target_name(node) == QUANTIZE else None
        made = None
        if _plain(node) in _JUMPS | _EXACT and _becomes_integers(users(node)):
            made = curves.to(node, _is_whole)
        elif isinstance(last, fx.Node) and users(last) == [node]:
            made = curves.to(last, partial(fits, node))
        if made is not None:
            found |= dict.fromkeys(made.calls, made)
    return found


def _becomes_integers(users: Sequence[fx.Node]) -> bool:
    """Whether all that read a value make integers or truths of it."""
    return bool(users) and all(
        torchapi.target_name(user) in _TESTS
        or (torchapi.target_name(user) in _CASTS and not _is_real(user))
        for user in users
    )


def _is_whole(curve: Curve) -> bool:
    """Whether a function of an int8 value gives whole numbers alone."""
    if not curve.jumps or not all(map(_is_byte, curve.sources)):
        return False
    bound = torchapi.bound_arguments(curve.sources[0])
    codes = torch.arange(bound["quant_min"], bound["quant_max"] + 1.0, dtype=torch.float64)
    results = curve((codes - bound["zero_point"]) * bound["scale"])
    return bool((results == results.round()).all())


def _is_quant(node: fx.Node) -> bool:
    return torchapi.target_name(node) in (QUANTIZE, *DEQUANTIZE)


def _is_byte(node: fx.Node) -> bool:
    return _is_quant(node) and torchapi.bound_arguments(node)["dtype"] is torch.int8


def _integers(node: fx.Node) -> fx.Node:
    """What is dequantized, be it once for each reader."""
    source = node.args[0] if torchapi.target_name(node) in DEQUANTIZE else node
    return source if isinstance(source, fx.Node) else node


def is_pointwise(node: fx.Node) -> bool:
    """Whether there is a rule for a call, and each number of its result comes from those in its
    place."""
    overload = torchapi.overload_of(node) if node.op == "call_function" else None
    example = node.meta.get("val")
    if overload is None or not isinstance(example, Tensor) or not torchapi.is_repeatable(overload):
        return False
    if torchapi.written_positions(node):
        return False
    if torchapi.target_name(node) in _CASTS:
        source = _example(node.all_input_nodes[0])
        return isinstance(source, Tensor) and source.dtype is example.dtype
    kind = example.dtype
    if kind is not torch.bool and not kind.is_floating_point:
        return False
    name = torchapi.target_name(node)
    return name in RULES and (torch.Tag.pointwise in overload.tags or name in _POINTWISE)


def _in_order(calls: set[fx.Node]) -> list[fx.Node]:
    """Each behind those that it reads."""
    found: dict[fx.Node, None] = {}
    while len(found) < len(calls):
        for call in calls - found.keys():
            if not any(n in calls and n not in found for n in call.all_input_nodes):
                found[call] = None
    return list(found)


def _example(node: fx.Node) -> object:
    """What is known of a value; quantizing does not change it, and PT2E's calls do not say so."""
    while "val" not in node.meta and node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.meta.get("val")


def _is_real(node: fx.Node) -> bool:
    example = _example(node)
    return isinstance(example, Tensor) and example.dtype.is_floating_point


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    example = _example(node)
    return torchapi.known_shape(example) if isinstance(example, Tensor) else None

"""Lattice analysis: which real values are whole multiples of a step, by construction.

What floor, round, sign, comparisons and casts of integers give is whole; sums, products, moves,
choices and limits of whole numbers are whole, or multiples of a half, a tenth and so on. Such a
value is quantized without error if its scale is its step, or a fraction of it: then the result is
what PyTorch computes from the quantized input, and a cast to integers has nothing to cut off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.passes.match import values_of

_MOST = 65535  # steps: no quantized value holds more of them
_NEAR = 1e-6  # relative to the larger number: what float32 cannot tell from a multiple
_FEW, _HEAD = 4096, 8  # different numbers of a constant that has a step, and of its beginning

Step = float | None  # 0.0 of zeros alone, None of numbers that have no step


class Steps:
    """The step of each value of a graph, whose nodes come in their order."""

    def __init__(self, nodes: Iterable[fx.Node] = ()) -> None:
        self._known: dict[fx.Node, Step] = {}
        for node in nodes:
            self._known[node] = self._found(node)

    def of(self, value: Any) -> Step:
        """The step of a node, a number, or several of them together."""
        if isinstance(value, fx.Node):
            return self._known.get(value)
        if isinstance(value, (list, tuple)):
            return common(map(self.of, value))
        if isinstance(value, (int, float)) and math.isfinite(value):
            return abs(float(value))
        return None

    def read_by(self, call: fx.Node) -> Step:
        """The step that all real numbers that a call reads and gives have in common."""
        return common(self.of(n) for n in (call, *call.all_input_nodes) if _is_float(n))

    def shown(self, node: fx.Node) -> Step:
        """The step that a value is to be quantized in; products of many need all bits of a type."""
        users = map(torchapi.target_name, node.users)
        return None if any(u.startswith(_DENSE) for u in users) else self.of(node)

    def _found(self, node: fx.Node) -> Step:
        if node.op == "get_attr":
            return _of_tensor(values_of(node))
        name = torchapi.target_name(node)
        if node.op != "call_function":
            return None if _is_float(node) else 1.0
        if name == "getitem":
            return self.of(node.args[0]) if _is_float(node) else 1.0
        plain = name.split(".")[1] if name.startswith("aten.") else ""
        found = self._followed(node, name, plain)
        if _is_float(node):
            return found
        return found if found is not None and _is_whole(found) else 1.0

    def _followed(self, node: fx.Node, name: str, plain: str) -> Step:
        bound = torchapi.bound_arguments(node) if plain else {}
        if plain in _ROUNDED or (plain == "div" and bound.get("rounding_mode")):
            return self._rounded(bound)
        if plain in _FOLLOWED:
            return _FOLLOWED[plain](self, node, bound)
        rule = RULES.get(name)
        is_move = rule is not None and rule.policy == "SHARED"
        return self._moved(node) if plain in _CHOSEN or (is_move and not _mixes(plain)) else None

    def _rounded(self, bound: dict[str, Any]) -> Step:
        """Whole, or more than that; ``decimals`` has whole tenths and so on."""
        unit = 10.0 ** -int(bound.get("decimals", 0))
        given = self.of(bound["self"]) if "other" not in bound else None
        return given if given is not None and _is_whole(given / unit) else unit

    def _moved(self, node: fx.Node) -> Step:
        """Of results that are among the operands, or among numbers that are arguments."""
        if node.op != "call_function" or torchapi.overload_of(node) is None:
            return None
        reals = _is_float(node) and any(map(_is_float, node.all_input_nodes))
        operands = [n for n in node.all_input_nodes if not reals or _is_float(n)]
        numbers = [
            value for key, value in torchapi.bound_arguments(node).items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            and (key == "value" or torchapi.is_number_argument(node, key))
        ]  # fmt: skip
        return common([*map(self.of, operands), *map(self.of, numbers)])


def common(steps: Iterable[Step]) -> Step:
    """The largest number that all are multiples of; None if it is far below the largest."""
    found = 0.0
    for step in steps:
        if step is None or not math.isfinite(step):
            return None
        most, small = max(found, step), min(found, step)
        large, least = most, _NEAR * most
        if 0 < small <= least:
            return None
        while small > least:
            large, small = small, abs(large - small * round(large / small))
        count = round(most / large) if most else 1
        if count > _MOST:
            return None
        found = most / count
    return found


def _of_tensor(values: Any) -> Step:
    if not isinstance(values, Tensor) or values.is_complex() or values.device.type == "meta":
        return None
    if values.layout is not torch.strided:
        return None
    plain = None if values.is_floating_point() else 1.0
    step, flat = plain, values.detach().flatten()
    for part in (flat[:_HEAD], flat[:_FEW], flat):  # most have no step, which a few numbers show
        numbers = _magnitudes(part)
        step = common(numbers) if 0 < len(numbers) <= _FEW else plain
        if step is None:
            break
    return step


def _magnitudes(part: Tensor) -> list[float]:
    """The different magnitudes of some numbers, in their order."""
    if len(part) <= _HEAD:
        return sorted({abs(float(number)) for number in part.tolist()})
    found: list[float] = torch.unique(part.double().abs()).tolist()
    return found


def _is_float(node: fx.Node) -> bool:
    """Whether a value, or one of several, is of real numbers."""
    example = node.meta.get("val")
    parts = example if isinstance(example, (list, tuple)) else [example]
    return any(not isinstance(p, Tensor) or p.dtype.is_floating_point for p in parts)


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) <= _NEAR * abs(number)


def _times(one: Step, other: Step) -> Step:
    return None if one is None or other is None else one * other


def _sum(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    """Straight-through estimators are written x + (y - x), which is y."""
    weight = s.of(bound.get("alpha", 1))
    first, second = bound["self"], bound["other"]
    for one, other in ((first, second), (second, first)):
        if (value := _without(other, one)) is not None and weight == 1:
            return s.of(value)
    if "rsub" in torchapi.target_name(node):
        first, second = second, first
    return common([s.of(first), _times(s.of(second), weight)])


def _without(difference: Any, value: Any) -> fx.Node | None:
    """y if the difference is that of y and a value."""
    if not isinstance(difference, fx.Node) or torchapi.target_name(difference) not in _DIFFERENCES:
        return None
    first, second = difference.args[:2]
    is_plain = second is value and not difference.kwargs
    return first if is_plain and isinstance(first, fx.Node) else None


def _quotient(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    given, number = s.of(bound["self"]), bound["other"]
    if isinstance(number, fx.Node):
        held = values_of(number)
        number = held.item() if held is not None and held.numel() == 1 else 0
    return given / abs(number) if given is not None and number else None


def _power(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    given, exponent = s.of(bound["self"]), bound.get("exponent", 2)
    return None if given is None or exponent not in (1, 2, 3, 4) else math.pow(given, exponent)


def _limits(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    ends = [v for k, v in bound.items() if k in _ENDS and v is not None]
    return common([s.of(bound["self"]), *map(s.of, ends)])


def _mean(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    shapes = [torchapi.known_shape(n.meta["val"]) for n in (bound["self"], node)]
    before, after = (0 if shape is None else math.prod(shape) for shape in shapes)
    given = s.of(bound["self"])
    return given * after / before if given is not None and before and after else None


def _pooled(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    """Averages of windows that all have as many elements."""
    given, size = s.of(bound["self"]), bound["kernel_size"]
    even = bound.get("count_include_pad", True) or not any(bound.get("padding") or [0])
    if given is None or not even or bound.get("ceil_mode") or bound.get("divisor_override"):
        return None
    rank = int(torchapi.target_name(node).split(".")[1][-2])
    return given / float(math.prod(size if len(size) == rank else size * rank))


def _product(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    return 1.0 if s.of(bound["self"]) == 1 else None


def _layer(s: Steps, node: fx.Node, bound: dict[str, Any]) -> Step:
    """Of weights that are whole multiples of a step, as those of filters are that count."""
    weight = values_of(bound["weight"])
    step = s.of(bound["weight"])
    if weight is None or not step or float(weight.abs().max()) > step * _WEIGHTS:
        return None
    bias = [] if bound.get("bias") is None else [s.of(bound["bias"])]
    return common([_times(s.of(bound.get("input", bound.get("self"))), step), *bias])


_WEIGHTS = 127  # the largest integer that a weight is
_DENSE = "aten.prod", "aten.cumprod"
_DIFFERENCES = frozenset({"aten.sub.Tensor"})
_ENDS = frozenset({"min", "max", "min_val", "max_val"})
_ROUNDED = frozenset({
    "floor", "ceil", "round", "trunc", "fix", "sign", "sgn", "floor_divide", "heaviside",
})  # fmt: skip
# Calls whose results are among their operands, though they have parameters of their own.
_CHOSEN = frozenset({
    "where", "masked_fill", "maximum", "minimum", "max", "min", "fmax", "fmin", "neg", "abs",
    "relu", "sum", "cumsum", "scatter_add", "index_add", "remainder", "fmod", "positive",
})  # fmt: skip
_FOLLOWED: dict[str, Callable[[Steps, fx.Node, dict[str, Any]], Step]] = {
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("square", "pow"), _power),
    **dict.fromkeys(("clamp", "clip", "hardtanh", "clamp_min", "clamp_max"), _limits),
    "mul": lambda s, n, b: _times(s.of(b["self"]), s.of(b["other"])),
    **dict.fromkeys(
        ("mm", "bmm", "matmul"),
        lambda s, n, b: _times(*(s.of(v) for v in b.values() if isinstance(v, fx.Node))),
    ),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), _pooled),
    **dict.fromkeys(("prod", "cumprod"), _product),
    **dict.fromkeys(
        ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
         "convolution"), _layer,
    ),
    "div": _quotient, "true_divide": _quotient, "mean": _mean,
    "relu6": lambda s, n, b: common([s.of(b["self"]), 6.0]),
    **dict.fromkeys(
        ("full", "full_like", "new_full"), lambda s, n, b: s.of(b["fill_value"])
    ),
    **dict.fromkeys(("zeros_like", "zeros", "new_zeros"), lambda s, n, b: 0.0),
    **dict.fromkeys(("ones_like", "ones", "new_ones"), lambda s, n, b: 1.0),
}  # fmt: skip


def _mixes(plain: str) -> bool:
    """Whether a call gives averages of what it reads."""
    return "avg_pool" in plain or "linear" in plain or "bicubic" in plain

"""Range analysis of int64 values, which are lowered to int32 where that holds them.

Intervals are followed through the calls of a program. Indices, masks and counts stay small;
arithmetic whose result may leave int32 is refused and runs in PyTorch. Values that are read as
positions are small, too: beyond the end of a tensor there is no result to agree with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE

Interval = tuple[float, float]
ALL: Interval = (-math.inf, math.inf)
INT32: Interval = (-(2.0**31), 2.0**31 - 1)
_QUANTIZED = "quantized_decomposed.dequantize_per_tensor.default"
_FEW = 65536  # constants of real numbers with more elements are not searched


def _products(x: Interval, y: Interval) -> Interval:
    ends = [0.0 if 0 in (a, b) else a * b for a in x for b in y]
    return min(ends), max(ends)


def _scaled(x: Interval, factor: float) -> Interval:
    return _products(x, (factor, factor))


def _added(x: Interval, y: Interval) -> Interval:
    return x[0] + y[0], x[1] + y[1]


def _limited(x: Interval, low: Interval | None, high: Interval | None) -> Interval:
    bottom, top = low or ALL, high or ALL
    return (
        min(max(x[0], bottom[0]), top[1]),
        max(min(x[1], top[1]), bottom[0] if math.isfinite(bottom[0]) else x[0]),
    )


def _joined(parts: Sequence[Interval]) -> Interval:
    return (min(p[0] for p in parts), max(p[1] for p in parts)) if parts else ALL


def _magnitude(x: Interval) -> float:
    return max(abs(x[0]), abs(x[1]))


class Ranges:
    """Intervals of the values of a program, call by call."""

    def __init__(self, tensors: dict[fx.Node, Tensor]) -> None:
        self.tensors = tensors
        self.known: dict[fx.Node, Interval] = {}
        self.wide: set[fx.Node] = set()  # values that may need more than 32 bits

    def outside(self, node: fx.Node) -> None:
        """A value that PyTorch or the user gives: checked to fit when it enters a graph."""
        self.known.setdefault(node, _of_type(_example(node)))

    def limit(self, node: fx.Node, known: Interval | None) -> None:
        """A value that is known to be in a narrower range."""
        if known is not None:
            low, high = self.known[node]
            self.known[node] = max(low, known[0]), min(high, known[1])

    def of(self, value: Any) -> Interval:
        """The interval of an argument: a node, a number, or several."""
        if isinstance(value, fx.Node):
            if value not in self.known:
                self.known[value] = self._of_constant(value)
            return self.known[value]
        if isinstance(value, (list, tuple)):
            return _joined([self.of(v) for v in value])
        return (float(value), float(value)) if isinstance(value, (int, float)) else ALL

    def learn(self, node: fx.Node, tensor: Tensor) -> None:
        """A value that is known as a whole."""
        self.known[node] = self._of_tensor(node, tensor)

    def _of_constant(self, node: fx.Node) -> Interval:
        return self._of_tensor(node, self.tensors.get(node))

    def _of_tensor(self, node: fx.Node, tensor: Any) -> Interval:
        if isinstance(tensor, (int, float)):
            return self.of(tensor)
        is_dense = tensor is not None and tensor.layout is torch.strided
        if not is_dense or not tensor.numel() or tensor.dtype.is_complex:
            return _of_type(_example(node))
        if tensor.dtype.is_floating_point and tensor.numel() > _FEW:
            return ALL
        known = tensor.detach().float() if tensor.dtype.itemsize == 1 else tensor.detach()
        low, high = (float(end) for end in torch.aminmax(known))
        return ALL if math.isnan(low) else (low, high)

    def check(self, node: fx.Node) -> None:
        """Follow a call; Unsupported if its int64 result may not fit int32."""
        example, bound = _example(node), torchapi.bound_arguments(node)
        wide = _is_wide(example) or any(
            _is_wide(_example(n)) for n in node.all_input_nodes if n.op != "get_attr"
        )
        self.wide.add(node)
        if wide:
            for name, value in bound.items():
                self._check_number(node, name, value)
        found = self._transfer(node, bound)
        if (
            isinstance(example, Tensor)
            and _is_wide(example)
            and (count := places(node, self.tensors))
        ):
            found = max(found[0], -count), min(found[1], count - 1)
        fits = INT32[0] <= found[0] and found[1] <= INT32[1]
        if isinstance(example, Tensor) and _is_wide(example) and not fits:
            raise Unsupported(
                "its int64 result may not fit the 32 bits of TOSA's integers: nothing proves "
                "that it is small"
            )
        self.known[node] = found
        self.wide.remove(node)

    def _check_number(self, node: fx.Node, name: str, value: Any) -> None:
        is_number = isinstance(value, int) and torchapi.is_number_argument(node, name)
        if is_number and not INT32[0] <= value <= INT32[1]:
            raise Unsupported(f"{value} does not fit the 32 bits of TOSA's integers")

    def _transfer(self, node: fx.Node, bound: dict[str, Any]) -> Interval:
        name = torchapi.target_name(node)
        if name in _QUANTIZED:
            zero, scale = bound["zero_point"], bound["scale"]
            low, high = ((bound[end] - zero) * scale for end in ("quant_min", "quant_max"))
            return low, high
        plain = name.split(".")[1] if name.startswith("aten.") else name
        if plain == name != "getitem":  # arithmetic on sizes, which are no tensors
            return _of_type(_example(node))
        if plain in _FIXED:
            return _FIXED[plain]
        if plain in _TRANSFER:
            return _TRANSFER[plain](self, node, bound)
        example = _example(node)
        operands = [n for n in node.all_input_nodes if n.op != "get_attr" or n in self.tensors]
        if plain in _KEEPING:
            numbers = [
                v for k, v in bound.items()
                if torchapi.is_number_argument(node, k) and isinstance(v, (int, float))
            ]  # fmt: skip
            return _joined([*map(self.of, operands), *map(self.of, numbers)])
        return _of_type(example)


def _example(node: fx.Node) -> Any:
    return node.meta.get("val")


def _is_wide(example: Any) -> bool:
    parts = example if isinstance(example, (list, tuple)) else [example]
    return any(isinstance(p, Tensor) and p.dtype is torch.int64 for p in parts)


def _of_type(example: Any) -> Interval:
    if isinstance(example, (list, tuple)):
        return _joined([_of_type(e) for e in example])
    if not isinstance(example, Tensor) or example.dtype.is_floating_point:
        return ALL
    if example.dtype is torch.bool:
        return 0.0, 1.0
    if example.dtype.is_complex or example.dtype is torch.int64:
        return INT32 if example.dtype is torch.int64 else ALL
    return float(torch.iinfo(example.dtype).min), float(torch.iinfo(example.dtype).max)


def _sizes(node: fx.Node, bound: dict[str, Any]) -> float:
    """How many elements of the operand one element of the result comes from."""
    return _count(_example(bound["self"])) / max(_count(_example(node)), 1)


def _count(example: Any) -> float:
    """How many elements a tensor has; no end to them where that is not known."""
    shape = torchapi.known_shape(example) if isinstance(example, Tensor) else None
    return math.inf if shape is None else math.prod(shape)


def _sum(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    return _scaled(r.of(bound["self"]), _sizes(node, bound))


def _cumsum(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    example = _example(bound["self"])
    if not isinstance(example, Tensor):
        return ALL
    low, high = r.of(bound["self"])
    shape = torchapi.known_shape(example)
    if shape is None:
        return ALL
    terms = shape[bound["dim"]] if shape else 1
    return min(low, low * terms), max(high, high * terms)


def _accumulated(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    """Every element of the source may be added to one place."""
    source = next(bound[k] for k in ("src", "source", "values") if k in bound)
    low, high = _scaled(r.of(source), max(_count(_example(source)), 1))
    return _added(r.of(bound["self"]), (min(low, 0.0), max(high, 0.0)))


def _put(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    if bound.get("accumulate"):
        return _accumulated(r, node, bound)
    return _joined([r.of(bound["self"]), r.of(bound["values"])])


def _add(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    weight = r.of(bound.get("alpha", 1))
    return _added(r.of(bound["self"]), _products(r.of(bound["other"]), weight))


def _subtract(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    weight = r.of(bound.get("alpha", 1))
    return _added(r.of(bound["self"]), _scaled(_products(r.of(bound["other"]), weight), -1))


def _reversed(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    return _subtract(r, node, {**bound, "self": bound["other"], "other": bound["self"]})


def _absolute(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    return 0.0, _magnitude(r.of(bound["self"]))


def _power(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    exponent = bound.get("exponent", 2)
    if not isinstance(exponent, int) or exponent < 0:
        return ALL
    try:
        most = _magnitude(r.of(bound["self"])) ** exponent
    except OverflowError:
        return ALL
    return (0.0 if exponent % 2 == 0 else -most), most


def _quotient(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    low, high = r.of(bound["other"])
    if low <= 0 <= high:
        return ALL
    most = _magnitude(r.of(bound["self"])) / min(abs(low), abs(high)) + 1
    return -most, most


def _remainder(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    most = min(_magnitude(r.of(bound["other"])), math.inf)
    return -most, most


def _clamp(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    ends = [bound.get(k, bound.get(f"{k}_val")) for k in ("min", "max")]
    low, high = (None if e is None else r.of(e) for e in ends)
    return _limited(r.of(bound["self"]), low, high)


def _place(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    """The number of an element: there are so many at most."""
    source = bound["self"]
    while _example(source) is None and source.all_input_nodes:  # PT2E gives its calls no examples
        source = source.all_input_nodes[0]
    return 0.0, min(_count(_example(source)), INT32[1])


def _item(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    source, example = r.of(node.args[0]), _of_type(_example(node))
    return max(source[0], example[0]), min(source[1], example[1])


def _rounded(r: Ranges, node: fx.Node, bound: dict[str, Any]) -> Interval:
    low, high = r.of(bound["self"])
    return low - 1, high + 1


_TRANSFER: dict[str, Callable[[Ranges, fx.Node, dict[str, Any]], Interval]] = {
    "add": _add, "sub": _subtract, "rsub": _reversed, "subtract": _subtract,
    "mul": lambda r, n, b: _products(r.of(b["self"]), r.of(b["other"])),
    "neg": lambda r, n, b: _scaled(r.of(b["self"]), -1), "abs": _absolute,
    "sum": _sum, "cumsum": _cumsum, "square": _power, "pow": _power,
    "div": _quotient, "floor_divide": _quotient, "remainder": _remainder, "fmod": _remainder,
    "clamp": _clamp, "hardtanh": _clamp, "clamp_min": _clamp, "clamp_max": _clamp,
    "relu": lambda r, n, b: _limited(r.of(b["self"]), (0.0, 0.0), None),
    "scatter_add": _accumulated, "index_add": _accumulated, "scatter_reduce": _accumulated,
    "index_put": _put, "floor": _rounded, "ceil": _rounded, "round": _rounded,
    "trunc": _rounded, "getitem": _item, "argmax": _place, "argmin": _place,
    **dict.fromkeys(
        ("prod", "cumprod", "mm", "bmm", "matmul", "dot", "mv", "addmm", "baddbmm", "linear",
         "convolution", "conv1d", "conv2d", "conv3d", "bitwise_left_shift"),
        lambda r, n, b: ALL,
    ),
}  # fmt: skip
_FIXED: dict[str, Interval] = {
    "sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "_softmax": (0.0, 1.0), "tanh": (-1.0, 1.0),
    "hardsigmoid": (0.0, 1.0), "sin": (-1.0, 1.0), "cos": (-1.0, 1.0), "relu6": (0.0, 6.0),
    "sign": (-1.0, 1.0), "one_hot": (0.0, 1.0),
}  # fmt: skip
# Results that hold numbers of the operands and no others, or 0.
_KEEPING = frozenset({
    "to", "_to_copy", "type_as", "t", "split", "chunk", "narrow", "movedim", "flatten", "ravel",
    "unflatten", "view_as", "reshape_as", "_reshape_alias", "expand_as", "broadcast_to",
    "_to_dim_order_copy", "view", "reshape", "squeeze", "unsqueeze", "permute", "transpose",
    "expand", "repeat", "tile", "repeat_interleave", "cat", "stack", "hstack", "vstack",
    "split_with_sizes", "unbind", "select", "slice", "flip", "roll", "alias", "clone",
    "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "copy", "where", "masked_fill",
    "maximum", "minimum", "max", "min", "amax", "amin", "full", "full_like", "new_full",
    "scalar_tensor", "arange", "gather", "index_select", "slice_scatter", "select_scatter",
    "index", "take", "take_along_dim", "embedding", "scatter", "index_copy", "index_fill",
    "unfold", "triu", "tril", "diagonal", "cummax", "cummin", "msort", "meshgrid",
})  # fmt: skip


_DEEPEST = 6  # moves between a value and where it is read
_MOVES = frozenset({
    "view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "select", "slice", "expand",
    "permute", "transpose", "t", "contiguous", "clone", "alias", "detach",
})  # fmt: skip


Tensors = Mapping[fx.Node, Tensor]


def places(node: fx.Node, tensors: Tensors, deepest: int = _DEEPEST) -> int | None:
    """How many places there are for a value that every reader takes for a position; else None.

    ``tensors`` are the program's own.
    """
    if not deepest or not node.users:
        return None
    found = [_places_of(user, node, tensors, deepest) for user in node.users]
    known = [count for count in found if count is not None]
    return min(known) if len(known) == len(found) else None


def _places_of(user: fx.Node, node: fx.Node, tensors: Tensors, deepest: int) -> int | None:
    parts, bound = torchapi.target_name(user).split("."), torchapi.bound_arguments(user)
    name = parts[1] if len(parts) == 3 and parts[0] == "aten" else ""
    if name in _MOVES:
        return places(user, tensors, deepest - 1)
    if name == "embedding" and bound["weight"] is not node:
        return _size(bound["weight"], 0, tensors)
    if name in ("gather", "index_select") and bound["self"] is not node:
        return _size(bound["self"], bound["dim"], tensors)
    if name == "index" and bound["self"] is not node:
        axes = [axis for axis, index in enumerate(bound["indices"]) if index is node]
        sizes = [_size(bound["self"], axis, tensors) for axis in axes]
        return min((size for size in sizes if size is not None), default=None)
    return None


def _size(value: Any, axis: int, tensors: Tensors) -> int | None:
    """The size of a tensor along an axis; PT2E's own calls carry no example of their results."""
    while isinstance(value, fx.Node) and torchapi.target_name(value) in (QUANTIZE, *DEQUANTIZE):
        value = value.args[0]
    if not isinstance(value, fx.Node):
        return None
    example = tensors.get(value, value.meta.get("val"))
    shape = torchapi.known_shape(example) if isinstance(example, Tensor) else None
    return shape[axis] if shape else None

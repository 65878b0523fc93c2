"""Follows the channels of a layer's result through calls that keep them apart, to its readers.

A factor for each channel, if it is positive, passes through all of these calls: rectifiers, pools,
means over other axes, zero padding, resizing and what only moves numbers. So it can be taken from
the layer and given to the readers' weights: positive homogeneity, as in Nagel and others,
"Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, arXiv:1906.04721.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.front.row_blocks import by_rows
from tosaic.passes.engine import Call
from tosaic.passes.engine import replace as put
from tosaic.passes.fold_batch_norm import is_layer, is_transposed, parameters
from tosaic.passes.match import COPIES, name_of, rank_of, values_of

RECTIFIERS = frozenset({"aten.relu.default"})
_SAME = RECTIFIERS | COPIES | {"aten.leaky_relu.default", "aten.prelu.default"}
_POOLS = frozenset(
    f"aten.{name}" for name in (
        "max_pool1d.default", "max_pool2d.default", "avg_pool1d.default", "avg_pool2d.default",
        "adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_max_pool2d.default",
        "upsample_nearest2d.default", "upsample_nearest2d.vec", "upsample_bilinear2d.default",
        "upsample_bilinear2d.vec", "upsample_nearest1d.vec",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value has channels: index ``i`` of the axis is of channel ``i // inner``."""

    value: fx.Node
    axis: int
    inner: int = 1
    rectified: bool = False  # whether all that is below zero is zero


def readers_of(first: Place, moves_only: bool = False) -> list[Place] | None:
    """The layers that alone read a value, through calls that keep its channels apart.

    Each comes as the place whose value is the layer; None where anything else reads it.
    ``moves_only`` passes copies, permutations and new shapes, but nothing that computes.
    """
    found, waiting = list[Place](), [first]
    while waiting:
        place = waiting.pop()
        users = [u for u in place.value.users if u.op == "call_function"]
        if not users or len(users) < len(place.value.users):
            return None
        for user in users:
            if is_layer(user):
                if not _reads(user, place):
                    return None
                found.append(replace(place, value=user))
                continue
            behind = _behind(user, place)
            if behind is None or (moves_only and name_of(user) not in COPIES | _MOVES.keys()):
                return None
            waiting.append(behind)
    return found


def scale_inputs(layer: fx.Node, factor: Tensor, offset: Tensor | None = None) -> None:
    """A layer reads factor · x + offset in place of x, by new weights and a new bias."""
    bound = torchapi.bound_arguments(layer)
    weight = values_of(bound["weight"])
    assert weight is not None
    weight = weight.detach()
    made = {"weight": by_rows(_multiplied, weight, _along_inputs(factor, layer, weight))}
    if offset is not None:
        before = values_of(bound["bias"])
        plus = (weight.double() * _along_inputs(offset, layer, weight)).flatten(1).sum(1)
        plus = plus if before is None else before.detach().double() + plus
        made["bias"] = plus.to(weight.dtype)
    bound |= dict(zip(made, parameters(layer, **made), strict=True))
    put(layer, Call(layer.target, tuple(bound.values())))


def _multiplied(weight: Tensor, factors: Tensor) -> Tensor:
    return weight.double().mul_(factors).to(weight.dtype)


def _along_inputs(factor: Tensor, layer: fx.Node, weight: Tensor) -> Tensor:
    """Factors of input channels where a weight [O, I / groups, ...] has them."""
    bound = torchapi.bound_arguments(layer)
    ones = [1] * (weight.dim() - 2)
    if is_transposed(layer, bound):
        return factor.reshape(-1, 1, *ones)
    groups = int(bound.get("groups", 1))
    each = factor.reshape(groups, 1, -1).expand(-1, weight.shape[0] // groups, -1)
    return each.reshape(weight.shape[0], weight.shape[1], *ones)


def inputs_by_outputs(layer: fx.Node, weight: Tensor) -> Tensor:
    """The weights of a layer as [groups, outputs, inputs, taps]."""
    bound = torchapi.bound_arguments(layer)
    groups = int(bound.get("groups", 1))
    if is_transposed(layer, bound):
        grouped = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
        return grouped.transpose(1, 2)
    return weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)


def _reads(layer: fx.Node, place: Place) -> bool:
    """Whether a layer sums over the channels."""
    bound = torchapi.bound_arguments(layer)
    source, *_ = bound.values()
    others = [n for n in layer.all_input_nodes if n is place.value]
    if source is not place.value or len(others) != 1:
        return False
    rank = rank_of(place.value)
    if name_of(layer) == "aten.linear.default":
        return place.axis == rank - 1
    return place.axis == 1 and rank == rank_of(bound["weight"])


def _behind(call: fx.Node, place: Place) -> Place | None:
    """Where the result of a call has the channels; None if it has not, or mixes them."""
    name, example = name_of(call), call.meta.get("val")
    if not isinstance(example, Tensor) or not example.is_floating_point():
        return None
    bound = torchapi.bound_arguments(call)
    if next(iter(bound.values())) is not place.value:
        return None
    if name in _SAME:
        if name == "aten.leaky_relu.default" and float(bound["negative_slope"]) < 0:
            return None
        return replace(place, value=call, rectified=place.rectified or name in RECTIFIERS)
    if name in _POOLS:
        is_apart = place.axis == 1 and place.inner == 1 and rank_of(call) == rank_of(place.value)
        return replace(place, value=call) if is_apart and example.dim() > 2 else None
    moved = _MOVES.get(name) or _KEEPS.get(name)
    made = moved(bound, place, example) if moved is not None else None
    return None if made is None else replace(place, value=call, axis=made[0], inner=made[1])


Moved = tuple[int, int] | None


def _permute(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    rank = rank_of(place.value)
    return [int(axis) % rank for axis in bound["dims"]].index(place.axis), place.inner


def _transpose(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    rank = rank_of(place.value)
    one, two = int(bound["dim0"]) % rank, int(bound["dim1"]) % rank
    return {one: two, two: one}.get(place.axis, place.axis), place.inner


def _reshape(_: dict[str, Any], place: Place, example: Tensor) -> Moved:
    """Axes behind the channels may become one with them, those around may change."""
    given, made = (torchapi.known_shape(e) for e in (place.value.meta["val"], example))
    if given is None or made is None:
        return None
    before = math.prod(given[: place.axis])
    for axis, size in enumerate(made):
        if math.prod(made[:axis]) != before or size == 1 != given[place.axis]:
            continue
        for end in range(place.axis + 1, len(given) + 1):
            if size == math.prod(given[place.axis : end]):
                return axis, place.inner * math.prod(given[place.axis + 1 : end])
    return None


def _pad(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    padded = len(bound["pad"]) // 2
    is_apart = place.axis < rank_of(place.value) - padded and not float(bound["value"] or 0)
    return (place.axis, place.inner) if is_apart else None


def _mean(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    rank, dims = rank_of(place.value), bound["dim"]
    axes = {int(axis) % rank for axis in (dims if isinstance(dims, (list, tuple)) else [dims])}
    if dims is None or not axes or place.axis in axes or bound.get("dtype") is not None:
        return None
    gone = 0 if bound.get("keepdim") else sum(axis < place.axis for axis in axes)
    return place.axis - gone, place.inner


def _slice(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    is_along = int(bound["dim"]) % rank_of(place.value) == place.axis
    return None if is_along else (place.axis, place.inner)


def _select(bound: dict[str, Any], place: Place, _: Tensor) -> Moved:
    axis = int(bound["dim"]) % rank_of(place.value)
    return None if axis == place.axis else (place.axis - (axis < place.axis), place.inner)


Rule = Callable[[dict[str, Any], Place, Tensor], Moved]
_MOVES: dict[str, Rule] = {
    "aten.permute.default": _permute, "aten.transpose.int": _transpose,
    "aten.reshape.default": _reshape, "aten.view.default": _reshape,
    "aten.flatten.using_ints": _reshape, "aten.unsqueeze.default": _reshape,
    "aten.squeeze.dim": _reshape, "aten.squeeze.dims": _reshape,
    "aten.slice.Tensor": _slice, "aten.select.int": _select,
}  # fmt: skip
_KEEPS: dict[str, Rule] = {
    "aten.constant_pad_nd.default": _pad,
    "aten.pad.default": _pad,
    "aten.mean.dim": _mean,
}


def unshared(module: fx.GraphModule) -> Callable[[fx.Node], bool]:
    """Whether a layer or a norm alone reads its weight and its bias."""
    uses: dict[str, int] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        uses[str(node.target)] = uses.get(str(node.target), 0) + len(node.users)

    def is_own(layer: fx.Node) -> bool:
        return all(uses.get(str(n.target), 1) <= 1 for n in _held(layer))

    return is_own


def _held(layer: fx.Node) -> Iterator[fx.Node]:
    bound = torchapi.bound_arguments(layer)
    for name in ("weight", "bias"):
        if isinstance(value := bound.get(name), fx.Node):
            yield value

"""Fourier transforms of constant sizes: products with constant matrices, or an FFT operator.

A transform along an axis is a linear layer whose weight holds cosines and sines, a short-time one
a convolution, its inverse a transposed convolution; in that form they are quantized as any other
layer. Matrices are computed by calls that read no input, so they become constants. A float target
that has FFT operators gets ``tosaic::fft2d`` where the sizes are powers of two.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import fx

from tosaic.front import torchapi
from tosaic.passes.match import name_of

aten = torch.ops.aten
Pair = tuple[Any, Any]
_LARGEST = 1 << 22  # elements of a matrix
_LONGEST = 1 << 13  # TOSA's level 8K has no longer FFT


class Calls(ABC):
    """Makes calls where a call is."""

    def __init__(self, node: fx.Node, fft: bool = False) -> None:
        self.node, self.fft = node, fft
        self.name: str = name_of(node)
        self.bound: dict[str, Any] = torchapi.bound_arguments(node)

    def call(self, target: Any, *args: Any) -> fx.Node:
        return torchapi.new_call(self.node, target, args)

    @abstractmethod
    def parts(self, value: Any) -> Pair:
        """The real and the imaginary part of an operand."""

    def size(self, value: fx.Node, axis: int) -> int | None:
        return torchapi.known_size(value.meta["val"].shape[axis])

    def waves(self, rows: int, size: int) -> Pair:
        """cos and sin of 2π·k·n / size as [rows, size] from whole numbers, which are exact."""
        k = self.call(aten.view.default, self.call(aten.arange.default, rows), [rows, 1])
        turns = self.call(aten.mul.Tensor, k, self.call(aten.arange.default, size))
        turns = self.call(aten.remainder.Scalar, turns, size)
        angle = self.call(aten.mul.Tensor, turns, 2 * math.pi / size)
        half = self.call(aten.remainder.Scalar, self.call(aten.mul.Tensor, turns, 2), size)
        flat = self.call(aten.eq.Scalar, half, 0)  # sin π is no 0 in float32, and has an angle
        sin = self.call(aten.masked_fill.Scalar, self.call(aten.sin.default, angle), flat, 0.0)
        return self.call(aten.cos.default, angle), sin

    def scaled(self, value: Any, factor: float) -> Any:
        return value if factor == 1 or value is None else self.call(aten.mul.Tensor, value, factor)

    def halves(self, value: fx.Node, axis: int, count: int) -> Pair:
        ends = ((i * count, (i + 1) * count) for i in (0, 1))
        first, second = (self.call(aten.slice.Tensor, value, axis, *end) for end in ends)
        return first, second


def _norm(mode: int, size: int) -> float:
    """The factor of a transform along an axis: none, by the root, by the size."""
    return (1.0, 1 / math.sqrt(size), 1 / size)[mode]


def _fits(c: Calls, *sizes: int | None) -> bool:
    return c.fft and all(n is not None and n <= _LONGEST and n & (n - 1) == 0 for n in sizes)


def _transposed(c: Calls, value: Any, axes: tuple[int, int]) -> Any:
    """A value with one axis behind all others, and back again."""
    return value if value is None else c.call(aten.transpose.int, value, *axes)


def transform(c: Calls) -> Pair | None:
    """A transform along axes: the last of a real value gives half a spectrum."""
    made: Pair | None = c.parts(c.bound["self"])
    mode, rank = c.bound["normalization"], c.bound["self"].meta["val"].dim()
    axes = [axis % rank for axis in c.bound["dim"]]
    half = bool(c.bound.get("onesided"))
    inverse = c.bound.get("forward") is False
    while axes and made is not None:
        pairs = len(axes) > 1 and {axes[-2], axes[-1]} == {rank - 2, rank - 1}
        last = axes[-2:] if pairs else axes[-1:]
        sizes = [c.size(made[0], a) for a in last]
        if _fits(c, *sizes) and (not pairs or last[-1] == rank - 1):
            made = _by_operator(c, made, last, inverse, half, rank)
            for n in sizes:
                made = (
                    c.scaled(made[0], _norm(mode, n or 1)),
                    c.scaled(made[1], _norm(mode, n or 1)),
                )
        else:
            last = axes[-1:]
            made = _along(c, made, last[0], mode, inverse, half)
        axes, half = axes[: -len(last)], False
    return made


def _by_operator(
    c: Calls, parts: Pair, axes: list[int], inverse: bool, half: bool, rank: int
) -> Pair:
    """The transform along one axis, or along the last two, as ``tosaic::fft2d``."""
    re, im = (_transposed(c, p, (axes[0], rank - 1)) if len(axes) == 1 else p for p in parts)
    shape = [int(n) for n in re.meta["val"].shape]
    rows = [math.prod(shape[:-1]), 1] if len(axes) == 1 else [math.prod(shape[:-2]), shape[-2]]
    flat = [
        p if p is None else c.call(aten.reshape.default, p, [*rows, shape[-1]]) for p in (re, im)
    ]
    if flat[1] is None and not half:
        flat[1] = c.call(aten.zeros_like.default, flat[0])
    both = c.call(torchapi.FFT2D, *flat, inverse)
    made = []
    for index in (0, 1):
        item = c.node.graph.call_function(operator.getitem, (both, index))
        item.meta = {**both.meta, "val": both.meta["val"][index]}
        count = item.meta["val"].shape[-1]
        part = c.call(aten.reshape.default, item, [*shape[:-1], count])
        made.append(_transposed(c, part, (axes[0], rank - 1)) if len(axes) == 1 else part)
    return made[0], made[1]


def _along(c: Calls, parts: Pair, axis: int, mode: int, inverse: bool, half: bool) -> Pair | None:
    """A transform along one axis as one product with a matrix."""
    length = c.size(parts[0], axis)
    if length is None or length * length > _LARGEST:
        return None
    count = length // 2 + 1 if half else length
    cos, sin = (c.scaled(w, _norm(mode, length)) for w in c.waves(count, length))
    if inverse:
        sin = c.call(aten.neg.default, sin)
    weight = c.call(aten.cat.default, [cos, c.call(aten.neg.default, sin)])
    re, im = (_transposed(c, p, (axis, -1)) for p in parts)
    if im is not None:
        weight = c.call(aten.cat.default, [weight, c.call(aten.cat.default, [sin, cos])], 1)
        re = c.call(aten.cat.default, [re, im], -1)
    made = c.halves(c.call(aten.linear.default, re, weight), -1, count)
    return _transposed(c, made[0], (axis, -1)), _transposed(c, made[1], (axis, -1))


def _inverse_half(c: Calls, size: int, count: int, factor: float) -> fx.Node:
    """What half a spectrum is multiplied by, as [size, 2·count]: inner frequencies count twice."""
    k = c.call(aten.arange.default, count)
    ends = c.call(aten.logical_or.default, c.call(aten.eq.Scalar, k, 0),
                  c.call(aten.eq.Scalar, k, size / 2))  # fmt: skip
    often = c.call(aten.where.Scalar, ends, factor, 2 * factor)
    cos, sin = (
        c.call(aten.mul.Tensor, c.call(aten.slice.Tensor, w, 1, 0, count), often)
        for w in c.waves(size, size)
    )
    return c.call(aten.cat.default, [cos, c.call(aten.neg.default, sin)], 1)


def real_signal(c: Calls, re: fx.Node, im: fx.Node) -> fx.Node | None:
    """The inverse transform of half a spectrum: along the last axis it gives real numbers."""
    rank, mode, size = re.meta["val"].dim(), c.bound["normalization"], c.bound["last_dim_size"]
    *others, axis = (a % rank for a in c.bound["dim"])
    made: Pair | None = (re, im)
    for other in others:
        if made is None:
            return None
        if _fits(c, c.size(re, other)):
            made = _by_operator(c, made, [other], True, False, rank)
            factor = _norm(mode, c.size(re, other) or 1)
            made = c.scaled(made[0], factor), c.scaled(made[1], factor)
        else:
            made = _along(c, made, other, mode, True, False)
    count = c.size(re, axis)
    size = torchapi.known_size(size)
    if made is None or count is None or size is None or size * count > _LARGEST:
        return None
    if size // 2 + 1 != count:
        return None
    if _fits(c, size) and size > 2:
        return _real_by_operator(c, made, axis, mode, size, rank)
    transposed = [_transposed(c, p, (axis, -1)) for p in made]
    weight = _inverse_half(c, size, count, _norm(mode, size))
    signal = c.call(aten.linear.default, c.call(aten.cat.default, transposed, -1), weight)
    return c.call(aten.transpose.int, signal, axis, -1)


def _real_by_operator(c: Calls, parts: Pair, axis: int, mode: int, size: int, rank: int) -> fx.Node:
    """The whole spectrum from its half: the rest is its mirror image, conjugated."""
    whole = []
    for part, sign in zip(parts, (1, -1)):
        inner = c.call(aten.slice.Tensor, part, axis, 1, size // 2)
        mirror = c.call(aten.flip.default, inner, [axis])
        if sign < 0:
            mirror = c.call(aten.neg.default, mirror)
            edges = [c.call(aten.slice.Tensor, part, axis, i, i + 1) for i in (0, size // 2)]
            zeros = [c.call(aten.zeros_like.default, e) for e in edges]  # they are not read
            pieces = [zeros[0], inner, zeros[1], mirror]
        else:
            pieces = [part, mirror]
        whole.append(c.call(aten.cat.default, pieces, axis))
    made = _by_operator(c, (whole[0], whole[1]), [axis], True, False, rank)
    signal: fx.Node = c.scaled(made[0], _norm(mode, size))
    return signal


def _window(c: Calls, size: int) -> fx.Node | None:
    """The window of a frame, in its middle where it is shorter."""
    window, wide = c.bound["window"], c.bound["win_length"] or size
    if window is None and wide != size:
        window = c.call(aten.ones.default, [wide])
    if window is not None and wide != size:
        before = (size - wide) // 2
        window = c.call(aten.constant_pad_nd.default, window, [before, size - wide - before])
    found: fx.Node | None = window
    return found


def short_time(c: Calls) -> Pair | None:
    """A convolution with waves under a window, or transforms of frames by the operator."""
    b, source = c.bound, c.bound["self"]
    size, hop = b["n_fft"], b["hop_length"] or b["n_fft"] // 4
    if c.parts(source)[1] is not None or b.get("center") or b.get("align_to_window"):
        return None
    one_sided = b["onesided"] is not False
    count = size // 2 + 1 if one_sided else size
    given = b["window"]
    if count * size > _LARGEST or (given is not None and given.meta["val"].is_complex()):
        return None
    window, example = _window(c, size), source.meta["val"]
    if example.dtype is not torch.float32:  # as waves are
        source = c.call(aten.to.dtype, source, torch.float32)
    rows = c.call(aten.unsqueeze.default, source, 0) if example.dim() == 1 else source
    factor = 1 / math.sqrt(size) if b["normalized"] else 1.0
    if one_sided and _fits(c, size) and size % hop == 0 and size > 1:
        made = _frames(c, rows, window, size, hop)
        first, second = (_transposed(c, c.scaled(p, factor), (1, 2)) for p in made)
    else:
        cos, sin = c.waves(count, size)
        waves = c.call(aten.cat.default, [cos, c.call(aten.neg.default, sin)])
        if window is not None:
            waves = c.call(aten.mul.Tensor, waves, window)
        waves = c.scaled(waves, factor)
        rows, waves = (c.call(aten.unsqueeze.default, v, 1) for v in (rows, waves))
        first, second = c.halves(c.call(aten.conv1d.default, rows, waves, None, [hop]), -2, count)
    if example.dim() == 1:
        first, second = (c.call(aten.squeeze.dim, p, 0) for p in (first, second))
    return first, second


def _frames(c: Calls, rows: fx.Node, window: fx.Node | None, size: int, hop: int) -> Pair:
    """Overlapping frames as blocks of a hop side by side, each transformed."""
    batch, length = (int(n) for n in rows.meta["val"].shape)
    count, blocks = (length - size) // hop + 1, size // hop
    used = c.call(aten.slice.Tensor, rows, 1, 0, (count + blocks - 1) * hop)
    cut = c.call(aten.reshape.default, used, [batch, count + blocks - 1, hop])
    shifted = [c.call(aten.slice.Tensor, cut, 1, i, i + count) for i in range(blocks)]
    frames = c.call(aten.cat.default, shifted, -1)
    if window is not None:
        frames = c.call(aten.mul.Tensor, frames, window)
    return _by_operator(c, (frames, None), [2], False, True, 3)


def inverse_short_time(c: Calls, re: fx.Node, im: fx.Node) -> fx.Node | None:
    """A transposed convolution with waves under a window, divided by the overlap of windows."""
    b, size = c.bound, c.bound["n_fft"]
    hop, example = b["hop_length"] or size // 4, re.meta["val"]
    frames, count = c.size(re, -1), c.size(re, -2)
    given = b["window"]
    if b["onesided"] is False or b["return_complex"] or count is None or count != size // 2 + 1:
        return None
    if frames is None or (given is not None and given.meta["val"].is_complex()):
        return None
    if count * size > _LARGEST:
        return None
    window = _window(c, size)
    factor = 1 / math.sqrt(size) if b["normalized"] else 1 / size
    weight = _inverse_half(c, size, count, factor)
    squares = c.call(aten.ones.default, [size])
    if window is not None:
        weight = c.call(aten.mul.Tensor, weight, c.call(aten.unsqueeze.default, window, 1))
        squares = c.call(aten.mul.Tensor, window, window)
    weight = c.call(aten.unsqueeze.default, c.call(aten.transpose.int, weight, 0, 1), 1)
    spectrum = c.call(aten.cat.default, [re, im], -2)
    if example.dim() == 2:
        spectrum = c.call(aten.unsqueeze.default, spectrum, 0)
    signal = c.call(aten.conv_transpose1d.default, spectrum, weight, None, [hop])
    ones = c.call(aten.ones.default, [1, 1, frames])
    kernel = c.call(aten.view.default, squares, [1, 1, size])
    overlap = c.call(aten.conv_transpose1d.default, ones, kernel, None, [hop])
    start, whole = (size // 2 if b["center"] else 0), size + hop * (frames - 1)
    end = whole - start if b["length"] is None else start + int(b["length"])
    signal, overlap = (
        c.call(aten.slice.Tensor, v, -1, start, min(end, whole)) for v in (signal, overlap)
    )
    signal = c.call(aten.mul.Tensor, signal, c.call(aten.reciprocal.default, overlap))
    if end > whole:
        signal = c.call(aten.constant_pad_nd.default, signal, [0, end - whole])
    signal = c.call(aten.squeeze.dim, signal, 1)
    return c.call(aten.squeeze.dim, signal, 0) if example.dim() == 2 else signal

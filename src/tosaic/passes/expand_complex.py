"""Expands complex numbers into pairs of real ones: spectra, and rotations written with them.

TOSA has no complex numbers, and networks have them only on the way: from a transform of Fourier,
or from pairs, to magnitudes, angles or pairs again. A transform of a constant size is a product
with a constant matrix, a short-time one a convolution. Matrices are computed by calls that read
no input, so they become constants. What else reads a complex value is left to PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.engine import Call, graph_pass, replace
from tosaic.passes.match import name_of

aten = torch.ops.aten
Pair = tuple[Any, Any]
_LARGEST = 1 << 22  # elements of a matrix
_MOVES = frozenset({
    "aten.view.default", "aten.reshape.default", "aten.transpose.int", "aten.permute.default",
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.squeeze.default", "aten.slice.Tensor",
    "aten.select.int", "aten.clone.default", "aten.contiguous.default", "aten.expand.default",
    "aten.flatten.using_ints", "aten.neg.default", "aten.sum.dim_IntList", "aten.mean.dim",
    "aten.flip.default", "aten.roll.default", "aten.alias.default", "aten.t.default",
})  # fmt: skip


def has_complex(node: fx.Node) -> bool:
    example = node.meta.get("val")
    return isinstance(example, Tensor) and example.is_complex()


@graph_pass
def expand_complex(module: fx.GraphModule) -> bool:
    """Real calls in the place of those that make something real of complex values."""
    graph, pairs = module.graph, dict[fx.Node, Pair]()
    for node in list(graph.nodes):
        if node.op != "call_function" or not (has_complex(node) or _reads(node)):
            continue
        with graph.inserting_before(node):
            calls = _Calls(node, pairs)
            if has_complex(node):
                made = calls.pair()
                if made is not None:
                    pairs[node] = made
            elif (real := calls.real()) is not None:
                replace(node, Call(aten.clone.default, (real,)))  # results are known by name
    return bool(pairs)


def _reads(node: fx.Node) -> bool:
    return any(has_complex(n) for n in node.all_input_nodes)


class _Calls:
    """Makes real calls where a call is."""

    def __init__(self, node: fx.Node, pairs: dict[fx.Node, Pair]) -> None:
        self.node, self.pairs = node, pairs
        self.name: str = name_of(node)
        self.bound: dict[str, Any] = torchapi.bound_arguments(node)

    def call(self, target: Any, *args: Any) -> fx.Node:
        return torchapi.new_call(self.node, target, args)

    def parts(self, value: Any) -> Pair:
        """The real and the imaginary part of an operand; a real one has none of the second."""
        if not isinstance(value, fx.Node) or not has_complex(value):
            return value, None
        if value not in self.pairs:  # a constant, or what PyTorch computes
            re, im = (self.call(target, value) for target in (aten.real.default, aten.imag.default))
            self.pairs[value] = re, im
        return self.pairs[value]

    def real(self) -> fx.Node | None:
        """A real result of a complex operand."""
        make = _REAL.get(self.name)
        source: Any = self.bound.get("self")
        is_new = self.name in _PARTS and source not in self.pairs
        if make is None or is_new or not has_complex(source):
            return None
        return make(self, *self.parts(source))

    def pair(self) -> Pair | None:
        """A complex result as a pair."""
        if self.name in _MOVES:
            if self.node.kwargs:
                return None
            parts = self.parts(self.bound["self"])
            re, im = (self.call(self.node.target, p, *self.node.args[1:]) for p in parts)
            return re, im
        make = _PAIRS.get(self.name)
        return None if make is None else make(self)

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


def _magnitude(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node:
    squares = (c.call(aten.mul.Tensor, p, p) for p in (re, im))
    return c.call(aten.sqrt.default, c.call(aten.add.Tensor, *squares))


def _stacked(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node:
    return c.call(aten.stack.default, [re, im], -1)


def _angle(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node:
    return c.call(aten.atan2.default, im, re)


def _real_signal(c: _Calls, re: fx.Node, im: fx.Node) -> fx.Node | None:
    """The inverse transform of half a spectrum: inner frequencies count twice."""
    axis, count = c.bound["dim"], c.size(re, c.bound["dim"])
    if count is None:
        return None
    size = c.bound["n"] or 2 * (count - 1)
    if size // 2 + 1 != count or size * count > _LARGEST:
        return None
    factor = _norm(c.bound["norm"], size, inverse=True)
    k = c.call(aten.arange.default, count)
    ends = c.call(aten.logical_or.default, c.call(aten.eq.Scalar, k, 0),
                  c.call(aten.eq.Scalar, k, size / 2))  # fmt: skip
    often = c.call(aten.where.Scalar, ends, factor, 2 * factor)
    made = []
    for part, wave in zip(_last(c, (re, im), axis), c.waves(size, size), strict=True):
        weight = c.call(aten.mul.Tensor, c.call(aten.slice.Tensor, wave, 1, 0, count), often)
        made.append(c.call(aten.linear.default, part, weight))
    signal = c.call(aten.sub.Tensor, *made)
    return _back(c, signal, axis)


_PARTS = ("aten.real.default", "aten.imag.default")
_REAL: dict[str, Callable[[_Calls, Any, Any], fx.Node | None]] = {
    "aten.abs.default": _magnitude,
    "aten.angle.default": _angle,
    "aten.real.default": lambda c, re, im: re,
    "aten.imag.default": lambda c, re, im: im,
    "aten.view_as_real.default": _stacked,
    "aten.fft_irfft.default": _real_signal,
}


def _norm(name: str | None, size: int, inverse: bool) -> float:
    """The factor of a transform."""
    if name == "ortho":
        return 1 / math.sqrt(size)
    divided = (name or "backward") == ("backward" if inverse else "forward")
    return 1 / size if divided else 1.0


def _last(c: _Calls, parts: Pair, axis: int) -> list[Any]:
    """Parts with the axis behind all others."""
    return [p if p is None else c.call(aten.transpose.int, p, axis, -1) for p in parts]


def _back(c: _Calls, value: fx.Node, axis: int) -> fx.Node:
    return c.call(aten.transpose.int, value, axis, -1)


def _along(
    c: _Calls, parts: Pair, axis: int, size: int | None, norm: str | None, kind: str
) -> Pair | None:
    """A transform along one axis; ``kind`` is fft, rfft or ifft."""
    length = c.size(parts[0], axis)
    if length is None or (size or length) != length or length * length > _LARGEST:
        return None
    count = length // 2 + 1 if kind == "rfft" else length
    factor = _norm(norm, length, inverse=kind == "ifft")
    cos, sin = (c.call(aten.mul.Tensor, w, factor) for w in c.waves(count, length))
    if kind == "ifft":
        sin = c.call(aten.neg.default, sin)
    both = c.call(aten.cat.default, [cos, c.call(aten.neg.default, sin)])
    re, im = _last(c, parts, axis)
    made = c.call(aten.linear.default, re, both)
    if im is not None:
        other = c.call(aten.linear.default, im, c.call(aten.cat.default, [sin, cos]))
        made = c.call(aten.add.Tensor, made, other)
    halves = (c.call(aten.slice.Tensor, made, -1, i * count, (i + 1) * count) for i in (0, 1))
    first, second = (_back(c, half, axis) for half in halves)
    return first, second


def _transform(c: _Calls) -> Pair | None:
    kind = c.name.split(".")[1].removeprefix("fft_")
    parts = c.parts(c.bound["self"])
    return _along(c, parts, c.bound["dim"], c.bound["n"], c.bound["norm"], kind)


def _several(c: _Calls) -> Pair | None:
    """A transform along several axes, one after the other."""
    if c.bound["s"] is not None:
        return None
    source, axes = c.bound["self"], c.bound["dim"]
    made: Pair | None = c.parts(source)
    for axis in range(source.meta["val"].dim()) if axes is None else axes:
        made = None if made is None else _along(c, made, axis, None, c.bound["norm"], "fft")
    return made


def _short_time(c: _Calls) -> Pair | None:
    """A convolution with waves under a window."""
    b, source = c.bound, c.bound["self"]
    size, window = b["n_fft"], b["window"]
    if has_complex(source) or b.get("center") or b.get("align_to_window"):
        return None
    count = size if b["onesided"] is False else size // 2 + 1
    if count * size > _LARGEST or (isinstance(window, fx.Node) and has_complex(window)):
        return None
    wide = b["win_length"] or size
    if window is None and wide != size:
        window = c.call(aten.ones.default, [wide])
    if window is not None and wide != size:
        before = (size - wide) // 2
        window = c.call(aten.constant_pad_nd.default, window, [before, size - wide - before])
    cos, sin = c.waves(count, size)
    waves = c.call(aten.cat.default, [cos, c.call(aten.neg.default, sin)])
    if window is not None:
        waves = c.call(aten.mul.Tensor, waves, window)
    if b["normalized"]:
        waves = c.call(aten.mul.Tensor, waves, 1 / math.sqrt(size))
    single = source.meta["val"].dim() == 1
    if source.meta["val"].dtype is not torch.float32:  # as waves are
        source = c.call(aten.to.dtype, source, torch.float32)
    rows = c.call(aten.unsqueeze.default, source, 0) if single else source
    rows, waves = (c.call(aten.unsqueeze.default, v, 1) for v in (rows, waves))
    made = c.call(aten.conv1d.default, rows, waves, None, [b["hop_length"] or size // 4])
    if single:
        made = c.call(aten.squeeze.dim, made, 0)
    first, second = (
        c.call(aten.slice.Tensor, made, -2, i * count, (i + 1) * count) for i in (0, 1)
    )
    return first, second


def _product(c: _Calls) -> Pair:
    one, other = (c.parts(c.bound[name]) for name in ("self", "other"))
    if other[1] is None or one[1] is None:
        (re, im), factor = (one, other[0]) if other[1] is None else (other, one[0])
        return c.call(aten.mul.Tensor, re, factor), c.call(aten.mul.Tensor, im, factor)
    (a, b), (x, y) = one, other
    ax, by, ay, bx = (c.call(aten.mul.Tensor, *p) for p in ((a, x), (b, y), (a, y), (b, x)))
    return c.call(aten.sub.Tensor, ax, by), c.call(aten.add.Tensor, ay, bx)


def _sum(c: _Calls) -> Pair | None:
    one, other = (c.parts(c.bound[name]) for name in ("self", "other"))
    if one[1] is None or other[1] is None or c.bound["alpha"] != 1:
        return None
    target = aten.add.Tensor if "add" in c.name else aten.sub.Tensor
    return c.call(target, one[0], other[0]), c.call(target, one[1], other[1])


def _conjugate(c: _Calls) -> Pair:
    re, im = c.parts(c.bound["self"])
    return re, c.call(aten.neg.default, im)


def _taken_apart(c: _Calls) -> Pair:
    source = c.bound["self"]
    return c.call(aten.select.int, source, -1, 0), c.call(aten.select.int, source, -1, 1)


def _polar(c: _Calls) -> Pair:
    size, angle = c.bound["abs"], c.bound["angle"]
    cos, sin = c.call(aten.cos.default, angle), c.call(aten.sin.default, angle)
    return c.call(aten.mul.Tensor, size, cos), c.call(aten.mul.Tensor, size, sin)


_PAIRS: dict[str, Callable[[_Calls], Pair | None]] = {
    "aten.stft.default": _short_time, "aten.stft.center": _short_time,
    "aten.fft_rfft.default": _transform, "aten.fft_fft.default": _transform,
    "aten.fft_ifft.default": _transform,
    "aten.fft_fft2.default": _several, "aten.fft_fftn.default": _several,
    "aten.mul.Tensor": _product,
    "aten.add.Tensor": _sum, "aten.sub.Tensor": _sum,
    "aten._conj.default": _conjugate, "aten.conj.default": _conjugate,
    "aten.conj_physical.default": _conjugate,
    "aten.view_as_complex.default": _taken_apart,
    "aten.complex.default": lambda c: (c.bound["real"], c.bound["imag"]),
    "aten.polar.default": _polar,
}  # fmt: skip

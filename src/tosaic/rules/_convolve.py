"""Convolutions in NHWC by TOSA's operators, and equal forms of those that a target refuses.

All forms add the same products, so their results are equal. A form is taken if those before it
are refused; the first that is not refused is the cheapest where it was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.conv_kernels import Phase, fold_of, kernel_of, phases, together
from tosaic.ir.graph import Array, Quant, Value
from tosaic.lowering.alternatives.data_movement import first, joined, piece, take
from tosaic.lowering.builder import Lowering
from tosaic.rules._sums import accumulator, finished
from tosaic.rules._windows import Pads, listed
from tosaic.spec import dtypes as d


@dataclass(frozen=True, slots=True)
class Convolution:
    """CONV2D, CONV3D or DEPTHWISE_CONV2D with everything but its input.

    ``padding`` such that the last window ends with it. ``quant`` is that of the sums, of which
    each has ``terms`` products of ``bits`` bits.
    """

    name: str
    kernel: Value
    bias: Value
    input_zero: int
    weight_zero: int
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    quant: Quant | None
    terms: int
    bits: int = 22

    @property
    def is_depthwise(self) -> bool:
        return self.name == "DEPTHWISE_CONV2D"

    @property
    def start(self) -> int:
        """The axis of the kernel that its first spatial one is."""
        return 0 if self.is_depthwise else 1

    @property
    def spatial(self) -> tuple[int, ...]:
        return self.kernel.shape[self.start : self.start + len(self.stride)]

    @property
    def reach(self) -> tuple[int, ...]:
        return tuple((k - 1) * n + 1 for k, n in zip(self.spatial, self.dilation))

    def sums(self, b: Lowering, x: Value) -> Value:
        """The operator itself: sums of products in the type that TOSA adds them up in."""
        y = b.op(
            self.name, x, self.kernel, self.bias, b.const([self.input_zero], x.dtype),
            b.const([self.weight_zero], self.kernel.dtype), pad=listed(list(self.padding)),
            stride=self.stride, dilation=self.dilation, acc_type=accumulator(x),
        )  # fmt: skip
        return b.with_quant(y, self.quant)

    def finish(self, b: Lowering, sums: Value) -> Value:
        return finished(b, sums, self.terms, self.bits)

    def counts(self, x: Value) -> list[int]:
        """How many windows there are along each axis of an input with the padding in it."""
        sizes = x.shape[1:-1]
        return [(s - r) // t + 1 for s, r, t in zip(sizes, self.reach, self.stride)]


def convolved(b: Lowering, x: Value, c: Convolution) -> Value:
    """The convolution as what is wanted of it."""
    if _is_upright(x, c):
        lying = convolved(b, b.reshape(x, (x.shape[0], 1, x.shape[1], x.shape[3])), _lying(b, c))
        return b.reshape(lying, (lying.shape[0], lying.shape[2], 1, lying.shape[3]))
    c = _reaching(b, x, c)
    forms: list[Callable[[], Value]] = [lambda: c.finish(b, c.sums(b, x))]
    if c.name == "CONV3D":
        forms.append(lambda: _layered(b, _padded(b, x, c), _unpadded(c)))
        return first(b, *forms)
    if any(map(any, c.padding)):
        forms.append(lambda: _whole(b, _padded(b, x, c), _unpadded(c)))
    if max(c.stride) > 1:
        fewer = _by_shorter_stride if c.is_depthwise else _folded
        if not c.is_depthwise:
            forms.append(lambda: _in_blocks(b, x, c))
        forms.append(lambda: fewer(b, _padded(b, x, c), _unpadded(c)))
    if math.prod(c.spatial) > 1:
        forms.append(lambda: _parted(b, _padded(b, x, c), _unpadded(c)))
    if max(c.dilation) > 1:
        forms.append(lambda: convolved(b, x, _filled(b, c)))
    return first(b, *forms)


def _is_upright(x: Value, c: Convolution) -> bool:
    """Whether an image and a kernel have a single column."""
    if len(c.stride) != 2 or (x.shape[2], c.spatial[1], c.padding[1]) != (1, 1, (0, 0)):
        return False
    return x.shape[1] > 1


def _lying(b: Lowering, c: Convolution) -> Convolution:
    """The same along the width, along which kernels may be longer."""
    axes = list(c.kernel.shape)
    axes[c.start : c.start + 2] = axes[c.start + 1], axes[c.start]
    kernel = remade(b, c.kernel, axes, lambda a: a.reshape(axes))
    stride, dilation = (1, c.stride[0]), (1, c.dilation[0])
    return replace(
        c, kernel=kernel, stride=stride, dilation=dilation, padding=(c.padding[1], c.padding[0])
    )


def _in_blocks(b: Lowering, x: Value, c: Convolution) -> Value:
    """Columns of a stride as channels, where the width is made of whole strides."""
    (batch, height, width, channels), stride = x.shape, c.stride[1]
    found = fold_of(width, c.spatial[1], stride, c.padding[1], 1)
    if found is None or stride == 1 or c.dilation[1] != 1:
        raise Unsupported("the width is not made of whole strides")
    shape = (c.kernel.shape[0], c.spatial[0], found.blocks, stride * channels)
    kernel = remade(b, c.kernel, shape, lambda a: found.kernel(a, stride, c.weight_zero))
    deep = b.reshape(x, (batch, height, width // stride, stride * channels))
    return convolved(b, deep, replace(
        c, kernel=kernel, stride=(c.stride[0], 1),
        padding=(c.padding[0], (found.before, found.after)),
    ))  # fmt: skip


def _reaching(b: Lowering, x: Value, c: Convolution) -> Convolution:
    """Without the rows and columns of a kernel that see nothing but padding."""
    if not c.kernel.is_const or not any(map(any, c.padding)):
        return c
    cuts, padding = [slice(None)] * c.kernel.type.rank, list(c.padding)
    for axis, (size, taps) in enumerate(zip(x.shape[1:-1], c.spatial)):
        (before, after), gap, step = c.padding[axis], c.dilation[axis], c.stride[axis]
        starts = range(-before, size + after - (taps - 1) * gap, step)  # of the windows
        seen = [t for t in range(taps) if any(0 <= n + t * gap < size for n in starts)]
        if not seen:
            continue
        left, right = seen[0] * gap, (taps - 1 - seen[-1]) * gap
        if left <= before and right <= after:
            cuts[c.start + axis] = slice(seen[0], seen[-1] + 1)
            padding[axis] = (before - left, after - right)
    if padding == list(c.padding):
        return c
    sizes = [len(range(n)[cut]) for n, cut in zip(c.kernel.shape, cuts)]
    kernel = remade(b, c.kernel, sizes, lambda a: a[tuple(cuts)])
    left_over = zip(sizes[c.start :], c.dilation)
    dilation = tuple(1 if n == 1 else gap for n, gap in left_over)
    return replace(c, kernel=kernel, padding=tuple(padding), dilation=dilation)


def _filled(b: Lowering, c: Convolution) -> Convolution:
    """The same kernel with zeros where it has gaps."""
    ones, end = (slice(None),) * c.start, c.start + len(c.stride)
    shape = (*c.kernel.shape[: c.start], *c.reach, *c.kernel.shape[end:])
    gaps = (*ones, *(slice(None, None, n) for n in c.dilation))

    def make(kernel: Array) -> Array:
        wide: Array = np.zeros(shape, kernel.dtype)
        wide[gaps] = kernel
        return wide

    kernel = remade(b, c.kernel, shape, make)
    return replace(c, kernel=kernel, dilation=(1,) * len(c.dilation))


def _whole(b: Lowering, x: Value, c: Convolution) -> Value:
    return c.finish(b, c.sums(b, x))


def _unpadded(c: Convolution) -> Convolution:
    return replace(c, padding=((0, 0),) * len(c.padding))


def _padded(b: Lowering, x: Value, c: Convolution) -> Value:
    return padded(b, x, list(c.padding), c.input_zero)


def padded(b: Lowering, x: Value, pads: Pads, fill: float) -> Value:
    """[N, *S, C] with elements round it."""
    if not any(map(any, pads)):
        return x
    around = b.shape((0, 0, *listed(pads), 0, 0))
    return b.with_quant(b.PAD(x, around, b.const([fill], x.dtype)), x.quant)


def remade(
    b: Lowering, kernel: Value, shape: Sequence[int], make: Callable[[Array], Array]
) -> Value:
    """Another constant made of a kernel."""
    if not kernel.is_const:
        raise Unsupported("the weights are computed, and must be constant")
    return b.remade(kernel, make, shape)


def _folded(b: Lowering, x: Value, c: Convolution) -> Value:
    """Pixels of a stride as channels: a kernel of whole strides then moves by one."""
    counts = c.counts(x)
    blocks = [-(-r // s) for r, s in zip(c.reach, c.stride)]
    sizes = [(n - 1 + k) * s for n, k, s in zip(counts, blocks, c.stride)]
    x = padded(b, x, [(0, n - s) for n, s in zip(sizes, x.shape[1:3])], c.input_zero)
    (down, right), (batch, _, _, channels) = c.stride, x.shape
    rows, columns = sizes[0] // down, sizes[1] // right
    apart = b.reshape(x, (batch, rows, down, columns, right, channels))
    deep = b.reshape(b.permute(apart, (0, 1, 3, 2, 4, 5)),
                     (batch, rows, columns, down * right * channels))  # fmt: skip
    out, reach, gaps = c.kernel.shape[0], c.reach, c.dilation

    def make(kernel: Array) -> Array:
        wide = np.zeros((out, blocks[0] * down, blocks[1] * right, channels), kernel.dtype)
        wide[:, : reach[0] : gaps[0], : reach[1] : gaps[1]] = kernel
        split = wide.reshape(out, blocks[0], down, blocks[1], right, channels)
        permuted: Array = split.transpose(0, 1, 3, 2, 4, 5)
        return permuted.reshape(out, *blocks, down * right * channels)

    kernel = remade(b, c.kernel, (out, *blocks, down * right * channels), make)
    return convolved(b, deep, replace(c, kernel=kernel, stride=(1, 1), dilation=(1, 1)))


def _by_shorter_stride(b: Lowering, x: Value, c: Convolution) -> Value:
    """A shorter stride that divides it, and then every n-th result."""
    shorter = tuple(next(t for t in (3, 2, 1) if s % t == 0) for s in c.stride)
    if shorter == c.stride:
        raise Unsupported("no shorter stride divides the stride")
    counts = c.counts(x)
    y = convolved(b, x, replace(c, stride=shorter))
    for axis, (count, long, short) in enumerate(zip(counts, c.stride, shorter), 1):
        step = long // short
        y = take(b, y, axis, range(0, (count - 1) * step + 1, step))
    return y


def _parted(b: Lowering, x: Value, c: Convolution) -> Value:
    """Parts of a large kernel, whose sums are added up."""
    if accumulator(x) is d.I48:
        raise Unsupported("sums of int48 are not added up, so a kernel cannot be parted")
    counts, (down, right) = c.counts(x), c.dilation
    most_rows, most = b.traits.kernel_rows, b.traits.kernel_elements
    width = min(c.spatial[1], (most - 1) // right + 1)
    reach = (width - 1) * right + 1
    height = min(c.spatial[0], (min(most_rows, most // reach) - 1) // down + 1)
    if (height, width) == c.spatial:
        raise Unsupported("the kernel fits and needs no smaller parts")
    total: Value | None = None
    for top in range(0, c.spatial[0], height):
        for left in range(0, c.spatial[1], width):
            rows, columns = min(height, c.spatial[0] - top), min(width, c.spatial[1] - left)
            part = x
            for axis, start, size in ((0, top, rows), (1, left, columns)):
                begin = start * c.dilation[axis]
                span = (counts[axis] - 1) * c.stride[axis] + (size - 1) * c.dilation[axis] + 1
                part = piece(b, part, axis + 1, begin, begin + span)
            sums = _part(b, c, (top, rows), (left, columns), total is None).sums(b, part)
            total = sums if total is None else b.with_quant(b.ADD(total, sums), c.quant)
    assert total is not None
    return c.finish(b, total)


def _part(
    b: Lowering, c: Convolution, rows: tuple[int, int], columns: tuple[int, int], biased: bool
) -> Convolution:
    (top, height), (left, width) = rows, columns
    places = (*(slice(None),) * c.start, slice(top, top + height), slice(left, left + width))
    shape = (*c.kernel.shape[: c.start], height, width, *c.kernel.shape[c.start + 2 :])
    kernel = remade(b, c.kernel, shape, lambda a: a[places])
    none = b.const(np.zeros(1), c.bias.dtype)
    return replace(c, kernel=kernel, bias=c.bias if biased else none)


def _layered(b: Lowering, x: Value, c: Convolution) -> Value:
    """Images that a kernel of three axes sees together, as channels of one."""
    (out, depth, high, wide, channels), count = c.kernel.shape, c.counts(x)[0]
    gap, step = c.dilation[0], c.stride[0]
    images = [
        take(b, x, 1, range(i * gap, i * gap + (count - 1) * step + 1, step)) for i in range(depth)
    ]
    deep = joined(b, images, 4)
    batch, _, rows, columns, _ = deep.shape
    flat = b.reshape(deep, (batch * count, rows, columns, depth * channels))
    shape = (out, high, wide, depth * channels)
    kernel = remade(b, c.kernel, shape, lambda a: a.transpose(0, 2, 3, 1, 4).reshape(shape))
    quant = c.quant
    if quant is not None and quant.axis is not None:
        quant = replace(quant, axis=3)
    y = convolved(b, flat, replace(
        c, name="CONV2D", kernel=kernel, stride=c.stride[1:], padding=c.padding[1:],
        dilation=c.dilation[1:], quant=quant))  # fmt: skip
    return b.reshape(y, (batch, count, *y.shape[1:]))


def phased(b: Lowering, x: Value, c: Convolution, stride: Sequence[int], out_pad: Pads) -> Value:
    """The convolution transposed: plain ones, for each row of a stride.

    The columns of a stride are channels side by side, which is how they lie in memory.
    """
    (batch, height, width, _), (down, right) = x.shape, stride
    high, wide = (
        (n - 1) * s + k + sum(p) for n, s, k, p in zip((height, width), stride, c.spatial, out_pad)
    )
    counts = -(-high // down), -(-wide // right)
    rows = phases(height, counts[0], c.spatial[0], down, out_pad[0][0])
    columns = phases(width, counts[1], c.spatial[1], right, out_pad[1][0])
    groups = [[column] for column in columns] if c.is_depthwise else [together(columns)]
    quant, lines = None, []
    for row in rows:
        parts = [_phase(b, x, c, row, group, counts) for group in groups]
        quant = parts[0].quant
        lines.append(joined(b, [b.with_quant(part, None) for part in parts], 3))
    channels = c.bias.shape[0]
    y = b.reshape(joined(b, lines, 2), (batch, counts[0] * down, counts[1] * right, channels))
    y = piece(b, piece(b, y, 1, 0, high), 2, 0, wide)
    if quant is not None and isinstance(quant.scale, tuple):
        quant = replace(quant, scale=quant.scale[:channels])
    return b.with_quant(y, quant)


def _phase(
    b: Lowering, x: Value, c: Convolution, row: Phase, columns: list[Phase], counts: Sequence[int]
) -> Value:
    """One phase of rows and some of columns, whose results are channels."""
    times, sizes = len(columns), (len(row.taps), len(columns[0].taps))
    channels = times * c.bias.shape[0]
    axes = (2, 0, 1, 3) if c.is_depthwise else (0, 1, 2, 3)  # [O, H, W, C]
    shape = (*sizes, *c.kernel.shape[2:]) if c.is_depthwise else (channels, *sizes, x.shape[3])

    def weights(array: Array) -> Array:
        made = kernel_of(array.transpose(axes), row, columns, c.weight_zero)
        return made.transpose(np.argsort(axes))

    return convolved(b, x, replace(
        c, kernel=remade(b, c.kernel, shape, weights), quant=repeated(c.quant, times),
        bias=remade(b, c.bias, (channels,), lambda array: np.resize(array, channels)),
        padding=(row.pads(x.shape[1], counts[0]), columns[0].pads(x.shape[2], counts[1])),
    ))  # fmt: skip


def repeated(quant: Quant | None, times: int) -> Quant | None:
    """Scales of channels that are there so many times."""
    if quant is None or not isinstance(quant.scale, tuple):
        return quant
    return replace(quant, scale=quant.scale * times)

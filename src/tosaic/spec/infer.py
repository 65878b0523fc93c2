"""Shapes of results from shapes of operands; a use that has no result raises Unsupported."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tosaic.errors import Unsupported
from tosaic.spec.table import Infer, Shapes, Site


def _no(site: Site, reason: str) -> Unsupported:
    return Unsupported(f"{site.op.name}: {reason}")


def _sized(site: Site, count: int, *names: str) -> None:
    """Operands that are lists of so many numbers."""
    for name in names:
        if site.shape(name) != (count,):
            raise _no(site, f"{name} must have {count} elements")


def same(site: Site) -> Shapes:
    """The shape of the first operand."""
    return site.ins[0][1].shape


def broadcast(site: Site) -> Shapes:
    """Equal ranks; each dimension equal or 1."""
    shapes = [t.shape for operand, t in site.ins if operand.dims is None]
    first = shapes[0]
    if all(s == first for s in shapes):
        return first
    if any(len(s) != len(first) for s in shapes):
        ranks = ", ".join(str(len(s)) for s in shapes)
        raise _no(site, f"operands must have one rank, not {ranks}; RESHAPE them first")
    result = []
    for dims in zip(*shapes):
        wide = {d for d in dims if d != 1}
        if len(wide) > 1:
            raise _no(site, f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def check_axis(site: Site, rank: int) -> int:
    axis: int = site["axis"]
    if not 0 <= axis < rank:
        raise _no(site, f"axis {axis} is outside of rank {rank}")
    return axis


def argmax(site: Site) -> Shapes:
    shape = site.shape("input")
    axis = check_axis(site, len(shape))
    return shape[:axis] + shape[axis + 1 :]


def reduce(site: Site) -> Shapes:
    shape = site.shape("input")
    axis = check_axis(site, len(shape))
    return (*shape[:axis], 1, *shape[axis + 1 :])


def reverse(site: Site) -> Shapes:
    check_axis(site, len(site.shape("input1")))
    return site.shape("input1")


def _steps(site: Site, axis: str, span: int, stride: int) -> int:
    """Positions of a window that moves over ``span`` further elements in whole strides."""
    if stride < 1:
        raise _no(site, f"stride {stride} in {axis} must be 1 or more")
    if span < 0:
        raise _no(site, f"the window is larger than the padded input in {axis}")
    if span % stride:
        raise _no(site, f"stride {stride} leaves a remainder of {span % stride} in {axis}")
    return span // stride + 1


def convolution(axes: str) -> Infer:
    """Output sizes of CONV2D, CONV3D and DEPTHWISE_CONV2D over the spatial axes."""

    def infer(site: Site) -> Shapes:
        sizes = {}
        for i, axis in enumerate(axes):
            before, after = site["pad"][2 * i : 2 * i + 2]
            stride, dilation = site["stride"][i], site["dilation"][i]
            if before < 0 or after < 0:
                raise _no(site, f"pad {list(site['pad'])} must not be negative")
            if dilation < 1:
                raise _no(site, f"dilation {dilation} in {axis} must be 1 or more")
            reach = (site.dims[f"K{axis}"] - 1) * dilation + 1
            span = site.dims[f"I{axis}"] + before + after - reach
            sizes[f"O{axis}"] = _steps(site, axis, span, stride)
        return sizes

    return infer


def transpose_conv(site: Site) -> Shapes:
    sizes = {}
    for i, axis in enumerate("HW"):
        kernel, stride = site.dims[f"K{axis}"], site["stride"][i]
        out_pad = site["out_pad"][2 * i : 2 * i + 2]
        if stride < 1:
            raise _no(site, f"stride {stride} in {axis} must be 1 or more")
        if min(out_pad) <= -kernel:
            raise _no(site, f"out_pad {list(out_pad)} must be above -{kernel} in {axis}")
        size = (site.dims[f"I{axis}"] - 1) * stride + sum(out_pad) + kernel
        if size < 1:
            raise _no(site, f"the result would have {size} elements in {axis}")
        sizes[f"O{axis}"] = size
    return sizes


def _pool(site: Site, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]) -> Shapes:
    sizes = {}
    for i, axis in enumerate("HW"):
        window, around = kernel[i], pad[2 * i : 2 * i + 2]
        if window < 1:
            raise _no(site, f"kernel {window} in {axis} must be 1 or more")
        if min(around) < 0:
            raise _no(site, f"pad {list(pad)} must not be negative")
        if max(around) >= window:
            raise _no(site, f"pad {list(around)} must be below the kernel {window} in {axis}")
        span = site.dims[f"I{axis}"] + sum(around) - window
        sizes[f"O{axis}"] = _steps(site, axis, span, stride[i])
    return sizes


def pool(site: Site) -> Shapes:
    return _pool(site, site["kernel"], site["stride"], site["pad"])


def adaptive_pool(site: Site) -> Shapes:
    kernel, stride, pad = site.const("kernel"), site.const("stride"), site.const("pad")
    if kernel is None or stride is None or pad is None:
        return None
    _sized(site, 2, "kernel", "stride")
    _sized(site, 4, "pad")
    return _pool(site, kernel, stride, pad)


def fft(site: Site) -> Shapes:
    for axis in "HW":
        size = site.dims[axis]
        if size & (size - 1):
            raise _no(site, f"{axis} = {size} must be a power of two")
    return {"HALF": site.dims["W"] // 2 + 1}


def concat(site: Site) -> Shapes:
    shapes = [t.shape for t in site.list("input1")]
    if not shapes:
        raise _no(site, "there is nothing to concatenate")
    first = shapes[0]
    axis = check_axis(site, len(first))
    for shape in shapes[1:]:
        if len(shape) != len(first):
            raise _no(site, f"operands have ranks {len(first)} and {len(shape)}")
        if any(a != b for i, (a, b) in enumerate(zip(first, shape)) if i != axis):
            raise _no(site, f"{list(first)} and {list(shape)} differ outside of axis {axis}")
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])


def pad(site: Site) -> Shapes:
    shape, padding = site.shape("input1"), site.const("padding")
    _sized(site, 2 * len(shape), "padding")
    if padding is None:
        return None
    if min(padding, default=0) < 0:
        raise _no(site, f"padding {list(padding)} must not be negative")
    return tuple(d + padding[2 * i] + padding[2 * i + 1] for i, d in enumerate(shape))


def reshape(site: Site) -> Shapes:
    old, new = site.shape("input1"), site.const("shape")
    if new is None:
        return None
    if math.prod(new) != math.prod(old) or min(new, default=1) < 1:
        raise _no(site, f"{list(old)} has another number of elements than {list(new)}")
    return new


def slice_(site: Site) -> Shapes:
    shape, start, size = site.shape("input1"), site.const("start"), site.const("size")
    _sized(site, len(shape), "start", "size")
    if start is None or size is None:
        return None
    for i, dim in enumerate(shape):
        if start[i] < 0 or size[i] < 1 or start[i] + size[i] > dim:
            raise _no(site, f"{size[i]} elements from {start[i]} do not lie in {dim} on axis {i}")
    return size


def tile(site: Site) -> Shapes:
    shape, multiples = site.shape("input1"), site.const("multiples")
    _sized(site, len(shape), "multiples")
    if multiples is None:
        return None
    if min(multiples, default=1) < 1:
        raise _no(site, f"multiples {list(multiples)} must be 1 or more")
    return tuple(d * m for d, m in zip(shape, multiples))


def transpose(site: Site) -> Shapes:
    shape, perms = site.shape("input1"), site["perms"]
    if sorted(perms) != list(range(len(shape))):
        raise _no(site, f"perms {list(perms)} is no permutation of rank {len(shape)}")
    return tuple(shape[p] for p in perms)


def row_gather(site: Site) -> Shapes:
    rows = site.const("row_count")
    if rows is None:
        return None
    if rows[0] < 1:
        raise _no(site, f"row_count {rows[0]} must be 1 or more")
    return {"R": rows[0]}


# Bounds of RESIZE that hold at every level: they keep its index arithmetic within 32 bits.
_RESIZE_NUMERATOR, _RESIZE_RATIO, _RESIZE_SIZE = 1 << 11, 16, 16384


def resize(site: Site) -> Shapes:
    _sized(site, 4, "scale")
    _sized(site, 2, "offset", "border")
    scale, offset, border = site.const("scale"), site.const("offset"), site.const("border")
    if scale is None or offset is None or border is None:
        return None
    sizes = {}
    for i, axis in enumerate("HW"):
        n, d = scale[2 * i : 2 * i + 2]
        if n < 1 or d < 1:
            raise _no(site, f"scale {n}/{d} in {axis} must be positive")
        if n > _RESIZE_NUMERATOR:
            raise _no(site, f"scale numerator {n} in {axis} is above {_RESIZE_NUMERATOR}")
        if d >= _RESIZE_RATIO * n:
            raise _no(site, f"scale {n}/{d} in {axis} shrinks by {_RESIZE_RATIO} or more")
        far = _RESIZE_RATIO * n
        ranges = (("offset", offset[i], -n, far), ("border", border[i], -far, n))
        for name, value, low, high in ranges:
            if not low <= value < high:
                raise _no(site, f"{name} {value} in {axis} is outside of {low} to {high - 1}")
        span = (site.dims[f"I{axis}"] - 1) * n - offset[i] + border[i]
        if span < 0 or span % d:
            raise _no(site, f"scale {n}/{d} does not give a whole number of outputs in {axis}")
        sizes[f"O{axis}"] = span // d + 1
        if max(sizes[f"O{axis}"], site.dims[f"I{axis}"]) >= _RESIZE_SIZE:
            raise _no(site, f"sizes in {axis} must be below {_RESIZE_SIZE}")
    return sizes


def batches_match(site: Site) -> str | None:
    """MATMUL_T takes one B for all batches, or one for each."""
    n, d = site.dims["N"], site.dims["D"]
    return None if d in (1, n) else f"B has {d} batches; it must have 1 or {n}"


def region_results(name: str) -> Infer:
    """The results of a region, whose graph knows their types."""

    def infer(site: Site) -> Shapes:
        region = site.regions[site.op.regions.index(name)]
        return [value.type for value in region.outputs]

    return infer


def declared(site: Site) -> Shapes:
    """Results that only the file or the caller can tell (CUSTOM, control flow)."""
    return None


def nothing(site: Site) -> Shapes:
    return []

"""Operators that become calls of kernels by themselves: pools, products, rows, reductions."""

from __future__ import annotations

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Op
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm import views
from tosaic.targets.cortexm.convolutions import tail_of
from tosaic.targets.cortexm.expressions import Load, map_views
from tosaic.targets.cortexm.forms import lower
from tosaic.targets.cortexm.layers import Add, Call, MatMul, Pool
from tosaic.targets.cortexm.loops import Reduction, literal
from tosaic.targets.cortexm.lowering import Lazy, Lowerer, kernel, pattern
from tosaic.targets.cortexm.operators import computed_in, known, one
from tosaic.targets.cortexm.views import SIZES, View, whole


def numbers(op: Op, name: str) -> list[int]:
    return [int(n) for n in known(op.operand(name), op).reshape(-1)]


# ---- reductions


def _reduction(op: Op) -> Reduction:
    kind = op.ins[0].dtype
    ctype = computed_in(kind)
    name = op.name.removeprefix("REDUCE_")
    if ctype == "float":
        return _float_reduction(name, op.attrs.get("nan_mode") == "IGNORE")
    if name == "SUM":
        add = "tk_add64" if ctype == "int64_t" else "tk_add"
        return Reduction("0", f"r = {add}(r, {{v}});", ctype)
    if name in ("ALL", "ANY"):
        sign = "&" if name == "ALL" else "|"
        return Reduction("1" if name == "ALL" else "0", f"r = r {sign} {{v}};")
    if name == "ARGMAX":
        code = "if ({i} == 0 || {v} > r) {{ r = {v}; place = {i}; }}"
        return Reduction("0", code, ctype, has_place=True)
    first = literal(kind.range[0 if name == "MAX" else 1], ctype)
    return Reduction(first, f"r = {{v}} {'>' if name == 'MAX' else '<'} r ? {{v}} : r;", ctype)


def _float_reduction(name: str, ignores_nan: bool) -> Reduction:
    """A NaN wins over numbers, the first one as the place of the largest, or loses to them."""
    if name in ("SUM", "PRODUCT"):
        first, sign = ("0.0F", "+") if name == "SUM" else ("1.0F", "*")
        return Reduction(first, f"r = r {sign} {{v}};", "float")
    if name == "ARGMAX":
        wins = "({v} > r || r != r) && {v} == {v}" if ignores_nan else (
            "{i} == 0 || {v} > r || ({v} != {v} && r == r)"
        )  # fmt: skip
        code = f"if ({wins}) {{{{ r = {{v}}; place = {{i}}; }}}}"
        return Reduction("tk_nan()", code, "float", has_place=True)
    if ignores_nan:
        return Reduction("tk_nan()", f"r = tk_f{name.lower()}({{v}}, r);", "float")
    first = "-tk_infinity()" if name == "MAX" else "tk_infinity()"
    return Reduction(first, f"r = tk_{name.lower()}imum({{v}}, r);", "float")


@kernel(
    "REDUCE_SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_PRODUCT",
    "ARGMAX",
)  # fmt: skip
def reduce(lowerer: Lowerer, op: Op) -> None:
    """A loop over the axis inside loops over the others."""
    lazy, axis, out = lowerer.lazy(op.ins[0]), op.attrs["axis"], op.outs[0]
    perms = [i for i in range(len(lazy.shape)) if i != axis] + [axis]
    expr = map_views(lazy.expr, lambda view: views.transposed(view, perms))
    assert expr is not None
    shape = tuple(lazy.shape[p] for p in perms)
    buffer = lowerer.new(out)
    moved = Lazy(expr, shape, lazy.dtype)
    lowerer.store(moved, whole(buffer, shape[:-1]), (op,), _reduction(op), shape)
    lowerer.keep(out, whole(buffer, out.shape))


# ---- products and convolutions


@kernel("MATMUL", "MATMUL_T")
def matmul(lowerer: Lowerer, op: Op) -> None:
    a, b, out = op.ins[0], op.ins[1], op.outs[0]
    is_transposed = op.name == "MATMUL_T"
    n, h, c = a.shape
    width, batches = b.shape[1 if is_transposed else 2], b.shape[0]
    tail = tail_of(lowerer, out, 1)
    if tail is not None and tail.requant.lut is not None:
        tail = None
    result = tail.result if tail else out
    ops = (op, *tail.ops) if tail else (op,)
    lowerer.done.update(ops)
    layer = MatMul(
        n, h, c, width, batches, is_transposed, one(op, "A_zp"), one(op, "B_zp"), a.dtype.bits,
        result.dtype.bits, tail.requant if tail else None,
    )  # fmt: skip
    made = lower(layer, lowerer.core)
    assert made is not None
    lowerer.call(made, (lowerer.view(a), lowerer.view(b)), result, ops, "matmul")


@pattern
def add(lowerer: Lowerer, op: Op) -> bool:
    """A residual sum: two int8 tensors of one shape, rescaled, added and rescaled."""
    if op.name != "ADD" or op.outs[0].dtype is not d.I32:
        return False
    wideners = [value.producer for value in op.ins]
    tables = [_widened(each) for each in wideners]
    tail = tail_of(lowerer, op.outs[0], 1)
    if tail is None or tail.result.dtype is not d.I8 or any(t is None for t in tables):
        return False
    sources = [each.ins[0] for each in wideners if each is not None]
    if any(value.shape != op.outs[0].shape for value in sources):
        return False
    lazies = [lowerer.lazy(value) for value in sources]
    if not all(isinstance(each.expr, Load) and each.expr.view.is_contiguous for each in lazies):
        return False
    layer = Add(op.outs[0].type.size, tables[0], tables[1], tail.requant)  # type: ignore[arg-type]
    call = lower(layer, lowerer.core)
    if call is None:
        return False
    ops = (*(each for each in wideners if each is not None), op, *tail.ops)
    lowerer.done.update((op, *tail.ops))
    views_ = [lowerer.view(value) for value in sources]
    same = tuple(v.buffer for v in views_ if v.is_whole and v.buffer.kind == "arena")
    lowerer.call(call, views_, tail.result, ops, "add", same_place=same, layer=layer)
    return True


def _widened(op: Op | None) -> Array | None:
    """What a RESCALE to int32 makes of every int8; None if it is none."""
    if op is None or op.name != "RESCALE" or op.ins[0].dtype is not d.I8:
        return None
    if op.attrs["rounding_mode"] != "SINGLE_ROUND" or op.attrs["input_unsigned"]:
        return None
    multiplier, shift, zp = (known(v, op).reshape(-1).astype(np.int64) for v in op.ins[1:4])
    if len(multiplier) > 1:
        return None
    steps = np.arange(-128, 128) - zp[0]
    made: Array = (steps * multiplier[0] + (np.int64(1) << (shift[0] - 1))) >> shift[0]
    return made


# ---- pools


@kernel("MAX_POOL2D", "AVG_POOL2D", "MAX_POOL2D_ADAPTIVE", "AVG_POOL2D_ADAPTIVE")
def pool(lowerer: Lowerer, op: Op) -> None:
    x, out = op.ins[0], op.outs[0]
    (n, ih, iw, c), (_, oh, ow, _) = x.shape, out.shape
    if "kernel" in op.attrs:
        (kh, kw), (sy, sx), pad = op.attrs["kernel"], op.attrs["stride"], op.attrs["pad"]
    else:
        (kh, kw), (sy, sx), pad = (numbers(op, name) for name in ("kernel", "stride", "pad"))
    is_max = op.name.startswith("MAX")
    name = "max_pool" if is_max else "avg_pool"
    layer = Pool(
        "max" if is_max else "avg", n, ih, iw, c, oh, ow, kh, kw, sy, sx, pad[0], pad[2], ih,
        x.dtype.bits, 0 if is_max else one(op, "input_zp"), 0 if is_max else one(op, "output_zp"),
        op.attrs.get("nan_mode") == "IGNORE",
    )  # fmt: skip
    made = lower(layer, lowerer.core)
    assert made is not None
    lowerer.call(made, (lowerer.view(x),), out, (op,), name, (0, oh), layer=layer)


# ---- rows and images


@kernel("GATHER", "ROW_GATHER", "SCATTER")
def rows(lowerer: Lowerer, op: Op) -> None:
    values, indices, out = op.ins[0], op.ins[1], op.outs[0]
    n, k, c = values.shape
    size = c * SIZES[lowerer.view(values).buffer.ctype]
    shape = (indices.dtype.bits, n, k, indices.shape[1], size)
    pointers = [lowerer.view(values), lowerer.view(indices)]
    if op.name == "SCATTER":
        pointers.append(lowerer.view(op.ins[2]))
        call = Call("tk_scatter", "rows.h", shape)
    else:
        count = one(op, "row_count") if op.name == "ROW_GATHER" else 1
        call = Call("tk_gather", "rows.h", (*shape, count))
    lowerer.call(call, pointers, out, (op,))


@kernel("RESIZE")
def resize(lowerer: Lowerer, op: Op) -> None:
    x, out = op.ins[0], op.outs[0]
    (n, ih, iw, c), (_, oh, ow, _) = x.shape, out.shape
    place = (*numbers(op, "scale"), *numbers(op, "offset"))
    view: View = lowerer.view(x)
    if op.attrs["mode"] == "NEAREST_NEIGHBOR":
        size = c * SIZES[view.buffer.ctype]
        call = Call("tk_resize_nearest", "resize.h", (size, n, ih, iw, oh, ow, *place))
    else:
        shape = (x.dtype.bits, n, ih, iw, c, oh, ow)
        call = Call("tk_resize_bilinear", "resize.h", (*shape, *place))
    lowerer.call(call, (view,), out, (op,))


# ---- what has no C


@kernel("FFT2D", "RFFT2D", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE", "CUSTOM")
def refused(lowerer: Lowerer, op: Op) -> None:
    raise Unsupported(f"{op.name} has no C", op.loc)

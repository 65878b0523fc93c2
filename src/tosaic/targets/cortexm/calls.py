"""Operators that become calls of kernels by themselves: pools, products, rows, reductions."""

from __future__ import annotations

from tosaic.errors import Unsupported
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm import views
from tosaic.targets.cortexm.convolutions import tail_of
from tosaic.targets.cortexm.expressions import map_views
from tosaic.targets.cortexm.layers import Call
from tosaic.targets.cortexm.loops import Reduction, literal
from tosaic.targets.cortexm.lowering import Lazy, Lowerer, kernel
from tosaic.targets.cortexm.operators import computed_in, known, one
from tosaic.targets.cortexm.views import SIZES, View, whole


def numbers(op: Op, name: str) -> list[int]:
    return [int(n) for n in known(op.operand(name), op).reshape(-1)]


# ---- reductions


def _reduction(op: Op) -> Reduction:
    kind = op.ins[0].dtype
    ctype = computed_in(kind)
    name = op.name.removeprefix("REDUCE_")
    if name == "SUM":
        if kind is d.F32:
            return Reduction("0.0F", "r += {v};", ctype)
        add = "tk_add64" if ctype == "int64_t" else "tk_add"
        return Reduction("0", f"r = {add}(r, {{v}});", ctype)
    if name == "PRODUCT":
        return Reduction("1.0F", "r *= {v};", ctype)
    if name in ("ALL", "ANY"):
        sign = "&" if name == "ALL" else "|"
        return Reduction("1" if name == "ALL" else "0", f"r = r {sign} {{v}};")
    ignore = "_ignore" if op.attrs.get("nan_mode") == "IGNORE" else ""
    if name == "ARGMAX":
        test = f"tk_is_greater{ignore}({{v}}, r)" if kind is d.F32 else "{v} > r"
        code = f"if ({{i}} == 0 || {test}) {{{{ r = {{v}}; place = {{i}}; }}}}"
        return Reduction("0", code, ctype, has_place=True)
    if kind is d.F32:
        first = "-tk_infinity()" if name == "MAX" else "tk_infinity()"
        first = "tk_nan()" if ignore else first
        return Reduction(first, f"r = tk_{name.lower()}f{ignore}(r, {{v}});", ctype)
    first = literal(kind.range[0 if name == "MAX" else 1], ctype)
    return Reduction(first, f"r = {{v}} {'>' if name == 'MAX' else '<'} r ? {{v}} : r;", ctype)


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
    if a.dtype is d.F32:
        call = Call("tk_matmul_f32", "float_products.h", (n, h, c, width, batches, is_transposed))
        lowerer.call(call, (lowerer.view(a), lowerer.view(b)), out, (op,))
        return
    tail = tail_of(lowerer, out, 1)
    scale, result = (0, 0, 0, 0, 0), out
    ops: tuple[Op, ...] = (op,)
    if tail is not None and tail.requant.lut is None:
        made = tail.requant
        scale = (int(made.multiplier[0]), int(made.shift[0]), made.zp, made.lo, made.hi)
        result, ops = tail.result, (op, *tail.ops)
    lowerer.done.update(ops)
    zps = one(op, "A_zp"), one(op, "B_zp")
    bits = a.dtype.bits
    call = Call(
        f"tk_matmul_s{bits}", "matmul.h",
        (n, h, c, width, batches, int(is_transposed), *zps, *scale, result.dtype.bits),
    )  # fmt: skip
    lowerer.call(call, (lowerer.view(a), lowerer.view(b)), result, ops, "matmul")


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
    shape = (n, ih, iw, c, oh, ow, kh, kw, sy, sx, pad[0], pad[2], ih)
    name = "max_pool" if is_max else "avg_pool"
    more: tuple[int, ...]
    if x.dtype is d.F32:
        ignore = int(op.attrs.get("nan_mode") == "IGNORE")
        more = (ignore,) if is_max else ()
        call = Call(f"tk_{name}_f32", "float_pool.h", (*shape, *more))
        lowerer.call(call, (lowerer.view(x),), out, (op,), name)
        return
    more = (x.dtype.bits,)
    if not is_max:
        extra = (kh * kw - 1).bit_length()
        more = (*more, one(op, "input_zp"), one(op, "output_zp"),
                (((1 << 30) + 1) << extra) // (kh * kw), 30 + extra)  # fmt: skip
    call = Call(f"tk_{name}", "pool.h", (*shape, *more), streams=True)
    lowerer.call(call, (lowerer.view(x),), out, (op,), name, (0, oh))


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
    elif x.dtype is d.F32:
        call = Call("tk_resize_bilinear_f32", "float_pool.h", (n, ih, iw, c, oh, ow, *place))
    else:
        shape = (x.dtype.bits, n, ih, iw, c, oh, ow)
        call = Call("tk_resize_bilinear", "resize.h", (*shape, *place))
    lowerer.call(call, (view,), out, (op,))


# ---- what has no C


@kernel("FFT2D", "RFFT2D", "VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE", "CUSTOM")
def refused(lowerer: Lowerer, op: Op) -> None:
    raise Unsupported(f"{op.name} has no C", op.loc)

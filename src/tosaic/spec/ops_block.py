"""Operators on block-scaled pairs of data and scales (TOSA 1.1, microscaling extensions)."""

from __future__ import annotations

import math

from tosaic.errors import Unsupported
from tosaic.spec import infer
from tosaic.spec.checks import at_most, bias_channels, kernel_span
from tosaic.spec.dtypes import TensorType
from tosaic.spec.table import ENUMS, Infer, Results, Shapes, Site, op

_MX = ("fp4e2m1", "fp6e2m3", "fp6e3m2", "fp8e4m3", "fp8e5m2", "int8")


def _element(name: str) -> str:
    return "mxi8" if name == "int8" else name.replace("fp", "f")


def _rows(form: str, extra: str = "", elements: tuple[str, ...] = _MX) -> str:
    """Rows for each microscaling element; ``@`` in the form stands for it."""
    return " | ".join(f"mx+mx{e}{extra}: {form.replace('@', _element(e))}" for e in elements)


def _block(site: Site) -> int:
    return ENUMS["block_size"][site["block_size"]]


def _blocks(channels: str, *scales: str) -> Infer:
    """Channels in whole blocks, one scale for each."""

    def check(site: Site) -> Shapes:
        size = _block(site)
        if site.dims[channels] % size:
            whole = f"{channels} = {site.dims[channels]}"
            raise Unsupported(f"{site.op.name}: {whole} is no multiple of the block size {size}")
        for scale in scales:
            if site.dims[scale] != site.dims[channels] // size:
                raise Unsupported(
                    f"{site.op.name}: scales need {site.dims[channels] // size} channels, "
                    f"not {site.dims[scale]}"
                )
        return {}

    return check


def _conv(site: Site) -> Shapes:
    _blocks("IC", "IB")(site)
    names = ("pad", "stride", "dilation")
    values = {n: site.const(n) for n in names}
    site.attrs = {**site.attrs, **{n: v for n, v in values.items() if v is not None}}
    return infer.convolution("HW")(site)


def _last_axis(site: Site) -> Shapes:
    shape, size = site.ins[0][1].shape, _block(site)
    if shape[-1] % size:
        raise Unsupported(
            f"{site.op.name}: {shape[-1]} channels are no multiple of the block size {size}"
        )
    scales = (*shape[:-1], shape[-1] // size)
    if len(site.ins) > 1 and site.ins[1][1].shape != scales:
        raise Unsupported(f"{site.op.name}: scales must have shape {list(scales)}")
    results: Results = [shape, scales]
    return results[: len(site.op.results)]


_SIZE = ("block_size:block_size",)
op(
    "CONV2D_BLOCK_SCALED", 94,
    "input_data:in[N,IH,IW,IC], input_scale:scale[N,IH,IW,IB], weight_data:weight[OC,KH,KW,IC], "
    "weight_scale:scale[OC,KH,KW,IB], bias:out[BC], pad:shape[4]!!, stride:shape[2]!!, "
    "dilation:shape[2]!! -> output:out[N,OH,OW,OC]",
    _rows("@,f8ue8m0,@,f32", "+mxfpconv", _MX[:5]), types="in scale weight out", attrs=_SIZE,
    since=(1, 1), infer=_conv,
    checks=(
        bias_channels("OC"), kernel_span("HW"), at_most("max_kernel", "pad"),
        at_most("max_stride", "stride"),
    ),
)  # fmt: skip
op(
    "MATMUL_T_BLOCK_SCALED", 76,
    "A_data:A[N,H,C], A_scale:scale[N,H,CB], B_data:B[D,W,C], B_scale:scale[D,W,CB] "
    "-> output_data:out[N,H,W]",
    _rows("@,@,f8ue8m0,f32"), types="A B scale out", attrs=_SIZE, since=(1, 1),
    infer=_blocks("C", "CB"), checks=(infer.batches_match,),
)  # fmt: skip
op(
    "CAST_FROM_BLOCK_SCALED", 77,
    "input_data:in[1+], input_scale:scale[1+] -> output_data:out[1+]",
    _rows("@,f8ue8m0,f32") + " | " + _rows("@,f8ue8m0,bf16", "+bf16"), types="in scale out",
    attrs=_SIZE, since=(1, 1), infer=_last_axis,
)  # fmt: skip
op(
    "CAST_TO_BLOCK_SCALED", 78,
    "input_data:in[1+] -> output_data:out[1+], output_scale:scale[1+]",
    _rows("f32,f8ue8m0,@") + " | " + _rows("bf16,f8ue8m0,@", "+bf16", _MX[1:])
    + " | mx+mxfp4e2m1: bf16,f8ue8m0,f4e2m1",
    types="in scale out", attrs=_SIZE, since=(1, 1), infer=_last_axis,
)  # fmt: skip


# A pair is a tensor with its scales, or a tensor alone: then "scale" is bound to the tensor's type.
def _alone(rows: str) -> str:
    """Rows of plain tensors, each type standing for its missing scale too."""
    groups = []
    for group in rows.split("|"):
        head, _, body = group.partition(":")
        groups.append(f"{head}: " + " ".join(f"{c},{c.split(',')[-1]}" for c in body.split()))
    return " | ".join(groups)


def _reshape(site: Site) -> Shapes:
    values = site.list("input")
    if not values or len(values) > 2:
        raise Unsupported(f"{site.op.name}: input must be data, or data and scales")
    new = site.const("new_value_shape")
    if new is None:
        return None
    old, size = values[0], _block(site)
    result = math.prod(new)
    if result != old.size or (new and new[-1] % size):
        raise Unsupported(
            f"{site.op.name}: {list(old.shape)} cannot become {list(new)} in blocks of {size}"
        )
    scales = (*new[:-1], new[-1] // size) if new else ()
    return [_typed(site, 0, new), *([_typed(site, 1, scales)] if len(values) == 2 else [])]


def _row_gather(site: Site) -> Shapes:
    values, rows = site.list("values"), site.const("row_count")
    if not values or len(values) > 2 or any(v.rank != 3 for v in values):
        raise Unsupported(f"{site.op.name}: values must be data, or data and scales, of rank 3")
    if rows is None:
        return None
    n, w = site.shape("indices")
    return [_typed(site, i, (n, w * rows[0], v.shape[2])) for i, v in enumerate(values)]


def _typed(site: Site, index: int, shape: tuple[int, ...]) -> TensorType:
    return TensorType(site.ins[index][1].dtype, shape)


_PAIRS = _alone(
    "INT/FP: bool | INT: i8 i16 i32 | int64: i64 | FP: f16 f32 | bf16: bf16 | "
    "fp8e4m3: f8e4m3 | fp8e5m2: f8e5m2"
)
op(
    "RESHAPE_BLOCK_SCALED", 97, "input:pair..., new_value_shape:shape! -> output:pair...",
    _PAIRS + " | " + _rows("@,f8ue8m0"), types="t scale", attrs=_SIZE, since=(1, 1),
    infer=_reshape,
)  # fmt: skip
_GATHERED = _alone(
    "INT/FP: i32,i8 i32,i16 i32,i32 i32,bool | FP: i32,f16 i32,f32 | bf16: i32,bf16 | "
    "fp8e4m3: i32,f8e4m3 | fp8e5m2: i32,f8e5m2 | "
    "int64+INT/int64+FP: i64,i8 i64,i16 i64,i32 i64,bool | int64: i64,i64 | "
    "int64+FP: i64,f16 i64,f32 | int64+bf16: i64,bf16 | int64+fp8e4m3: i64,f8e4m3 | "
    "int64+fp8e5m2: i64,f8e5m2"
)
op(
    "ROW_GATHER_BLOCK_SCALED", 98,
    "values:pair..., indices:index[N,W], row_count:i32[1]!! -> output:pair...",
    " | ".join((_GATHERED, _rows("i32,@,f8ue8m0"), _rows("i64,@,f8ue8m0", "+int64"))),
    types="index t scale", attrs=_SIZE, since=(1, 1), infer=_row_gather,
)  # fmt: skip

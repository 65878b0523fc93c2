"""Convolutions, matrix products, pools, transforms."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tosaic.spec import infer
from tosaic.spec.checks import at_most, bias_channels, dims_at_most, kernel_span, zero_points
from tosaic.spec.dtypes import BF16, BLOCK_ELEMENTS, BLOCKS, F8E4M3, F8E5M2, F16, F32, DType
from tosaic.spec.table import Row, op, parse_rows

# What a floating-point or block-scaled operand needs beside its profile.
FLOAT_NEEDS: dict[DType, frozenset[str]] = {
    F16: frozenset(),
    F32: frozenset(),
    BF16: frozenset(("bf16",)),
    F8E4M3: frozenset(("fp8e4m3",)),
    F8E5M2: frozenset(("fp8e5m2",)),
} | {
    block: frozenset(("mx", "mx" + element.name.replace("mxi8", "int8").replace("f", "fp", 1)))
    for block, element in zip(BLOCKS, BLOCK_ELEMENTS)
}
_HALF = tuple(t for t in FLOAT_NEEDS if t is not F32)


def _needs(*types: DType) -> frozenset[str]:
    """The extensions of all these types, or the FP profile where there is none."""
    return frozenset().union(*(FLOAT_NEEDS[t] for t in types)) or frozenset(("FP",))


def _zero_point(kind: DType) -> DType:
    return F32 if kind in BLOCKS else kind


def _mixed_convolution() -> Iterator[Row]:
    """1.1: any two floating-point types, accumulated wide; zero points of blocks are fp32."""
    for out, acc, kinds in ((F16, BF16, _HALF), (F16, F32, _HALF), (F32, F32, tuple(FLOAT_NEEDS))):
        for a, w in product(kinds, kinds):
            types = (a, w, out, acc, _zero_point(a), _zero_point(w))
            yield Row(types, _needs(a, w, acc), (1, 1))


def _mixed_matmul() -> Iterator[Row]:
    for a, b in product(FLOAT_NEEDS, FLOAT_NEEDS):
        zero_points = (_zero_point(a), _zero_point(b))
        yield Row((a, b, F32, *zero_points), _needs(a, b) | {"FP"}, (1, 1))
        if F32 not in (a, b):
            half = F16 if a is b is F16 else BF16
            yield Row((a, b, half, *zero_points), _needs(a, b, half), (1, 1))


def _with_zero_points(rows: str) -> Iterator[Row]:
    """Rows of 1.0, where a zero point has the type of its operand."""
    for row in parse_rows(rows):
        yield Row((*row.types, *row.types[:2]), row.needs, row.since)


_CONV = (
    "INT: i8,i8,i32,i32 | int4: i8,i4,i32,i32 | int16: i16,i8,i48,i48 | FP: f16,f16,f16,f16 "
    "f16,f16,f16,f32 f32,f32,f32,f32 | bf16: bf16,bf16,bf16,f32 | "
    "fp8e4m3: f8e4m3,f8e4m3,f16,f16 | fp8e5m2: f8e5m2,f8e5m2,f16,f16"
)
_WIDE_FP8 = " | 1.1 fp8e4m3: f8e4m3,f8e4m3,f32,f32 | 1.1 fp8e5m2: f8e5m2,f8e5m2,f32,f32"
_CONV_ROWS = (*_with_zero_points(_CONV), *_mixed_convolution())
_CONV_TYPES = "in weight out acc in_zp weight_zp"
_POOL = (
    "INT: i8,i32 | int16: i16,i32 | FP: f16,f16 f16,f32 f32,f32 | bf16: bf16,f32 | "
    "fp8e4m3: f8e4m3,f16 | fp8e5m2: f8e5m2,f16"
)
_MAX_POOL = "INT: i8 | int16: i16 | FP: f16 f32 | bf16: bf16 | fp8e4m3: f8e4m3 | fp8e5m2: f8e5m2"
_POOL_LIMITS = (at_most("max_kernel", "kernel", "pad"), at_most("max_stride", "stride"))
_CONV_LIMITS = (at_most("max_kernel", "pad"), at_most("max_stride", "stride"))
_CONV_ZP = zero_points(input_zp="input", weight_zp="weight")
_IN_ZP = "input_zp:in_zp[1]!, weight_zp:weight_zp[1]!"
_CONV_ATTRS = ("acc_type:acc", "local_bound:bool=False")

op(
    "ARGMAX", 1, "input:in[1+] -> output:out[0+]",
    "INT: i8,i32 | int16: i16,i32 | FP: f16,i32 f32,i32 | bf16: bf16,i32 | "
    "fp8e4m3: f8e4m3,i32 | fp8e5m2: f8e5m2,i32 | 1.1 int64: i8,i64 i16,i64 i32,i64 i64,i64 | "
    "1.1 int64+FP: f16,i64 f32,i64 | 1.1 int64+bf16: bf16,i64 | "
    "1.1 int64+fp8e4m3: f8e4m3,i64 | 1.1 int64+fp8e5m2: f8e5m2,i64",
    types="in out", attrs=("axis:i32", "nan_mode:nan_mode=PROPAGATE"), infer=infer.argmax,
)  # fmt: skip
op(
    "AVG_POOL2D", 2, "input:t[N,IH,IW,C], input_zp:t[1]!, output_zp:t[1]! -> output:t[N,OH,OW,C]",
    _POOL, types="t acc", infer=infer.pool,
    attrs=("kernel:i32[2]", "stride:i32[2]", "pad:i32[4]", "acc_type:acc"),
    checks=(zero_points(input_zp="input", output_zp="input"), *_POOL_LIMITS),
)  # fmt: skip
op(
    "AVG_POOL2D_ADAPTIVE", 96,
    "input:t[N,IH,IW,C], input_zp:t[1]!, output_zp:t[1]!, kernel:shape[2]!, stride:shape[2]!, "
    "pad:shape[4]! -> output:t[N,OH,OW,C]",
    _POOL, types="t acc", infer=infer.adaptive_pool, attrs=("acc_type:acc",), since=(1, 1),
    checks=(zero_points(input_zp="input", output_zp="input"), *_POOL_LIMITS),
)  # fmt: skip
op(
    "CONV2D", 3,
    f"input:in[N,IH,IW,IC], weight:weight[OC,KH,KW,IC], bias:out[BC], {_IN_ZP} "
    "-> output:out[N,OH,OW,OC]",
    _CONV_ROWS, types=_CONV_TYPES, infer=infer.convolution("HW"),
    attrs=("pad:i32[4]", "stride:i32[2]", "dilation:i32[2]", *_CONV_ATTRS),
    checks=(_CONV_ZP, bias_channels("OC"), kernel_span("HW"), *_CONV_LIMITS),
)  # fmt: skip
op(
    "CONV3D", 4,
    f"input:in[N,ID,IH,IW,IC], weight:weight[OC,KD,KH,KW,IC], bias:out[BC], {_IN_ZP} "
    "-> output:out[N,OD,OH,OW,OC]",
    _CONV_ROWS, types=_CONV_TYPES, infer=infer.convolution("DHW"),
    attrs=("pad:i32[6]", "stride:i32[3]", "dilation:i32[3]", *_CONV_ATTRS),
    checks=(_CONV_ZP, bias_channels("OC"), kernel_span("DHW"), *_CONV_LIMITS),
)  # fmt: skip
op(
    "DEPTHWISE_CONV2D", 5,
    "input:in[N,IH,IW,C], weight:weight[KH,KW,C,M], bias:out[BC], input_zp:in[1]!, "
    "weight_zp:weight[1]! -> output:out[N,OH,OW,C*M]",
    _CONV + _WIDE_FP8, types="in weight out acc", infer=infer.convolution("HW"),
    attrs=("pad:i32[4]", "stride:i32[2]", "dilation:i32[2]", *_CONV_ATTRS),
    checks=(_CONV_ZP, bias_channels("C", "M"), kernel_span("HW"), *_CONV_LIMITS),
)  # fmt: skip
op(
    "FFT2D", 6, "input_real:t[N,H,W], input_imag:t[N,H,W] -> output_real:t[N,H,W], "
    "output_imag:t[N,H,W]",
    "fft: f32", attrs=("inverse:bool", "local_bound:bool=False"), infer=infer.fft,
    checks=(dims_at_most("max_kernel", "H", "W"),),
)  # fmt: skip
op(
    "MATMUL", 7, "A:A[N,H,C], B:B[N,C,W], A_zp:A[1]!, B_zp:B[1]! -> output:out[N,H,W]",
    "INT: i8,i8,i32 | int16: i16,i16,i48 | FP: f16,f16,f16 f16,f16,f32 f32,f32,f32 | "
    "bf16: bf16,bf16,f32 | fp8e4m3: f8e4m3,f8e4m3,f16 | fp8e5m2: f8e5m2,f8e5m2,f16 | "
    "1.1 fp8e4m3: f8e4m3,f8e4m3,f32 | 1.1 fp8e5m2: f8e5m2,f8e5m2,f32 | "
    "1.1 fp8e4m3+fp8e5m2: f8e4m3,f8e5m2,f16 f8e4m3,f8e5m2,f32 f8e5m2,f8e4m3,f16 "
    "f8e5m2,f8e4m3,f32",
    types="A B out", checks=(zero_points(A_zp="A", B_zp="B"),),
)  # fmt: skip
op(
    "MATMUL_T", 100,
    "A:A[N,H,C], B:B[D,W,C], A_zp:A_zp[1]!, B_zp:B_zp[1]! -> output:out[N,H,W]",
    (*parse_rows("1.1 INT: i8,i8,i32,i8,i8 | 1.1 int16: i16,i16,i48,i16,i16"), *_mixed_matmul()),
    types="A B out A_zp B_zp", since=(1, 1),
    checks=(zero_points(A_zp="A", B_zp="B"), infer.batches_match),
)  # fmt: skip
op(
    "MAX_POOL2D", 8, "input:t[N,IH,IW,C] -> output:t[N,OH,OW,C]", _MAX_POOL, infer=infer.pool,
    attrs=("kernel:i32[2]", "stride:i32[2]", "pad:i32[4]", "nan_mode:nan_mode=PROPAGATE"),
    checks=_POOL_LIMITS,
)  # fmt: skip
op(
    "MAX_POOL2D_ADAPTIVE", 95,
    "input:t[N,IH,IW,C], kernel:shape[2]!, stride:shape[2]!, pad:shape[4]! "
    "-> output:t[N,OH,OW,C]",
    _MAX_POOL, attrs=("nan_mode:nan_mode=PROPAGATE",), infer=infer.adaptive_pool, since=(1, 1),
    checks=_POOL_LIMITS,
)  # fmt: skip
op(
    "RFFT2D", 9, "input_real:t[N,H,W] -> output_real:t[N,H,HALF], output_imag:t[N,H,HALF]",
    "fft: f32", attrs=("local_bound:bool=False",), infer=infer.fft,
    checks=(dims_at_most("max_kernel", "H", "W"),),
)  # fmt: skip
op(
    "TRANSPOSE_CONV2D", 10,
    f"input:in[N,IH,IW,IC], weight:weight[OC,KH,KW,IC], bias:out[BC], {_IN_ZP} "
    "-> output:out[N,OH,OW,OC]",
    _CONV_ROWS, types=_CONV_TYPES, infer=infer.transpose_conv,
    attrs=("out_pad:i32[4]", "stride:i32[2]", *_CONV_ATTRS),
    checks=(
        _CONV_ZP, bias_channels("OC"), kernel_span("HW", dilated=False),
        at_most("max_kernel", "out_pad"), at_most("max_stride", "stride"),
    ),
)  # fmt: skip

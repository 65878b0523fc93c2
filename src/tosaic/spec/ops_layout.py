"""Data layout, gather and scatter, resize, type conversion."""

from __future__ import annotations

from tosaic.spec import infer
from tosaic.spec.checks import (
    rescale_channels,
    rescale_types,
    rescale_zero_points,
    resize_scale,
    resize_types,
    rounding_extension,
    scatter_room,
)
from tosaic.spec.dtypes import BF16, BLOCKS, F8E4M3, F8E5M2, F16, F32, I32, I64, DType
from tosaic.spec.ops_tensor import FLOAT_NEEDS
from tosaic.spec.table import Row, op, parse_rows

_FP8 = "fp8e4m3: f8e4m3 | fp8e5m2: f8e5m2"
_PAD = f"INT/FP: bool | INT: i8 i16 i32 | 1.1 int64: i64 | FP: f16 f32 | bf16: bf16 | {_FP8}"
BLOCK_ROWS = tuple(Row((b,), FLOAT_NEEDS[b], (1, 1)) for b in BLOCKS)
_MOVE = (*parse_rows(_PAD), *BLOCK_ROWS)
_CONCAT = (*parse_rows(_PAD.replace("INT: i8 i16 i32", "INT: i8 i32 | int16: i16")), *BLOCK_ROWS)

op(
    "CONCAT", 55, "input1:t[1+]... -> output:t[1+]", _CONCAT, attrs=("axis:i32",),
    infer=infer.concat,
)  # fmt: skip
op(
    "PAD", 56, "input1:t[1+], padding:shape!, pad_const:t[1]! -> output:t[1+]", _PAD,
    infer=infer.pad,
)  # fmt: skip
op("RESHAPE", 57, "input1:t[0+], shape:shape! -> output:t[0+]", _MOVE, infer=infer.reshape)
op("REVERSE", 58, "input1:t[1+] -> output:t[1+]", _MOVE, attrs=("axis:i32",), infer=infer.reverse)
op(
    "SLICE", 59, "input1:t[1+], start:shape!, size:shape! -> output:t[1+]", _MOVE,
    infer=infer.slice_,
)  # fmt: skip
op("TILE", 60, "input1:t[1+], multiples:shape! -> output:t[1+]", _MOVE, infer=infer.tile)
op(
    "TRANSPOSE", 61, "input1:t[1+] -> output:t[1+]", _MOVE, attrs=("perms:i32[]",),
    infer=infer.transpose,
)  # fmt: skip

_GATHER = (
    "INT: i32,i8 i32,i16 i32,i32 | 1.1 FP: i32,i8 i32,i16 i32,i32 | 1.1 INT/FP: i32,bool | "
    "FP: i32,f16 i32,f32 | bf16: i32,bf16 | fp8e4m3: i32,f8e4m3 | fp8e5m2: i32,f8e5m2 | "
    "1.1 int64+INT/int64+FP: i64,i8 i64,i16 i64,i32 i64,bool | 1.1 int64: i64,i64 | "
    "1.1 int64+FP: i64,f16 i64,f32 | 1.1 int64+bf16: i64,bf16 | "
    "1.1 int64+fp8e4m3: i64,f8e4m3 | 1.1 int64+fp8e5m2: i64,f8e5m2"
)
op(
    "GATHER", 62, "values:t[N,K,C], indices:index[N,W] -> output:t[N,W,C]", _GATHER,
    types="index t",
)  # fmt: skip
op(
    "SCATTER", 63, "values_in:t[N,K,C], indices:index[N,W], input:t[N,W,C] -> values_out:t[N,K,C]",
    _GATHER, types="index t", checks=(scatter_room,),
)  # fmt: skip
_ROW_GATHER = (
    *parse_rows(
        "INT/FP: i32,bool i32,i8 i32,i32 | int64+INT/int64+FP: i64,bool i64,i8 i64,i32 i32,i64 "
        "i64,i64 | int16+INT/int16+FP: i32,i16 | int64+int16+INT/int64+int16+FP: i64,i16 | "
        "FP: i32,f16 i32,f32 | int64+FP: i64,f16 i64,f32"
    ),
    *(
        Row((index, kind), FLOAT_NEEDS[kind] | ({"int64"} if index is I64 else set()), (1, 1))
        for index in (I32, I64)
        for kind in (F8E4M3, F8E5M2, BF16, *BLOCKS)
    ),
)
op(
    "ROW_GATHER", 99,
    "values:t[N,K,C], indices:index[N,W], row_count:i32[1]!! -> output:t[N,W*R,C]",
    _ROW_GATHER, types="index t", infer=infer.row_gather, since=(1, 1),
)  # fmt: skip

_RESIZE = (
    "INT: i8,i32 i8,i8 | int16: i16,i48 i16,i16 | FP: f16,f16 f32,f32 | bf16: bf16,bf16 | "
    "1.1 fp8e4m3: f8e4m3,f8e4m3 | 1.1 fp8e5m2: f8e5m2,f8e5m2"
)
op(
    "RESIZE", 64,
    "input:in[N,IH,IW,C], scale:shape[4]!, offset:shape[2]!, border:shape[2]! "
    "-> output:out[N,OH,OW,C]",
    (*parse_rows(_RESIZE), *(Row((b, b), FLOAT_NEEDS[b], (1, 1)) for b in BLOCKS)),
    types="in out", attrs=("mode:resize_mode",), infer=infer.resize,
    checks=(resize_scale, resize_types),
)  # fmt: skip


def _block_casts() -> list[Row]:
    """1.1: block-scaled types to and from each floating-point type."""
    rows = []
    for block in BLOCKS:
        for kind in (F8E4M3, F8E5M2, F16, BF16, F32):
            needs = FLOAT_NEEDS[block] | FLOAT_NEEDS[kind]
            rows += [Row((block, kind), needs, (1, 1)), Row((kind, block), needs, (1, 1))]
    return rows


def _cast(kind: DType, others: str) -> str:
    return " ".join(f"{kind.name},{o} {o},{kind.name}" for o in others.split())


op(
    "CAST", 65, "input:in[0+] -> output:out[0+]",
    (
        *parse_rows(
            "INT: bool,i8 bool,i16 bool,i32 i8,bool i16,bool i32,bool i8,i16 i8,i32 i16,i8 "
            "i16,i32 i32,i8 i32,i16 | 1.1 int64: bool,i64 i32,i64 i64,bool i64,i32 | "
            f"1.1 FP: {_cast(F32, 'bool')} | FP: {_cast(F16, 'i8 i16 i32 f32')} "
            f"{_cast(F32, 'i8 i16 i32')} | bf16: {_cast(BF16, 'i8 i16 i32 f32')} | "
            f"bf16+fp8e4m3: {_cast(F8E4M3, 'bf16')} | bf16+fp8e5m2: {_cast(F8E5M2, 'bf16')} | "
            f"fp8e4m3: {_cast(F8E4M3, 'f16 f32')} | fp8e5m2: {_cast(F8E5M2, 'f16 f32')}"
        ),
        *_block_casts(),
    ),
    types="in out", infer=infer.same,
)  # fmt: skip
op(
    "RESCALE", 66,
    "input:in[0+], multiplier:any[NC]!, shift:i8[NC]!, input_zp:in[1]!, output_zp:out[1]! "
    "-> output:out[0+]",
    "INT: i8,i8 i8,i16 i8,i32 i16,i8 i16,i16 i16,i32 i32,i8 i32,i16 i32,i32 | "
    "int16: i48,i8 i48,i16 i48,i32",
    types="in out", infer=infer.same,
    attrs=(
        "scale32:bool", "rounding_mode:rounding_mode", "per_channel:bool",
        "input_unsigned:bool=False", "output_unsigned:bool=False",
    ),
    checks=(rescale_types, rescale_zero_points, rescale_channels, rounding_extension),
)  # fmt: skip

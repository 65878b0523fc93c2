"""Activations, arithmetic, logic, comparison, selection and reductions."""

from __future__ import annotations

from tosaic.spec import infer
from tosaic.spec.checks import clamp_bounds, mul_shift, table_size, zero_points
from tosaic.spec.table import OPS, op

_UNARY = "input1:t[0+] -> output:t[0+]"
_BINARY = "input1:t[0+], input2:t[0+] -> output:t[0+]"
_FLOAT = "FP: f16 f32 | bf16: bf16"
_NUMBER = f"INT: i32 | 1.1 int64: i64 | {_FLOAT}"
_BITS = "INT: i8 i16 i32 | 1.1 int64: i64"
_SHIFT = "INT/FP: i8 i16 i32 | 1.1 int64: i64"
_NAN = ("nan_mode:nan_mode=PROPAGATE",)

op(
    "CLAMP", 11, "input:t[0+] -> output:t[0+]", f"INT: i8 | int16: i16 | {_FLOAT}",
    attrs=("min_val:value", "max_val:value", *_NAN), infer=infer.same, checks=(clamp_bounds,),
)  # fmt: skip
for _name, _code in (("ERF", 12), ("SIGMOID", 13), ("TANH", 14)):
    op(_name, _code, "input:t[0+] -> output:t[0+]", _FLOAT, infer=infer.same)

for _name, _code, _rows in (
    ("ADD", 15, f"INT/FP: i32 | 1.1 int64: i64 | {_FLOAT}"),
    ("BITWISE_AND", 17, _BITS),
    ("BITWISE_OR", 18, _BITS),
    ("BITWISE_XOR", 19, _BITS),
    ("LOGICAL_AND", 21, "INT/FP: bool"),
    ("LOGICAL_OR", 24, "INT/FP: bool"),
    ("LOGICAL_XOR", 25, "INT/FP: bool"),
    ("INTDIV", 20, "INT/FP: i32 | 1.1 int64: i64"),
    ("LOGICAL_LEFT_SHIFT", 22, _SHIFT),
    ("LOGICAL_RIGHT_SHIFT", 23, _SHIFT),
    ("POW", 29, _FLOAT),
    ("SUB", 30, f"INT/FP: i32 | 1.1 int64: i64 | {_FLOAT}"),
):
    op(_name, _code, _BINARY, _rows, infer=infer.broadcast)
op("ARITHMETIC_RIGHT_SHIFT", 16, _BINARY, _BITS, attrs=("round:bool",), infer=infer.broadcast)
for _name, _code in (("MAXIMUM", 26), ("MINIMUM", 27)):
    op(_name, _code, _BINARY, _NUMBER, attrs=_NAN, infer=infer.broadcast)
op(
    "MUL", 28, "input1:in[0+], input2:in[0+], shift:i8[1]! -> output:out[0+]",
    "INT: i8,i32 i16,i32 | INT/FP: i32,i32 | 1.1 int64: i64,i64 | FP: f16,f16 f32,f32 | "
    "bf16: bf16,bf16",
    types="in out", infer=infer.broadcast, checks=(mul_shift,),
)  # fmt: skip
op(
    "TABLE", 31, "input1:in[0+], table:table[SIZE]! -> output:out[0+]",
    "INT: i8,i8,i8 | int16: i16,i16,i32", types="in table out", infer=infer.same,
    checks=(table_size,),
)  # fmt: skip

for _name, _code, _rows in (
    ("ABS", 32, _NUMBER),
    ("BITWISE_NOT", 33, _BITS),
    ("CEIL", 34, _FLOAT),
    ("CLZ", 35, "INT: i32 | 1.1 int64: i64"),
    ("COS", 36, _FLOAT),
    ("EXP", 37, _FLOAT),
    ("FLOOR", 38, _FLOAT),
    ("LOG", 39, _FLOAT),
    ("LOGICAL_NOT", 40, "INT/FP: bool"),
    ("RECIPROCAL", 42, _FLOAT),
    ("RSQRT", 43, _FLOAT),
    ("SIN", 44, _FLOAT),
):
    op(_name, _code, _UNARY, _rows, infer=infer.same)
op(
    "NEGATE", 41, "input1:t[0+], input1_zp:t[1]!, output_zp:t[1]! -> output:t[0+]",
    f"INT: i8 i16 i32 | 1.1 int64: i64 | {_FLOAT}", infer=infer.same,
    checks=(zero_points(input1_zp="input1", output_zp="input1"),),
)  # fmt: skip

op(
    "SELECT", 45, "input1:bool[0+], input2:t[0+], input3:t[0+] -> output:t[0+]",
    f"INT/FP: bool | INT: i8 i16 i32 | 1.1 int64: i64 | {_FLOAT}", infer=infer.broadcast,
)  # fmt: skip
for _name, _code in (("EQUAL", 46), ("GREATER", 47), ("GREATER_EQUAL", 48)):
    op(
        _name, _code, "input1:t[0+], input2:t[0+] -> output:bool[0+]", _NUMBER,
        infer=infer.broadcast,
    )  # fmt: skip
BROADCASTS = tuple(name for name, defn in OPS.items() if defn.infer is infer.broadcast)

_REDUCE = "input:t[1+] -> output:t[1+]"
_ORDERED = f"INT: i8 i16 i32 | 1.1 int64: i64 | {_FLOAT}"
for _name, _code, _rows, _attrs in (
    ("REDUCE_ALL", 49, "INT/FP: bool", ()),
    ("REDUCE_ANY", 50, "INT/FP: bool", ()),
    ("REDUCE_MAX", 51, _ORDERED, _NAN),
    ("REDUCE_MIN", 52, _ORDERED, _NAN),
    ("REDUCE_PRODUCT", 53, _FLOAT, ()),
    ("REDUCE_SUM", 54, _NUMBER, ()),
):
    op(_name, _code, _REDUCE, _rows, attrs=("axis:i32", *_attrs), infer=infer.reduce)

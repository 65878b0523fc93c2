"""TOSA's data types: how each is named, stored in a file and held in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One TOSA type; each exists once, so types compare by identity.

    ``code`` is the enumerator in the file's schema. ``bits`` is the packed width in a file,
    ``array`` the numpy type that holds one element in memory (int4 in int8, int48 in int64).
    A block-scaled type has the code of its elements and one 8-bit scale per 32 of them.
    """

    name: str
    code: int
    kind: str  # "int", "float", "bool", "shape", "mx" (microscaling element) or "block"
    bits: int
    array: Any
    mlir: str

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return dtype, (self.name,)

    @property
    def is_int(self) -> bool:
        return self.kind == "int"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_float8(self) -> bool:
        return self.is_float and self.bits == 8

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or boolean type; int4 leaves out -8."""
        if self.kind == "bool":
            return 0, 1
        if self.bits == 4:
            return -7, 7
        return -(1 << self.bits - 1), (1 << self.bits - 1) - 1


_F8E4M3 = ml_dtypes.float8_e4m3fn
_F8E5M2 = ml_dtypes.float8_e5m2

MOST_E4M3 = 448.0  # the largest number of float8_e4m3fn, which has no infinities

BOOL = DType("bool", 1, "bool", 8, np.bool_, "i1")
I4 = DType("i4", 2, "int", 4, np.int8, "i4")
I8 = DType("i8", 3, "int", 8, np.int8, "i8")
I16 = DType("i16", 4, "int", 16, np.int16, "i16")
I32 = DType("i32", 5, "int", 32, np.int32, "i32")
I48 = DType("i48", 6, "int", 48, np.int64, "i48")
F32 = DType("f32", 7, "float", 32, np.float32, "f32")
F16 = DType("f16", 8, "float", 16, np.float16, "f16")
BF16 = DType("bf16", 9, "float", 16, ml_dtypes.bfloat16, "bf16")
SHAPE = DType("shape", 10, "shape", 64, np.int64, "index")
F8E4M3 = DType("f8e4m3", 11, "float", 8, _F8E4M3, "f8E4M3FN")
F8E5M2 = DType("f8e5m2", 12, "float", 8, _F8E5M2, "f8E5M2")
F6E2M3 = DType("f6e2m3", 13, "mx", 6, np.uint8, "f6E2M3FN")
F6E3M2 = DType("f6e3m2", 14, "mx", 6, np.uint8, "f6E3M2FN")
F4E2M1 = DType("f4e2m1", 15, "mx", 4, np.uint8, "f4E2M1FN")
F8UE8M0 = DType("f8ue8m0", 16, "mx", 8, np.uint8, "f8E8M0FNU")
I64 = DType("i64", 17, "int", 64, np.int64, "i64")
MXI8 = DType("mxi8", 18, "mx", 8, np.int8, "!tosa.mxint8")


UNKNOWN = -1  # a size that is known when the graph runs
BLOCK = 32  # elements along the last axis that share a scale


def _block(element: DType) -> DType:
    mlir = f"!tosa.block_scaled<BLOCK_SHAPE_{BLOCK}:{F8UE8M0.mlir}:{element.mlir}>"
    return DType(f"bs{BLOCK}_{element.name}", element.code, "block", element.bits, np.uint8, mlir)


BLOCK_ELEMENTS = (F8E4M3, F8E5M2, F6E3M2, F6E2M3, F4E2M1, MXI8)
BLOCKS = tuple(_block(element) for element in BLOCK_ELEMENTS)

PLAIN = (
    BOOL, I4, I8, I16, I32, I48, F32, F16, BF16, SHAPE, F8E4M3, F8E5M2,
    F6E2M3, F6E3M2, F4E2M1, F8UE8M0, I64, MXI8,
)  # fmt: skip
ALL = PLAIN + BLOCKS
BY_CODE = {d.code: d for d in PLAIN}
BY_MLIR = {d.mlir: d for d in ALL}
_BY_NAME = {d.name: d for d in ALL}


def dtype(name: str) -> DType:
    """The type of that name; KeyError if there is none."""
    return _BY_NAME[name]


def fits_int4(low: int, high: int) -> bool:
    """Whether integers within limits are int4's."""
    return I4.range[0] <= low and high <= I4.range[1]


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape; a shape value of n dimensions is ``TensorType(SHAPE, (n,))``.

    A size that inputs choose is UNKNOWN.
    """

    dtype: DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_known(self) -> bool:
        """Whether every size is known before the graph runs."""
        return UNKNOWN not in self.shape

    @property
    def size(self) -> int:
        return math.prod(self.shape)

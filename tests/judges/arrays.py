"""Numpy arrays of TOSA's types, in and out of files and programs that know fewer types."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tosaic.spec.dtypes import SHAPE, DType

# How each type is held in memory: int4 in int8, int48 and shapes in int64.
ARRAY_TYPE: dict[str, np.dtype] = {
    "BOOL": np.dtype(np.bool_),
    "INT4": np.dtype(np.int8),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT48": np.dtype(np.int64),
    "INT64": np.dtype(np.int64),
    "SHAPE": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "FP8E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "FP8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "FP8UE8M0": np.dtype(np.uint8),
    "FP6E2M3": np.dtype(np.uint8),
    "FP6E3M2": np.dtype(np.uint8),
    "FP4E2M1": np.dtype(np.uint8),
    "MXINT8": np.dtype(np.int8),
}
_BITS_ONLY = {"BF16": np.dtype("V2"), "FP8E4M3": np.dtype("V1"), "FP8E5M2": np.dtype(np.uint8)}
_PACKED = {"FP6E2M3": 6, "FP6E3M2": 6, "FP4E2M1": 4}  # bits of elements, in bytes of a row


def from_file(array: np.ndarray, tosa_type: str) -> np.ndarray:
    """An array of the wheel's files, with bits given the type that they stand for."""
    if tosa_type in _PACKED:
        bits = np.unpackbits(array.view(np.uint8), axis=-1, bitorder="little")
        bits = bits.reshape(*array.shape[:-1], -1, _PACKED[tosa_type])
        return np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    if tosa_type in ("FP8UE8M0", "MXINT8"):
        return array.view(ARRAY_TYPE[tosa_type])
    if tosa_type in _BITS_ONLY and array.dtype.itemsize == ARRAY_TYPE[tosa_type].itemsize:
        return array.view(ARRAY_TYPE[tosa_type])
    return array


def to_file(array: np.ndarray, tosa_type: str) -> np.ndarray:
    """The array as the wheel's files and libraries want it: odd floats as bits."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return array.view(_BITS_ONLY[tosa_type]) if tosa_type in _BITS_ONLY else array


_SMALL = {
    "FP6E2M3": (ml_dtypes.float6_e2m3fn, 3, 0),
    "FP6E3M2": (ml_dtypes.float6_e3m2fn, 2, -2),
    "FP4E2M1": (ml_dtypes.float4_e2m1fn, 1, 0),
    "FP8E4M3": (ml_dtypes.float8_e4m3fn, 3, -6),
    "FP8E5M2": (ml_dtypes.float8_e5m2, 2, -14),
    "FP8UE8M0": (ml_dtypes.float8_e8m0fnu, 0, -127),
}


def is_small(tosa_type: str) -> bool:
    """Whether a type is one of block-scaled elements or scales."""
    return tosa_type == "MXINT8" or tosa_type in _SMALL


def is_rounded(array: np.ndarray, tosa_type: str, exact: np.ndarray, share: float) -> bool:
    """Whether elements are within a share of a step of real numbers; scales are exact."""
    if tosa_type == "MXINT8":
        return bool((np.abs(array / 64 - exact) <= share / 64).all())
    kind, mantissa, least = _SMALL[tosa_type]
    real = array.view(kind).astype(np.float64)
    exponent = np.floor(np.log2(np.maximum(np.abs(exact), np.finfo(np.float64).tiny)))
    step = np.exp2(np.maximum(exponent, least) - mantissa)
    share = 0.0 if tosa_type == "FP8UE8M0" else share
    same = (real == exact) | (np.isnan(real) & np.isnan(exact))  # infinities have no distance
    return bool((np.abs(real[~same] - exact[~same]) <= share * step[~same]).all())


def patterns(kind: DType, count: int) -> np.ndarray:
    """Values of a type with all kinds of bits: extremes, NaNs, whatever the type has."""
    draw = np.random.default_rng(kind.code)
    if kind.is_int or kind is SHAPE:
        low, high = (-(1 << 63), (1 << 63) - 1) if kind is SHAPE else kind.range
        ends = np.array([low, high, 0, -1], dtype=np.int64)
        numbers = draw.integers(low, high, count - 4, endpoint=True)
        return np.concatenate([ends, numbers]).astype(kind.array)
    if kind.kind == "bool":
        return draw.integers(0, 2, count).astype(np.bool_)
    if kind.bits < 8:
        return draw.integers(0, 1 << kind.bits, count).astype(np.uint8)
    size = np.dtype(kind.array).itemsize
    return np.frombuffer(draw.bytes(count * size), kind.array)

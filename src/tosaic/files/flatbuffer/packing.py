"""Constants as a file stores them: how many bytes they take, and both ways between the forms.

Most types look the same in a file and in memory. int4 and the 4- and 6-bit floats are packed, low
bits first; int48 takes six bytes; a block-scaled constant is one row of bytes, elements and then
scales, in memory and two vectors in a file.
"""

from __future__ import annotations

import math

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.ir.graph import Array
from tosaic.spec.dtypes import BOOL, I4, I48, DType, TensorType

BLOCK = 32


def is_plain(kind: DType) -> bool:
    """Whether memory can show a file's bytes as they are; a bool's byte may be any."""
    return kind is not BOOL and np.dtype(kind.array).itemsize * 8 == kind.bits


def data_size(kind: TensorType) -> int:
    """Bytes of a constant's elements in a file."""
    return (kind.size * kind.dtype.bits + 7) // 8


def scale_size(kind: TensorType) -> int:
    """Bytes of a block-scaled constant's scales: one for each block along the last axis."""
    if kind.dtype.kind != "block" or not kind.shape:
        return 0
    return math.prod(kind.shape[:-1]) * -(-kind.shape[-1] // BLOCK)


def pack(array: Array, kind: TensorType) -> memoryview:
    """A constant's bytes for a file; for a block-scaled one its scales follow its elements."""
    dtype = kind.dtype
    shape = (data_size(kind) + scale_size(kind),) if dtype.kind == "block" else kind.shape
    if array.shape != shape or array.dtype != dtype.array:
        given = f"{array.dtype}{list(array.shape)}"
        raise InvalidGraph(f"a constant of {kind} holds an array of {given}")
    flat = np.ascontiguousarray(array).reshape(-1)
    if dtype is I48:
        flat = np.ascontiguousarray(flat.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :6])
    elif dtype.bits == 4 and dtype.kind != "block":
        low = flat.view(np.uint8) & 15
        flat = np.append(low, np.zeros(len(low) % 2, np.uint8)).reshape(-1, 2)
        flat = flat[:, 0] | flat[:, 1] << 4
    elif dtype.bits == 6 and dtype.kind != "block":
        bits = np.unpackbits(flat.reshape(-1, 1), axis=1, count=6, bitorder="little")
        flat = np.packbits(bits, bitorder="little")
    return flat.reshape(-1).view(np.uint8).data


def unpack(raw: Array, kind: TensorType) -> Array:
    """A constant's array from its bytes, for a type that is not plain."""
    dtype, size = kind.dtype, kind.size
    flat: Array
    if dtype is BOOL:
        flat = raw != 0
    elif dtype is I48:
        wide = np.zeros((size, 8), np.uint8)
        wide[:, 2:] = raw.reshape(size, 6)
        flat = wide.view("<i8").reshape(-1) >> 16
    elif dtype.bits == 4:
        flat = np.stack((raw & 15, raw >> 4), axis=1).reshape(-1)[:size]
        flat = (flat ^ 8).view(np.int8) - np.int8(8) if dtype is I4 else flat
    else:
        bits = np.unpackbits(raw, count=size * dtype.bits, bitorder="little")
        flat = np.packbits(bits.reshape(size, dtype.bits), axis=1, bitorder="little")
    return flat.reshape(kind.shape)

"""How MLIR's TOSA dialect spells types, strings, attributes and constants, for printer and parser.

Attribute spelling follows from the kind that the operator table gives each attribute; what does
not follow is in the three constants below. Found by experiment with tosa-opt of tosa-tools
2026.8.0.
"""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np

from tosaic.ir.graph import Array
from tosaic.spec.dtypes import (
    BOOL,
    BY_MLIR,
    F4E2M1,
    F6E2M3,
    F6E3M2,
    F8UE8M0,
    I4,
    I48,
    MXI8,
    SHAPE,
    UNKNOWN,
    DType,
    TensorType,
)
from tosaic.spec.table import ENUMS, Attr, OpDef

# Arrays of integers are ``array<i64: …>``, but for these.
_ARRAY_ELEMENTS = {"perms": "i32"}
# An enumerator stands alone, but in these operators it carries its type.
_TYPED_ENUMS = ("RESHAPE_BLOCK_SCALED", "ROW_GATHER_BLOCK_SCALED")
# A default is left out, but these must be written.
_EXPLICIT = ("input_unsigned", "output_unsigned")
# Constants of more elements are hexadecimal bytes, or left out for people (tosa-opt does so from
# 100 on; bytes are faster to read).
_LIST_LIMIT = 16
# Small floats are held as bits; these types know their values.
_SMALL_FLOATS: dict[DType, Any] = {
    F6E2M3: ml_dtypes.float6_e2m3fn,
    F6E3M2: ml_dtypes.float6_e3m2fn,
    F4E2M1: ml_dtypes.float4_e2m1fn,
    F8UE8M0: ml_dtypes.float8_e8m0fnu,
}
_BARE_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_PLAIN_STRING = re.compile(r"[ !#-\[\]-~]*")


def type_text(kind: TensorType) -> str:
    if kind.dtype is SHAPE:
        return f"!tosa.shape<{kind.shape[0]}>"
    sizes = "".join("?x" if d == UNKNOWN else f"{d}x" for d in kind.shape)
    return f"tensor<{sizes}{kind.dtype.mlir}>"


_TENSOR = re.compile(r"tensor<\s*((?:(?:\d+|\?)\s*x\s*)*)([^\dx?*\s].*?)\s*>", re.ASCII)
_SHAPE_TYPE = re.compile(r"!tosa\.shape<\s*(\d+)\s*>", re.ASCII)
_MAX_DIM = (1 << 63) - 1
_MAX_RANK = 64  # numpy's; no level of TOSA has more than 32


def parse_type(text: str) -> TensorType | None:
    """A tensor or shape type, or None where it is not one of TOSA's."""
    shape = _SHAPE_TYPE.fullmatch(text)
    if shape and len(shape[1]) < 19:
        return TensorType(SHAPE, (int(shape[1]),))
    match = _TENSOR.fullmatch(text)
    kind = BY_MLIR.get("".join(match[2].split())) if match else None
    if match is None or kind is None or kind is SHAPE:
        return None
    sizes = [d.strip().replace("?", str(UNKNOWN)) for d in match[1].split("x")[:-1]]
    if len(sizes) > _MAX_RANK or any(len(d) > 19 or int(d) > _MAX_DIM for d in sizes):
        return None
    return TensorType(kind, tuple(map(int, sizes)))


def string_text(value: str | bytes) -> str:
    """A quoted string; bytes that are no plain ASCII are ``\\XX``."""
    if isinstance(value, str):
        if _PLAIN_STRING.fullmatch(value):
            return f'"{value}"'
        value = value.encode("utf-8", "surrogatepass")
    return '"' + "".join(_byte_text(b) for b in value) + '"'


def _byte_text(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}"


_ESCAPE = re.compile(rb'\\(?:([0-9A-Fa-f]{2})|([nt"\\]))')
_LETTERS = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def string_bytes(token: str) -> bytes:
    """What a quoted string stands for."""
    raw = token[1:-1].encode("utf-8", "surrogatepass")
    if b"\\" not in raw:
        return raw
    return _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]) if m[1] else _LETTERS[m[2]], raw)


def symbol_text(name: str) -> str:
    return "@" + (name if _BARE_SYMBOL.fullmatch(name) else string_text(name))


def is_written(attr: Attr, value: Any) -> bool:
    """Whether an attribute appears in the text: it has a value, which is not the usual one."""
    return value is not None and (
        attr.default is None or value != attr.default or attr.name in _EXPLICIT
    )


def attr_text(defn: OpDef, attr: Attr, value: Any, element: DType | None) -> str:
    """The value of an attribute; ``element`` is the type of a ``value`` such as CLAMP's bounds."""
    kind = attr.kind
    if kind == "i32":
        return f"{value} : i32"
    if kind.startswith("i32["):
        numbers = f": {', '.join(map(str, value))}" if value else ""
        return f"array<{_ARRAY_ELEMENTS.get(attr.name, 'i64')}{numbers}>"
    if kind == "bool":
        return "true" if value else "false"
    if kind in ("str", "bytes"):
        return string_text(value)
    if kind == "acc":
        return str(value.mlir)
    if kind in ENUMS:
        return f"#tosa.{kind}<{value}>" if defn.name in _TYPED_ENUMS else str(value)
    assert element is not None, f"{defn.name}: attribute {attr.name} has no spelling"
    number = np.asarray(value).astype(element.array)
    return f"{_scalar(element, number)} : {element.mlir}"


def dense_text(kind: TensorType, array: Array) -> str:
    """A constant with its type: one number for all, a list, or hexadecimal bytes."""
    typed = type_text(kind) if kind.dtype is not SHAPE else f"tensor<{kind.shape[0]}xindex>"
    return f"dense<{_dense_body(kind, array)}> : {typed}"


def _dense_body(kind: TensorType, array: Array) -> str:
    if kind.dtype.kind == "block":
        return f'"0x{array.tobytes().hex().upper()}"'
    if array.size == 0:
        return ""
    bits = raw(kind.dtype, array)
    width = len(bits) // array.size
    if bits == bits[:width] * array.size:
        return _scalar(kind.dtype, array.reshape(-1)[0])
    if array.size <= _LIST_LIMIT or kind.dtype is MXI8:
        return _list(kind.dtype, array)
    return f'"0x{bits.hex().upper()}"'


def _list(kind: DType, array: Array) -> str:
    if kind.is_int or kind is SHAPE:
        return str(array.tolist())
    if array.ndim > 1:
        return "[" + ", ".join(_list(kind, part) for part in array) + "]"
    return "[" + ", ".join(_scalar(kind, number) for number in array) + "]"


def _scalar(kind: DType, number: Any) -> str:
    if kind is BOOL:
        return "true" if number else "false"
    if kind is MXI8:
        return f'"{int(number)}"'
    if kind in _SMALL_FLOATS:
        return f"0x{int(number):02X}"
    if not kind.is_float:
        return str(int(number))
    value = float(number)
    if not math.isfinite(value):
        return "0x" + np.asarray(number).tobytes()[::-1].hex().upper()
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def raw(kind: DType, array: Array) -> bytes:
    """The bytes of MLIR's dense form: little-endian, each element in whole bytes."""
    if kind is I4:
        return (array.view(np.uint8) & 0xF).tobytes()
    if kind is I48:
        octets = np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
        return octets[:, :6].tobytes()
    return array.tobytes()


def width(kind: DType) -> int:
    """Bytes of one element in the dense form."""
    return 6 if kind is I48 else int(np.dtype(kind.array).itemsize)


def from_raw(kind: DType, data: bytes) -> Array:
    """The elements that bytes of the dense form stand for."""
    if kind is I48:
        wide = np.zeros((len(data) // 6, 8), np.uint8)
        wide[:, 2:] = np.frombuffer(data, np.uint8).reshape(-1, 6)
        numbers: Array = wide.view(np.int64).reshape(-1) >> 16
        return numbers
    array = np.frombuffer(data, np.uint8 if kind is BOOL else kind.array)
    if kind is BOOL:
        return (array & 1).astype(np.bool_)
    if kind is I4:
        return np.left_shift(array, 4) >> 4
    return array


def from_numbers(kind: DType, numbers: list[str]) -> Array | None:
    """The elements that a list spells, or None where one of them is no number of the type."""
    try:
        if kind is MXI8:
            return _integers(kind, [n.strip('"') for n in numbers])
        if kind.is_float or kind in _SMALL_FLOATS:
            return _floats(kind, numbers)
        return _integers(kind, numbers)
    except (KeyError, ValueError, OverflowError):
        return None


_LONGEST_NUMBER = 40


def _integers(kind: DType, numbers: list[str]) -> Array:
    if kind is BOOL:
        words = {"true": True, "false": False, "1": True, "0": False, "-1": True}
        return np.array([words[n] for n in numbers])
    if any(len(n) > _LONGEST_NUMBER for n in numbers):
        raise ValueError("too long")
    found = [int(n, 16 if n.startswith("0x") else 10) for n in numbers]
    low, high = (-(1 << 63), (1 << 63) - 1) if kind is SHAPE else kind.range
    unsigned = 2 * high + 1  # signless: 255 is a way to write -1
    if min(found) < low or max(found) > unsigned:
        raise OverflowError
    return np.array([n - unsigned - 1 if n > high else n for n in found], dtype=kind.array)


def _floats(kind: DType, numbers: list[str]) -> Array:
    held = np.dtype(_SMALL_FLOATS.get(kind, kind.array))
    bits = np.dtype(f"u{held.itemsize}")
    # An infinity among the decimals overflows on purpose: MLIR rounds likewise.
    with np.errstate(over="ignore", invalid="ignore"):
        decimals = np.array([0.0 if n.startswith("0x") else float(n) for n in numbers])
        found = decimals.astype(held)
    patterns = found.view(bits)
    for i, number in enumerate(numbers):
        if number.startswith("0x"):
            patterns[i] = int(number[:_LONGEST_NUMBER], 16)
        elif "." not in number:
            raise ValueError("a floating-point number needs a point")
    return patterns if kind in _SMALL_FLOATS else found

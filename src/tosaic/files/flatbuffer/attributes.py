"""An operator's attributes, between the fields of its table in a file and Python values."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.files.flatbuffer import packing
from tosaic.files.flatbuffer.reader import Table
from tosaic.files.flatbuffer.schema import attributes
from tosaic.files.flatbuffer.writer import FlatbufferWriter
from tosaic.ir.graph import Op, Value
from tosaic.spec.dtypes import BY_CODE as DTYPES
from tosaic.spec.dtypes import DType, TensorType
from tosaic.spec.table import ENUMS, Attr

_NAMES = {kind: {number: name for name, number in e.items()} for kind, e in ENUMS.items()}


def decode(table: Table, field: int, attr: Attr, operands: Sequence[Value], user: str) -> Any:
    """The value of one attribute."""
    kind, what = attr.kind, f"attribute {attr.name} of {user}"
    if kind == "i32":
        return table.i32(field)
    if kind == "bool":
        return table.flag(field)
    if kind.startswith("i32["):
        return table.ints(field, what)
    if kind == "str":
        return table.string(field, what)
    if kind == "bytes":
        return table.data(field, what)
    if kind == "value":
        return _number(table.data(field, what), operands, what)
    number = table.u32(field)
    known: dict[int, Any] = DTYPES if kind == "acc" else _NAMES[kind]
    if number not in known:
        raise InvalidGraph(f"{what} is {number}, which stands for nothing")
    return known[number]


def _number(data: bytes, operands: Sequence[Value], what: str) -> int | float:
    """A number in the type of the first operand; the file may pad it to 8 bytes."""
    dtype = _operand_type(operands, what)
    one = TensorType(dtype, (1,))
    need = packing.data_size(one)
    if not need <= len(data) <= 8:
        raise InvalidGraph(f"{what} takes {need} bytes for {dtype}; the file has {len(data)}")
    raw = np.frombuffer(data, np.uint8, need)
    array = raw.view(dtype.array) if packing.is_plain(dtype) else packing.unpack(raw, one)
    number: int | float = float(array[0]) if dtype.is_float else int(array[0])
    return number


def _operand_type(operands: Sequence[Value], what: str) -> DType:
    if not operands:
        raise InvalidGraph(f"{what} has the type of the operand, and there is none")
    dtype = operands[0].dtype
    if not (dtype.is_int or dtype.is_float):
        raise InvalidGraph(f"{what} cannot be of type {dtype}")
    return dtype


def encode(file: FlatbufferWriter, op: Op, regions: Sequence[str]) -> int:
    """Write an operator's table of attributes; regions go by their names in the file."""
    kinds, values = "", []
    named = dict(zip(op.defn.regions, regions))
    for attr in attributes(op.defn):
        value = named.get(attr.name, op.attrs.get(attr.name, attr.default))
        try:
            letter, written = _field(file, op, attr, value)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error):
            reason = f"{op.name}: attribute {attr.name} cannot be {value!r}"
            raise InvalidGraph(reason, op.loc) from None
        kinds += letter
        values.append(written)
    return file.table(kinds, *values)


def _field(file: FlatbufferWriter, op: Op, attr: Attr, value: Any) -> tuple[str, int]:
    """A field's letter for the writer, and what goes there: a number or a place."""
    kind = attr.kind
    if kind == "i32":
        struct.pack("<i", value)
        return "i", value
    if kind == "bool":
        return "B", bool(value)
    if kind.startswith("i32["):
        return "o", file.ints(tuple(value))
    if kind == "str":
        return "o", file.string(value)
    if kind == "bytes":
        return "o", file.data(bytes(value))
    if kind == "acc":
        return "I", DTYPES[value.code].code
    if kind in ENUMS:
        return "I", ENUMS[kind][value]
    dtype = _operand_type(op.ins, f"attribute {attr.name} of {op.name}")
    if dtype.is_int and int(value) != value:
        raise ValueError(value)
    return "o", file.data(packing.pack(np.array([value], dtype.array), TensorType(dtype, (1,))))

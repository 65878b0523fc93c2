"""TOSA graphs as MLIR text, in the form that tosa-opt reads and prints.

Attribute spelling follows from the kind that the operator table gives each attribute; what does
not follow is in the three constants below. Found by experiment with tosa-opt of tosa-tools
2026.8.0, which reads every operator of the table as the graph that was printed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.ir.graph import Array, Graph, Loc, Op, Value
from tosaic.spec.dtypes import (
    BOOL,
    F4E2M1,
    F6E2M3,
    F6E3M2,
    F8UE8M0,
    I4,
    I48,
    MXI8,
    SHAPE,
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
# Constants of more elements are hexadecimal bytes (tosa-opt writes them so from 100 on).
_LIST_LIMIT = 16
_SMALL_FLOATS = (F6E2M3, F6E3M2, F4E2M1, F8UE8M0)  # held as bits
_BARE_SYMBOL = re.compile(r"[A-Za-z_][\w$.]*", re.ASCII)
_PLAIN_STRING = re.compile(r"[ !#-\[\]-~]*")


def print_graph(graph: Graph) -> str:
    """The graph as one function in a module."""
    printer = _Printer()
    body = "".join(printer.module(graph))
    return "".join(map(_alias, printer.locs.items())) + body


class _Printer:
    def __init__(self) -> None:
        self.number = 0
        self.arguments = 0
        self.types: dict[TensorType, str] = {}
        self.locs: dict[Loc, str] = {}

    def type(self, kind: TensorType) -> str:
        text = self.types.get(kind)
        if text is None:
            text = self.types[kind] = _type_text(kind)
        return text

    def list(self, values: Sequence[Value]) -> str:
        return f"({', '.join([self.type(v.type) for v in values])})"

    def module(self, graph: Graph) -> Iterator[str]:
        major, minor = graph.version
        yield f'module attributes {{tosa.fbs_version = "{major}.{minor}.0"}} {{\n'
        for op in graph.walk():
            if op.name == "VARIABLE":
                yield f"  {self.variable(op)}{self.loc([], op.loc)}\n"
        names: dict[Value, str] = {}
        arguments = ", ".join(self.argument(v, names, tensor_name=True) for v in graph.inputs)
        results = ", ".join(f"{self.type(v.type)}{_tensor_name(v)}" for v in graph.outputs)
        arrow = f" -> ({results})" if graph.outputs else ""
        yield f"  func.func {_symbol_text(graph.name)}({arguments}){arrow} {{\n"
        yield from self.block(graph, names, "    ", "return")
        yield "  }\n}\n"

    def loc(self, values: Sequence[Value], loc: Loc | None, regions: Sequence[Graph] = ()) -> str:
        """Names of results and regions, and where the operator comes from, as a location.

        A single name is MLIR's named location; several are a dictionary on a fused one.
        """
        where = ""
        if loc is not None:
            where = self.locs.get(loc, "") or self.locs.setdefault(loc, f"#loc{len(self.locs)}")
        if len(values) == 1 and not regions:
            name = values[0].name
            if name:
                return f" loc({_string_text(name)}{f'({where})' if where else ''})"
        elif regions or any(v.name for v in values):
            facts = _strings("names", [v.name for v in values])
            facts += ", " + _strings("regions", [r.name for r in regions]) if regions else ""
            return f" loc(fused<{{{facts}}}>[{where or 'unknown'}])"
        return f" loc({where})" if where else ""

    def argument(self, value: Value, names: dict[Value, str], tensor_name: bool) -> str:
        names[value] = name = f"%arg{self.arguments}"
        self.arguments += 1
        label = _tensor_name(value) if tensor_name else ""
        loc = self.loc([] if tensor_name else [value], value.loc)
        return f"{name}: {self.type(value.type)}{label}{loc}"

    def variable(self, op: Op) -> str:
        name, kind, initial = op.attrs["name"], op.attrs["type"], op.attrs.get("initial_value")
        if initial is None:
            return f"tosa.variable {_symbol_text(name)} : {self.type(kind)}"
        return f"tosa.variable {_symbol_text(name)} = {_dense_text(kind, initial)}"

    def block(self, graph: Graph, names: dict[Value, str], indent: str, end: str) -> Iterator[str]:
        """Operators, each constant before its first use, and what the block gives back."""
        for op in graph.ops:
            if op.name == "VARIABLE":
                continue
            for value in op.ins:
                if value not in names:
                    yield self.constant(value, names, indent)
            yield from self.op(op, names, indent)
        for value in graph.outputs:
            if value not in names:
                yield self.constant(value, names, indent)
        if graph.outputs:
            given = ", ".join(names[v] for v in graph.outputs)
            types = ", ".join(self.type(v.type) for v in graph.outputs)
            yield f"{indent}{end} {given} : {types}\n"
        else:
            yield f"{indent}{end}\n"

    def constant(self, value: Value, names: dict[Value, str], indent: str) -> str:
        if value.const is None or not value.is_const:
            raise InvalidGraph(f"value {value.name} is used before it is computed")
        names[value] = name = f"%{self.number}"
        self.number += 1
        op = "const_shape" if value.dtype is SHAPE else "const"
        data = _dense_text(value.type, value.const.array)
        loc = self.loc([value], value.loc)
        return (
            f'{indent}{name} = "tosa.{op}"() <{{values = {data}}}> : '
            f"() -> {self.type(value.type)}{loc}\n"
        )

    def op(self, op: Op, names: dict[Value, str], indent: str) -> Iterator[str]:
        given = ", ".join([names[v] for v in op.ins])
        outs = op.outs
        result = ""
        if outs:
            name = f"%{self.number}"
            self.number += 1
            if len(outs) == 1:
                names[outs[0]], result = name, f"{name} = "
            else:
                names.update((v, f"{name}#{i}") for i, v in enumerate(outs))
                result = f"{name}:{len(outs)} = "
        arrow = self.type(outs[0].type) if len(outs) == 1 else self.list(outs)
        types = f"{self.list(op.ins)} -> {arrow}{self.loc(outs, op.loc, op.regions)}\n"
        if op.regions:
            yield f'{indent}{result}"{op.defn.mlir}"({given}) ({{\n'
            for i, region in enumerate(op.regions):
                yield f"{indent}}}, {{\n" if i else ""
                inner: dict[Value, str] = {}
                yield self.region(region, inner, indent + "  ")
                yield from self.block(region, inner, indent + "  ", "tosa.yield")
            yield f"{indent}}}) : {types}"
        elif op.name == "VARIABLE_READ":
            yield f"{indent}{result}{op.defn.mlir} {_symbol_text(op.attrs['name'])} : " + (
                types.removeprefix("() -> ")
            )
        elif op.name == "VARIABLE_WRITE":
            loc = self.loc([], op.loc)
            name = _symbol_text(op.attrs["name"])
            yield f"{indent}{op.defn.mlir} {name}, {given} : {self.type(op.ins[0].type)}{loc}\n"
        else:
            attrs = self.attrs(op)
            yield f"{indent}{result}{op.defn.mlir} {given}{attrs} : {types}"

    def region(self, region: Graph, names: dict[Value, str], indent: str) -> str:
        """The line that names the block's arguments, if it has any."""
        arguments = ", ".join(self.argument(v, names, tensor_name=False) for v in region.inputs)
        return f"{indent}^bb0({arguments}):\n" if arguments else ""

    def attrs(self, op: Op) -> str:
        parts = []
        for attr in op.defn.attrs:
            value = op.attrs.get(attr.name)
            if _is_written(attr, value):
                element = op.ins[0].dtype if attr.kind == "value" else None
                parts.append(f"{attr.name} = {_attr_text(op.defn, attr, value, element)}")
        return f" {{{', '.join(parts)}}}" if parts else ""


def _alias(item: tuple[Loc, str]) -> str:
    """The definition of a location's name."""
    loc, name = item
    facts = ((k, getattr(loc, k)) for k in ("node", "module"))
    words = ", ".join(f"{k} = {_string_text(v)}" for k, v in facts if v)
    place = f"{_string_text(loc.file)}:{loc.line}:0" if loc.file or loc.line else "unknown"
    return f"{name} = loc(fused<{{{words}}}>[{place}])\n"


def _tensor_name(value: Value) -> str:
    return f" {{tosa.tensor_name = {_string_text(value.name)}}}" if value.name else ""


def _strings(key: str, names: Sequence[str]) -> str:
    return f"{key} = [{', '.join(map(_string_text, names))}]"


def _type_text(kind: TensorType) -> str:
    if kind.dtype is SHAPE:
        return f"!tosa.shape<{kind.shape[0]}>"
    return f"tensor<{''.join(f'{d}x' for d in kind.shape)}{kind.dtype.mlir}>"


def _string_text(value: str | bytes) -> str:
    """A quoted string; bytes that are no plain ASCII are ``\\XX``."""
    if isinstance(value, str):
        if _PLAIN_STRING.fullmatch(value):
            return f'"{value}"'
        value = value.encode("utf-8", "surrogatepass")
    return '"' + "".join(_byte_text(b) for b in value) + '"'


def _byte_text(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}"


def _symbol_text(name: str) -> str:
    return "@" + (name if _BARE_SYMBOL.fullmatch(name) else _string_text(name))


def _is_written(attr: Attr, value: Any) -> bool:
    """Whether an attribute appears in the text: it has a value, which is not the usual one."""
    return value is not None and (
        attr.default is None or value != attr.default or attr.name in _EXPLICIT
    )


def _attr_text(defn: OpDef, attr: Attr, value: Any, element: DType | None) -> str:
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
        return _string_text(value)
    if kind == "acc":
        return str(value.mlir)
    if kind in ENUMS:
        return f"#tosa.{kind}<{value}>" if defn.name in _TYPED_ENUMS else str(value)
    assert element is not None, f"{defn.name}: attribute {attr.name} has no spelling"
    number = np.asarray(value).astype(element.array)
    return f"{_scalar(element, number)} : {element.mlir}"


def _dense_text(kind: TensorType, array: Array) -> str:
    """A constant with its type: one number for all, a list, or hexadecimal bytes."""
    typed = _type_text(kind) if kind.dtype is not SHAPE else f"tensor<{kind.shape[0]}xindex>"
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
        return f'"0x{int(number) & 0xFF:02X}"'
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

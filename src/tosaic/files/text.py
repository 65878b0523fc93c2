"""TOSA graphs as MLIR text, in the form that tosa-opt reads and prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tosaic.errors import InvalidGraph
from tosaic.files.source_paths import portable
from tosaic.files.spelling import (
    attr_text,
    dense_text,
    is_written,
    string_text,
    symbol_text,
    type_text,
)
from tosaic.ir.graph import Graph, Loc, Op, Value
from tosaic.spec.dtypes import SHAPE, TensorType


def print_graph(graph: Graph) -> str:
    """The graph as one function in a module, which ``parse`` and tosa-opt read."""
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
            text = self.types[kind] = type_text(kind)
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
        yield f"  func.func {symbol_text(graph.name)}({arguments}){arrow} {{\n"
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
                return f" loc({string_text(name)}{f'({where})' if where else ''})"
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
            return f"tosa.variable {symbol_text(name)} : {self.type(kind)}"
        return f"tosa.variable {symbol_text(name)} = {dense_text(kind, initial)}"

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
        data = dense_text(value.type, value.const.array)
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
            yield f"{indent}{result}{op.defn.mlir} {symbol_text(op.attrs['name'])} : " + (
                types.removeprefix("() -> ")
            )
        elif op.name == "VARIABLE_WRITE":
            loc = self.loc([], op.loc)
            name = symbol_text(op.attrs["name"])
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
            if is_written(attr, value):
                element = op.ins[0].dtype if attr.kind == "value" else None
                parts.append(f"{attr.name} = {attr_text(op.defn, attr, value, element)}")
        return f" {{{', '.join(parts)}}}" if parts else ""


def _alias(item: tuple[Loc, str]) -> str:
    """The definition of a location's name."""
    loc, name = item
    facts = ((k, getattr(loc, k)) for k in ("node", "module"))
    words = ", ".join(f"{k} = {string_text(v)}" for k, v in facts if v)
    place = f"{string_text(portable(loc.file))}:{loc.line}:0" if loc.file or loc.line else "unknown"
    return f"{name} = loc(fused<{{{words}}}>[{place}])\n"


def _tensor_name(value: Value) -> str:
    return f" {{tosa.tensor_name = {string_text(value.name)}}}" if value.name else ""


def _strings(key: str, names: Sequence[str]) -> str:
    return f"{key} = [{', '.join(map(string_text, names))}]"

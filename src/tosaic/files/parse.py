"""Reads TOSA in MLIR text, as ``print_graph`` and tosa-opt write it.

Operators come in the pretty form (``%0 = tosa.add %a, %b : (…) -> …``) and in the generic one
(``%0 = "tosa.add"(%a, %b) <{…}> : (…) -> …``). The text is checked for what it says, not for
whether TOSA allows it: that is the verifier's part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from tosaic.errors import Unsupported
from tosaic.files.lex import Tokens, shown
from tosaic.files.places import Place, Places
from tosaic.files.spelling import from_numbers
from tosaic.ir.build import known, normal_attrs, shape_value
from tosaic.ir.graph import Const, Graph, Op, Value
from tosaic.spec import OPS, everything
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import BY_MLIR, SHAPE, TensorType
from tosaic.spec.env import VERSIONS
from tosaic.spec.table import ENUMS, Attr, OpDef

_BY_MLIR = {defn.mlir: defn for defn in OPS.values()}
_ENDS = ("return", "func.return", "tosa.yield")
_DEEPEST = 256  # regions inside of regions, which is what level none allows
_WIDEST = everything(level="none")
_VERSION = re.compile(rb"(\d{1,3})\.(\d{1,3})\b.*", re.DOTALL)

Scope = dict[str, Value]


def parse(text: str) -> Graph:
    """The graph of a text; InvalidGraph with a line and a column if there is none."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = Tokens(text)
        self.places = Places(self.tokens)
        self.version = VERSIONS[0]
        self.variables: list[Op] = []

    def module(self) -> Graph:
        tokens = self.tokens
        graphs: list[Graph] = []
        wrapped = False
        while tokens.peek():
            if tokens.peek() == "module" and not wrapped:
                wrapped = True
                self._module_header()
                while not tokens.accept("}"):
                    self._top(graphs)
                self.places.optional()
            else:
                self._top(graphs)
        if len(graphs) != 1:
            tokens.fail(f"one function is needed; the text has {len(graphs)}", tokens.at)
        graphs[0].ops[:0] = self.variables
        return graphs[0]

    def _module_header(self) -> None:
        tokens = self.tokens
        tokens.take()
        if tokens.peek().startswith("@"):
            tokens.symbol()
        if tokens.accept("attributes"):
            for key, value in self._strings().items():
                if key == "tosa.fbs_version":
                    self._set_version(value)
        tokens.expect("{")

    def _set_version(self, text: bytes) -> None:
        match = _VERSION.fullmatch(text)
        version = (int(match[1]), int(match[2])) if match else None
        if version not in VERSIONS:
            have = ", ".join(f"{a}.{b}" for a, b in VERSIONS)
            self.tokens.fail(f"the version of TOSA is none of {have}")
        self.version = version

    def _strings(self) -> dict[str, bytes]:
        """Attributes in braces, of which only those that are strings matter."""
        tokens = self.tokens
        found: dict[str, bytes] = {}

        def entry() -> None:
            key = tokens.take()
            if tokens.accept("="):
                if tokens.peek().startswith('"'):
                    found[key] = tokens.string()
                tokens.skip_value()

        tokens.expect("{")
        tokens.separated("}", entry)
        return found

    def _top(self, graphs: list[Graph]) -> None:
        """A function, a variable, or an alias of a location."""
        tokens = self.tokens
        word = tokens.take()
        if word == "func.func":
            graphs.append(self._function())
        elif word in ("tosa.variable", '"tosa.variable"'):
            self.variables.append(self._variable(generic=word.startswith('"')))
        elif word.startswith("#"):
            tokens.expect("=")
            self.places.needed()
        else:
            tokens.fail(f"a function or a variable is needed here, not {shown(word)}")

    def _function(self) -> Graph:
        tokens = self.tokens
        if tokens.peek() in ("private", "public"):
            tokens.take()
        graph = Graph(tokens.symbol(), version=self.version)
        scope: Scope = {}
        tokens.expect("(")
        tokens.separated(")", lambda: self._argument(graph, scope))
        types: list[TensorType] = []
        names: list[str] = []

        def result() -> None:
            types.append(tokens.type())
            names.append(self._tensor_name())

        if tokens.accept("->"):
            if tokens.accept("("):
                tokens.separated(")", result)
            else:
                result()
        if tokens.accept("attributes"):
            self._strings()
        tokens.expect("{")
        self._block(graph, scope, (), 0)
        self.places.optional()
        if [v.type for v in graph.outputs] != types:
            tokens.fail(f"{graph.name} returns other types than it declares")
        inputs = set(graph.inputs)
        for value, name in zip(graph.outputs, names):
            if name and value not in inputs:
                value.name = name
        return graph

    def _tensor_name(self) -> str:
        if self.tokens.peek() != "{":
            return ""
        name = self._strings().get("tosa.tensor_name", b"")
        try:
            return name.decode()
        except UnicodeDecodeError:
            self.tokens.fail("the name is no UTF-8 text")

    def _argument(self, graph: Graph, scope: Scope) -> None:
        """``%arg0: type {tosa.tensor_name = "x"} loc(…)``"""
        tokens = self.tokens
        key = self._fresh(scope)
        tokens.expect(":")
        value = Value(tokens.type())
        name = self._tensor_name()
        place = self.places.optional()
        value.name, value.loc = name or place.name(), place.loc
        scope[key] = value
        graph.inputs.append(value)

    def _fresh(self, scope: Scope) -> str:
        key = self.tokens.take()
        if key[0] != "%" or len(key) < 2:
            self.tokens.fail(f"a value such as %0 is needed here, not {shown(key)}")
        if key in scope:
            self.tokens.fail(f"{shown(key)} is defined twice")
        return key

    def _variable(self, generic: bool) -> Op:
        """``@name : type``, ``@name = dense<…> : type`` or the generic form."""
        tokens = self.tokens
        attrs: dict[str, Any] = {}
        if generic:
            attrs = self._generic_variable()
        else:
            attrs["name"] = tokens.symbol()
            if tokens.accept("="):
                attrs["type"], const = tokens.dense()
                attrs["initial_value"] = const.array
            else:
                tokens.expect(":")
                attrs["type"] = tokens.type()
        return Op(OPS["VARIABLE"], [], [], attrs, loc=self.places.optional().loc)

    def _generic_variable(self) -> dict[str, Any]:
        tokens = self.tokens
        found: dict[str, Any] = {}

        def entry() -> None:
            key = tokens.take()
            tokens.expect("=")
            if key == "sym_name":
                found["name"] = tokens.name()
            elif key in ("initial_value", "var_shape"):
                found[key] = tokens.dense()
            elif key == "type":
                found[key] = BY_MLIR.get(tokens.take())
            else:
                tokens.skip_value()

        for token in ("(", ")", "<", "{"):
            tokens.expect(token)
        tokens.separated("}", entry)
        tokens.expect(">")
        tokens.expect(":")
        if tokens.type_list() or not tokens.accept("->") or tokens.type_list():
            tokens.fail("a variable has no operands and no results")
        shape, kind, name = (found.get(k) for k in ("var_shape", "type", "name"))
        if shape is None or kind is None or name is None:
            tokens.fail("a variable needs sym_name, type and var_shape")
        sizes = shape[1].array.reshape(-1).tolist()
        if kind is SHAPE or any(s < 0 for s in sizes):
            tokens.fail("a variable needs a tensor's type with a static shape")
        attrs: dict[str, Any] = {"name": name, "type": TensorType(kind, tuple(sizes))}
        if "initial_value" in found:
            attrs["initial_value"] = found["initial_value"][1].array
        return attrs

    def _block(
        self, graph: Graph, scope: Scope, outer: Sequence[Scope], depth: int
    ) -> None:
        """Operators up to the closing brace; the last gives the graph's outputs."""
        tokens = self.tokens
        while True:
            word = tokens.take()
            if word.strip('"') in _ENDS:
                break
            tokens.at -= 1
            self._op(graph, scope, outer, depth)
        generic = word[0] == '"'
        given: list[Value] = []
        if generic:
            tokens.expect("(")
            given = self._operands(scope, outer, ")")
            tokens.expect(")")
        elif tokens.peek().startswith("%"):
            given = self._operands(scope, outer, ":")
        if generic:
            tokens.expect(":")
            types = tokens.type_list()
            tokens.expect("->")
            tokens.type_list()
        else:
            types = [tokens.type()] if tokens.accept(":") else []
            while types and tokens.accept(","):
                types.append(tokens.type())
        self._check_types(word, given, types)
        graph.outputs = given
        self.places.optional()
        tokens.expect("}")

    def _operands(self, scope: Scope, outer: Sequence[Scope], end: str) -> list[Value]:
        """Values with commas between them; the closing token stays."""
        tokens = self.tokens
        found: list[Value] = []
        if tokens.peek() == end:
            return found
        while True:
            key = tokens.take()
            value = scope.get(key)
            found.append(self._captured(key, outer) if value is None else value)
            if not tokens.accept(","):
                return found

    def _captured(self, key: str, outer: Sequence[Scope]) -> Value:
        """A region may use constants from around it, which need no computing, and nothing else."""
        for scope in reversed(outer):
            value = scope.get(key)
            if value is not None and value.is_const:
                return value
            if value is not None:
                self.tokens.fail(f"{shown(key)} belongs to a graph around this region")
        self.tokens.fail(f"{shown(key)} is used before it is defined")

    def _check_types(self, word: str, values: list[Value], types: list[TensorType]) -> None:
        if len(values) != len(types):
            self.tokens.fail(f"{shown(word)} has {len(values)} operands and {len(types)} types")
        for i, (value, kind) in enumerate(zip(values, types)):
            if value.type is not kind and value.type != kind:
                self.tokens.fail(f"operand {i} of {shown(word)} is {value.type}, not {kind}")

    def _results(self, scope: Scope) -> list[str]:
        """``%0 =``, ``%0:2 =`` or ``%a, %b =``: the names that operands will use."""
        tokens = self.tokens
        keys: list[str] = []
        while True:
            key = self._fresh(scope)
            base, colon, count = key.partition(":")
            if colon:
                number = from_numbers(SHAPE, [count])
                if number is None or not 0 < number[0] <= len(tokens.tokens) - tokens.at:
                    tokens.fail(f"{shown(key)} has an impossible number of results")
                keys += [f"{base}#{i}" for i in range(number[0])]
            else:
                keys.append(key)
            if not tokens.accept(","):
                tokens.expect("=")
                return keys

    def _op(self, graph: Graph, scope: Scope, outer: Sequence[Scope], depth: int) -> None:
        tokens = self.tokens
        keys = self._results(scope) if tokens.peek().startswith("%") else []
        word = tokens.take()
        generic = word[0] == '"'
        defn = _BY_MLIR.get(word.strip('"'))
        if defn is None or defn.name == "VARIABLE":
            tokens.fail(f"{shown(word)} is no operator of TOSA")
        start = tokens.at
        regions: list[Graph] = []
        attrs: dict[str, Any] = {}
        header: Scope = {}
        if generic:
            tokens.expect("(")
            ins = self._operands(scope, outer, ")")
            tokens.expect(")")
        elif defn.regions:
            ins, header = self._region_operands(scope, outer)
        elif defn.name.startswith("VARIABLE_"):
            attrs["name"] = tokens.symbol()
            tokens.accept(",")
            ins = self._operands(scope, outer, ":")
        else:
            ins = self._operands(scope, outer, ":") if tokens.peek().startswith("%") else []
        if tokens.accept("<"):
            self._attributes(defn, attrs)
            tokens.expect(">")
        if defn.regions and generic:
            tokens.expect("(")
            tokens.separated(
                ")", lambda: regions.append(self._region(defn, regions, {}, (*outer, scope), depth))
            )
        if tokens.peek() == "{":
            self._attributes(defn, attrs)
        tokens.expect(":")
        types, results = self._types(defn, generic, header)
        self._check_types(word, ins, types)
        if defn.regions and not generic:
            self._pretty_regions(defn, regions, header, (*outer, scope), depth)
        place = self.places.optional()
        if len(results) != len(keys):
            tokens.fail(f"{shown(word)} gives {len(results)} results; {len(keys)} are named")
        outs = [Value(kind, loc=place.loc) for kind in results]
        if len(place.names) == len(outs):
            for value, name in zip(outs, place.names):
                value.name = name
        self._add(graph, defn, ins, outs, attrs, regions, place, start)
        scope.update(zip(keys, outs))

    def _types(
        self, defn: OpDef, generic: bool, header: Scope
    ) -> tuple[list[TensorType], list[TensorType]]:
        """``(types) -> types``, but for what the pretty forms of some operators leave out."""
        tokens = self.tokens
        if not generic and defn.name == "VARIABLE_READ":
            return [], [tokens.type()]
        if not generic and defn.name == "VARIABLE_WRITE":
            return [tokens.type()], []
        types: list[TensorType] = []
        if not generic and defn.name == "COND_IF":
            types = [tokens.type()]
            types += tokens.type_list() if tokens.peek() == "(" else []
        else:
            types = tokens.type_list()
        for value, kind in zip(header.values(), types[len(types) - len(header) :]):
            value.type = kind
        if generic or defn.name != "COND_IF":
            tokens.expect("->")
        elif not tokens.accept("->"):
            return types, []
        return types, tokens.result_types()

    def _add(
        self, graph: Graph, defn: OpDef, ins: list[Value], outs: list[Value],
        attrs: dict[str, Any], regions: list[Graph], place: Place, start: int,
    ) -> None:  # fmt: skip
        """Append the operator; a constant is a value without one."""
        if defn.name in ("CONST", "CONST_SHAPE"):
            kind, const = attrs.get("values", (None, None))
            if ins or len(outs) != 1 or outs[0].type != kind:
                self.tokens.fail("a constant needs values of the type of its one result", start)
            outs[0].const = const
            return
        if len(regions) != len(defn.regions):
            need, have = len(defn.regions), len(regions)
            self.tokens.fail(f"{defn.name} takes {need} regions; it has {have}", start)
        for region, name in zip(regions, place.regions):
            region.name = name
        op = Op(defn, ins, outs, normal_attrs(defn, attrs), tuple(regions), place.loc)
        if outs and outs[0].dtype is SHAPE:
            _settle_shape(op)
        graph.ops.append(op)

    def _region_operands(
        self, scope: Scope, outer: Sequence[Scope]
    ) -> tuple[list[Value], Scope]:
        """``%condition (%arg0 = %x, …)``: operands, and the values that regions see them as."""
        tokens = self.tokens
        ins = self._operands(scope, outer, ":") if tokens.peek().startswith("%") else []
        header: Scope = {}

        def pair() -> None:
            key = self._fresh(header)
            tokens.expect("=")
            operand = tokens.take()
            ins.append(scope.get(operand) or self._captured(operand, outer))
            header[key] = Value(ins[-1].type)

        if tokens.accept("("):
            tokens.separated(")", pair)
        return ins, header

    def _pretty_regions(
        self, defn: OpDef, regions: list[Graph], header: Scope, outer: Sequence[Scope], depth: int
    ) -> None:
        """``{ … } else { … }`` or ``{ … } do { … }``"""
        for i in range(len(defn.regions)):
            if i:
                self.tokens.expect("else" if defn.name == "COND_IF" else "do")
            regions.append(self._region(defn, regions, header, outer, depth))

    def _region(
        self, defn: OpDef, before: list[Graph], header: Scope, outer: Sequence[Scope], depth: int
    ) -> Graph:
        """A block in braces; where it lists no arguments, they are those of the header."""
        tokens = self.tokens
        if depth >= _DEEPEST:
            tokens.fail(f"regions are nested more than {_DEEPEST} deep")
        if len(before) == len(defn.regions):
            tokens.fail(f"{defn.name} takes {len(defn.regions)} regions")
        region = Graph(defn.regions[len(before)], version=self.version)
        scope: Scope = {}
        tokens.expect("{")
        if tokens.peek().startswith("^"):
            tokens.take()
            if tokens.accept("("):
                tokens.separated(")", lambda: self._argument(region, scope))
            tokens.expect(":")
        else:
            scope = {key: Value(value.type) for key, value in header.items()}
            region.inputs = list(scope.values())
        self._block(region, scope, outer, depth + 1)
        return region

    def _attributes(self, defn: OpDef, attrs: dict[str, Any]) -> None:
        """``{name = value, …}``, each read as the table says."""
        tokens = self.tokens
        tokens.expect("{")
        if tokens.accept("}"):
            return
        while True:
            key = tokens.take()
            attr = defn.attr(key)
            if attr is not None:
                tokens.expect("=")
                attrs[key] = self._value(defn, attr)
            elif "." not in key:
                tokens.fail(f"{defn.name} has no attribute {shown(key)}")
            elif tokens.accept("="):  # another dialect's, which is none of TOSA's business
                tokens.skip_value()
            if not tokens.accept(","):
                break
        tokens.expect("}")

    def _value(self, defn: OpDef, attr: Attr) -> Any:
        tokens, kind = self.tokens, attr.kind
        if kind.startswith("i32["):
            return tokens.integers()
        if kind == "data":
            return tokens.dense()
        if kind == "bytes":
            return tokens.string()
        if kind == "str":
            return tokens.name()
        if kind in ENUMS:
            return self._enumerator(kind)
        if kind == "i32":
            return self._number("i32")
        word = tokens.take()
        if kind == "bool" and word in ("true", "false"):
            return word == "true"
        if kind == "acc" and word in BY_MLIR:
            return BY_MLIR[word]
        if kind == "value":
            tokens.at -= 1
            return self._number(None)
        tokens.fail(f"{shown(word)} is no value of {defn.name}'s {attr.name}")

    def _enumerator(self, kind: str) -> str:
        tokens = self.tokens
        word = tokens.take()
        if word.startswith("#"):
            tokens.expect("<")
            word = tokens.take()
            tokens.expect(">")
        word = word.strip('"')
        if word not in ENUMS[kind]:
            tokens.fail(f"{kind} is one of {', '.join(ENUMS[kind])}, not {shown(word)}")
        return word

    def _number(self, usual: str | None) -> int | float:
        """``1 : i32`` or ``1.5 : f32``."""
        tokens = self.tokens
        word = tokens.take()
        name = tokens.take() if tokens.accept(":") else usual or "i64"
        kind = BY_MLIR.get(name)
        array = from_numbers(kind, [word]) if kind and kind is not SHAPE else None
        if kind is None or array is None:
            tokens.fail(f"{shown(word)} is no number of {shown(name)}")
        return float(array[0]) if kind.is_float else int(array[0])


def _settle_shape(op: Op) -> None:
    """A shape operator's result is known now; where it is not legal, the verifier says why."""
    kinds = [v.type for v in op.ins]
    try:
        resolve(op.defn, _WIDEST, kinds, op.attrs, partial(known, op.ins), None, ())
        op.outs[0].const = Const(shape_value(op.name, op.ins, dict(op.attrs)))
    except Unsupported:
        return

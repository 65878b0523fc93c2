"""Reads TOSA in MLIR text, as ``print_graph`` and tosa-opt write it.

Operators come in the pretty form (``%0 = tosa.add %a, %b : (…) -> …``) and in the generic one
(``%0 = "tosa.add"(%a, %b) <{…}> : (…) -> …``). The text is checked for what it says, not for
whether TOSA allows it: that is the verifier's part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tosaic.files.lex import Tokens, shown
from tosaic.files.places import Place, Places
from tosaic.files.spelling import from_numbers
from tosaic.files.values import Attributes
from tosaic.ir.build import normal_attrs, shape_result
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import OPS, everything
from tosaic.spec.dtypes import SHAPE, TensorType
from tosaic.spec.env import VERSIONS
from tosaic.spec.table import OpDef

_BY_MLIR = {defn.mlir: defn for defn in OPS.values()}
_ENDS = ("return", "func.return", "tosa.yield")
_CONSTANTS = ("CONST", "CONST_SHAPE")
_CONSTANT = ["(", ")", "<{", "values", "=", "dense<"]
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
        self.attributes = Attributes(self.tokens)

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
            attrs = self.attributes.variable(generic=word.startswith('"'))
            loc = self.places.optional().loc
            self.variables.append(Op(OPS["VARIABLE"], [], [], attrs, loc=loc))
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
            else:  # a brace here opens the body
                types.append(tokens.type())
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

    def _block(self, graph: Graph, scope: Scope, outer: Sequence[Scope], depth: int) -> None:
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
            types = tokens.signature()[0]
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
        if defn.name in _CONSTANTS and tokens.tokens[start : start + 6] == _CONSTANT:
            return self._constant(scope, keys)
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
        if tokens.accept("<{"):
            self.attributes.read(defn, attrs, "}>")
        if defn.regions and generic:
            tokens.expect("(")
            for i, name in enumerate(defn.regions):
                if i:
                    tokens.expect(",")
                region, inner = self._region(name, {}, depth)
                self._block(region, inner, (*outer, scope), depth + 1)
                regions.append(region)
            tokens.expect(")")
        if tokens.accept("{"):
            self.attributes.read(defn, attrs, "}")
        tokens.expect(":")
        types, results = self._types(defn, generic)
        self._check_types(word, ins, types)
        if defn.regions and not generic:
            for i, name in enumerate(defn.regions):
                if i:
                    tokens.expect("else" if defn.name == "COND_IF" else "do")
                region, inner = self._region(name, header, depth)
                self._block(region, inner, (*outer, scope), depth + 1)
                regions.append(region)
        place = self.places.optional()
        if len(results) != len(keys):
            tokens.fail(f"{shown(word)} gives {len(results)} results; {len(keys)} are named")
        outs = [Value(kind, loc=place.loc) for kind in results]
        if len(place.names) == len(outs):
            for value, name in zip(outs, place.names):
                value.name = name
        self._add(graph, defn, ins, outs, attrs, regions, place, start)
        scope.update(zip(keys, outs))

    def _constant(self, scope: Scope, keys: list[str]) -> None:
        """``() <{values = dense<…> : type}> : () -> type``: most statements of a usual text."""
        tokens = self.tokens
        tokens.at += 5
        kind, const = tokens.dense()
        tokens.expect("}>")
        tokens.expect(":")
        if tokens.signature() != ([], [kind]) or len(keys) != 1:
            tokens.fail("a constant needs values of the type of its one result")
        place = self.places.optional()
        scope[keys[0]] = Value(kind, place.name(), const, loc=place.loc)

    def _types(self, defn: OpDef, generic: bool) -> tuple[list[TensorType], list[TensorType]]:
        """``(types) -> types``, but for what the pretty forms of some operators leave out."""
        tokens = self.tokens
        if not generic and defn.name == "VARIABLE_READ":
            return [], [tokens.type()]
        if not generic and defn.name == "VARIABLE_WRITE":
            return [tokens.type()], []
        if generic or defn.name != "COND_IF":
            return tokens.signature()
        condition = tokens.type()
        if tokens.accept("->"):
            return [condition], [tokens.type()]
        if tokens.peek() == "{":
            return [condition], []
        types, results = tokens.signature()
        return [condition, *types], results

    def _add(
        self, graph: Graph, defn: OpDef, ins: list[Value], outs: list[Value],
        attrs: dict[str, Any], regions: list[Graph], place: Place, start: int,
    ) -> None:  # fmt: skip
        """Append the operator; a constant is a value without one."""
        if defn.name in _CONSTANTS:
            kind, const = attrs.get("values", (None, None))
            if ins or len(outs) != 1 or outs[0].type != kind:
                self.tokens.fail("a constant needs values of the type of its one result", start)
            outs[0].const = const
            return
        for region, name in zip(regions, place.regions):
            region.name = name
        op = Op(defn, ins, outs, normal_attrs(defn, attrs), tuple(regions), place.loc)
        if len(outs) == 1 and defn.results and defn.results[0].type == "shape":
            outs[0].const = shape_result(op, _WIDEST)
        graph.ops.append(op)

    def _region_operands(self, scope: Scope, outer: Sequence[Scope]) -> tuple[list[Value], Scope]:
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

    def _region(self, name: str, header: Scope, depth: int) -> tuple[Graph, Scope]:
        """The start of a block; where it lists no arguments, they are those of the header."""
        tokens = self.tokens
        if depth >= _DEEPEST:
            tokens.fail(f"regions are nested more than {_DEEPEST} deep")
        region = Graph(name, version=self.version)
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
        return region, scope

"""Attributes in MLIR text, each read as the operator table says."""

from __future__ import annotations

from typing import Any

from tosaic.files.lex import Tokens, shown
from tosaic.files.spelling import from_numbers
from tosaic.spec.dtypes import BY_MLIR, SHAPE, TensorType
from tosaic.spec.table import ENUMS, Attr, OpDef

_USUAL_LENGTH = 40  # tokens of attributes that are looked for among those already read


class Attributes:
    """Reads attributes; what many operators say alike is read once."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self.known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def read(self, defn: OpDef, attrs: dict[str, Any], end: str) -> None:
        """``name = value, …`` up to the closing brace, each read as the table says."""
        tokens = self.tokens
        start = tokens.at
        if end not in tokens.tokens[start : start + _USUAL_LENGTH]:
            return self._read(defn, attrs, end)
        stop = tokens.tokens.index(end, start)
        said = (defn.code, *tokens.tokens[start:stop])
        known = self.known.get(said)
        if known is not None:
            tokens.at = stop + 1
            attrs.update(known)
            return
        self._read(defn, attrs, end)
        if tokens.at == stop + 1:
            self.known[said] = dict(attrs)

    def _read(self, defn: OpDef, attrs: dict[str, Any], end: str) -> None:
        tokens = self.tokens
        if tokens.accept(end):
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
        tokens.expect(end)

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

    def variable(self, generic: bool) -> dict[str, Any]:
        """``@name : type``, ``@name = dense<…> : type`` or the generic form."""
        tokens = self.tokens
        if generic:
            return self._generic()
        attrs: dict[str, Any] = {"name": tokens.symbol()}
        if tokens.accept("="):
            attrs["type"], const = tokens.dense()
            attrs["initial_value"] = const.array
        else:
            tokens.expect(":")
            attrs["type"] = tokens.type()
        return attrs

    def _generic(self) -> dict[str, Any]:
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

        for token in ("(", ")", "<{"):
            tokens.expect(token)
        tokens.separated("}>", entry)
        tokens.expect(":")
        if tokens.signature() != ([], []):
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

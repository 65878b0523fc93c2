"""Tokens of MLIR text and the small phrases that every part of the parser reads.

The whole text becomes a list of strings in one pass of one regular expression; a position is
worked out only for an error. Nothing here recurses on what the text says without a limit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import islice
from typing import NoReturn

import numpy as np

from tosaic.errors import InvalidGraph
from tosaic.files.spelling import from_numbers, from_raw, parse_type, string_bytes, width
from tosaic.ir.graph import Array, Const
from tosaic.spec.dtypes import MXI8, SHAPE, DType, TensorType

_TYPE = r'(?:tensor<(?:[^<>"\n]|<[^<>"\n]*>)*>|!tosa\.shape<\s*\d+\s*>)'
_TYPES = rf"\((?:{_TYPE}(?:,\s*{_TYPE})*)?\)"
# Whole function types and plain locations are one token each, as they are most of a text. An
# unclosed string takes the rest of its line, so that no text is read more than twice.
_TOKEN = re.compile(
    rf"""//[^\n]* | "[^"\\\n]*(?:\\.[^"\\\n]*)*" | "[^\n]*
    | %[\w$.\-]+(?:[\#:]\d+)?
    | {_TYPE} | {_TYPES}\s*->\s*(?:{_TYPE}|{_TYPES})
    | loc\((?:"[^"\\\n]*"(?:\(\#[\w$.]+\))?|\#[\w$.]+)\)
    | array<i\d+(?::\s*-?\d+(?:,\s*-?\d+)*)?>
    | dense< | <{{ | }}>
    | [A-Za-z_][\w$.]* | [\#@^][\w$.]+ | @"[^"\\\n]*(?:\\.[^"\\\n]*)*"
    | 0x[0-9A-Fa-f]+ | [-+]?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?
    | -> | \S""",
    re.ASCII | re.VERBOSE,
)
_ONE_TYPE = re.compile(_TYPE, re.ASCII)
_OPEN = frozenset(("(", "[", "{", "<", "<{", "dense<"))
_CLOSE = frozenset((")", "]", "}", ">", "}>"))
# Sizes of constants that one number in a text may ask for: more is a mistake or an attack.
_MOST_BYTES = 1 << 28
_MOST_SIZES = 1 << 10
_AT_ONCE = 1 << 12


class Tokens:
    """The tokens of a text and the place that the parser has come to."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        self.commented = "//" in text
        if self.commented:
            self.tokens = [t for t in self.tokens if not t.startswith("//")]
        self.tokens.append("")
        self.at = 0
        self.types: dict[str, TensorType] = {}
        self.signatures: dict[str, tuple[list[TensorType], list[TensorType]]] = {}
        self.splats: dict[tuple[str, TensorType], Const] = {}

    def fail(self, reason: str, at: int | None = None) -> NoReturn:
        """Refuse the text at a token, by default the one before the place that was come to."""
        index = max(self.at - 1, 0) if at is None else at
        found = (m for m in _TOKEN.finditer(self.text) if not m[0].startswith("//"))
        match = next(islice(found, index, None), None)
        offset = len(self.text) if match is None else match.start()
        breaks = [m.start() for m in re.finditer("\n", self.text)]
        line = bisect_right(breaks, offset - 1)
        column = offset - (breaks[line - 1] if line else -1)
        raise InvalidGraph(reason, f"line {line + 1}, column {column}")

    def peek(self) -> str:
        return self.tokens[self.at]

    def take(self) -> str:
        token = self.tokens[self.at]
        if not token:
            self.fail("the text ends early", self.at)
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            self.fail(f"'{token}' is needed here, not {shown(self.tokens[self.at])}", self.at)
        self.at += 1

    def separated(self, end: str, item: Callable[[], None]) -> None:
        """Read items with commas between them up to a closing token."""
        if self.accept(end):
            return
        item()
        while self.accept(","):
            item()
        self.expect(end)

    def skip_value(self) -> None:
        """Pass over an attribute's value, whatever it is, up to a comma or bracket around it."""
        depth = 0
        while True:
            token = self.peek()
            if depth == 0 and (token == "," or token in _CLOSE):
                return
            depth += (token in _OPEN) - (token in _CLOSE)
            self.take()

    def string(self) -> bytes:
        token = self.take()
        if len(token) < 2 or token[0] != '"' or token[-1] != '"':
            self.fail(f"a string is needed here, not {shown(token)}")
        return string_bytes(token)

    def name(self) -> str:
        return self._decoded(self.string())

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            self.fail("the name is no UTF-8 text")

    def symbol(self) -> str:
        token = self.take()
        if token[0] != "@" or len(token) < 2:
            self.fail(f"a symbol such as @main is needed here, not {shown(token)}")
        if token[1] == '"':
            return self._decoded(string_bytes(token[1:]))
        return token[1:]

    def integer(self) -> int:
        token = self.take()
        found = None if token.startswith('"') else from_numbers(SHAPE, [token])
        if found is None:
            self.fail(f"a 64-bit integer is needed here, not {shown(token)}")
        return int(found[0])

    def integers(self) -> tuple[int, ...]:
        """``array<i64: 1, 2>`` or ``[1, 2]``."""
        token = self.take()
        if token == "[":
            found: list[int] = []
            self.separated("]", lambda: found.append(self.integer()))
            return tuple(found)
        if not token.startswith("array<"):
            self.fail(f"an array of integers is needed here, not {shown(token)}")
        numbers = [n.strip() for n in token[:-1].partition(":")[2].split(",")]
        if numbers == [""]:
            return ()
        array = from_numbers(SHAPE, numbers)
        if array is None:
            self.fail("a number in the array does not fit 64 bits")
        return tuple(array.tolist())

    def type(self) -> TensorType:
        return self._type(self.take())

    def _type(self, token: str) -> TensorType:
        kind = self.types.get(token)
        if kind is None:
            kind = parse_type(token)
            if kind is None:
                self.fail(f"{shown(token)} is no type of TOSA")
            self.types[token] = kind
        return kind

    def signature(self) -> tuple[list[TensorType], list[TensorType]]:
        """``(type, type) -> type`` or ``-> (type, type)``"""
        token = self.take()
        known = self.signatures.get(token)
        if known is None:
            if not token.endswith((">", ")")) or token[0] != "(":
                self.fail(f"the types of an operator are needed here, not {shown(token)}")
            ins, _, outs = token.partition("->")
            known = self.signatures[token] = (self._all_types(ins), self._all_types(outs))
        return known

    def _all_types(self, text: str) -> list[TensorType]:
        return [self._type(t) for t in _ONE_TYPE.findall(text)]

    def dense(self) -> tuple[TensorType, Const]:
        """``dense<…> : tensor<…>``; an array of indices is a shape's value."""
        start = self.at
        self.expect("dense<")
        first = self.at
        try:
            last = self.tokens.index(">", first)
        except ValueError:
            self.fail("the constant does not end", start)
        self.at = last + 1
        self.expect(":")
        kind = self._dense_type()
        body = self.tokens[first:last]
        if len(body) == 1:
            known = self.splats.get((body[0], kind))
            if known is not None:
                return kind, known
        if not kind.is_known:
            self.fail(f"a constant of {kind} has an unknown size", start)
        if kind.dtype is SHAPE and kind.shape[0] > _MOST_SIZES:
            self.fail(f"a shape of {kind.shape[0]} sizes is too long", start)
        if not body:
            if kind.size:
                self.fail(f"the constant has no elements, where {kind} needs {kind.size}", start)
            return kind, Const(np.zeros(kind.shape, kind.dtype.array))
        if len(body) == 1 and body[0].startswith('"0x') and kind.dtype is not MXI8:
            return kind, self._hexadecimal(kind, body[0], first)
        if len(body) == 1:
            return kind, self._splat(kind, self._numbers(kind.dtype, body, first), first)
        numbers = self._list(kind, body, first)
        array = self._numbers(kind.dtype, numbers, first).reshape(kind.shape)
        array.flags.writeable = False
        return kind, Const(array)

    def _dense_type(self) -> TensorType:
        token = self.peek()
        if token.startswith("tensor<") and token.endswith("xindex>"):
            self.take()
            length = token[7:-7]
            if not length.isdigit() or len(length) > 18:
                self.fail(f"{shown(token)} is no shape")
            return TensorType(SHAPE, (int(length),))
        return self.type()

    def _hexadecimal(self, kind: TensorType, token: str, at: int) -> Const:
        try:
            data = bytes.fromhex(token[3:-1])
        except ValueError:
            self.fail("the constant is not in hexadecimal digits", at)
        if kind.dtype.kind == "block":
            array = np.frombuffer(data, np.uint8)
            return Const(array.reshape(kind.shape) if array.size == kind.size else array)
        each = width(kind.dtype)
        if len(data) == each:
            return self._splat(kind, from_raw(kind.dtype, data), at)
        if len(data) != kind.size * each:
            self.fail(f"the constant has {len(data)} bytes; {kind} has {kind.size * each}", at)
        return Const(from_raw(kind.dtype, data).reshape(kind.shape))

    def _splat(self, kind: TensorType, one: Array, at: int) -> Const:
        """One number for all elements, made when it is asked for."""
        if kind.size * one.itemsize > _MOST_BYTES:
            self.fail(f"a constant of {kind} is too large for one number", at)
        shape, number = kind.shape, one[0]
        if kind.size > _AT_ONCE:
            return Const(lambda: np.full(shape, number, one.dtype))
        array = np.full(shape, number, one.dtype)
        array.flags.writeable = False  # constants that are written alike share it
        const = self.splats[self.tokens[at], kind] = Const(array)
        return const

    def _numbers(self, kind: DType, numbers: list[str], at: int) -> Array:
        array = from_numbers(kind, numbers)
        if array is None:
            said = numbers[0] if len(numbers) == 1 else "a number of the constant"
            self.fail(f"{shown(said)} is no number of {kind}", at)
        return array

    def _list(self, kind: TensorType, body: list[str], at: int) -> list[str]:
        """The numbers of a nested list whose brackets agree with the shape."""
        counts: list[int] = []
        numbers: list[str] = []
        comma = True
        for token in body:
            if token == "," and not comma:
                comma = True
                continue
            if token == "]" and counts and (not comma or not counts[-1]):
                if counts.pop() != kind.shape[len(counts)]:
                    self.fail(f"the constant's brackets do not agree with {kind}", at)
                continue
            if not comma or token in ",]" or (token != "[" and len(counts) != kind.rank):
                self.fail(f"the constant's brackets do not agree with {kind}", at)
            if counts:
                counts[-1] += 1
            if token == "[":
                if len(counts) == kind.rank:
                    self.fail(f"the constant's brackets do not agree with {kind}", at)
                counts.append(0)
            else:
                numbers.append(token)
                comma = False
        if counts or (comma and numbers):
            self.fail(f"the constant's brackets do not agree with {kind}", at)
        return numbers


def shown(token: str) -> str:
    """A token in a message: never a whole constant."""
    if not token:
        return "the end"
    return f"'{token}'" if len(token) <= 40 else f"'{token[:37]}…'"

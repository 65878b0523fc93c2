"""The shape of an operator definition, and the small language the definitions are written in.

A signature reads ``"input:in[N,H,C], shift:i8[1]! -> output:out[N,H,C]"``: a name, a type
variable or a fixed type, and a shape. ``[N,H,C]`` binds dimensions by name, ``[1+]`` is any shape
of at least that rank, ``...`` after the shape takes a list of tensors, ``!`` asks for a
compile-time constant (which the dynamic extension lifts) and ``!!`` for one always.

Rows read ``"INT: i8 | int16: i16 | FP: f16 f32 | 1.1 int64: i64"``: what a row needs, then the
types of the type variables, comma-separated. ``INT/FP`` is either, ``bf16+fp8e4m3`` both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tosaic.spec.dtypes import DType, TensorType, dtype
from tosaic.spec.env import VERSIONS, Env

Dim = str | int

ENUMS: Mapping[str, Mapping[str, int]] = {
    "nan_mode": {"PROPAGATE": 1, "IGNORE": 2},
    "rounding_mode": {"SINGLE_ROUND": 1, "INEXACT_ROUND": 2, "DOUBLE_ROUND": 3},
    "resize_mode": {"NEAREST_NEIGHBOR": 1, "BILINEAR": 2},
    "block_size": {"BLOCK_SIZE_1": 1, "BLOCK_SIZE_32": 32},
}


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand or a result: its type variable and shape pattern."""

    name: str
    type: str
    dims: tuple[Dim, ...] | None
    min_rank: int
    variadic: bool
    const: bool
    always_const: bool


@dataclass(frozen=True, slots=True)
class Attr:
    """An attribute. ``kind`` is i32, i32[n], i32[], bool, str, bytes, an enum's name, ``acc``
    (a type bound to the type variable acc), ``value`` (of the operator's element type),
    ``type`` (a tensor type) or ``data`` (a constant array)."""

    name: str
    kind: str
    default: Any = None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One legal combination of types, and what an environment must have for it."""

    types: tuple[DType, ...]
    needs: frozenset[str]
    since: tuple[int, int]

    def allowed(self, env: Env) -> bool:
        return self.since <= env.version and self.needs <= env.features

    def missing(self, env: Env) -> tuple[str, ...]:
        """What the environment lacks for this row, in words."""
        lacks = [f"TOSA {self.since[0]}.{self.since[1]}"] if self.since > env.version else []
        return (*lacks, *(_feature_words(f) for f in sorted(self.needs - env.features)))

    def describe(self) -> str:
        needs = ", ".join(_feature_words(f) for f in sorted(self.needs)) or "nothing more"
        since = "" if self.since == VERSIONS[0] else f", since {self.since[0]}.{self.since[1]}"
        return f"({', '.join(t.name for t in self.types)}) with {needs}{since}"


Results = list[tuple[int, ...] | TensorType]
Shapes = tuple[int, ...] | Results | Mapping[str, int] | None
Infer = Callable[["Site"], Shapes]
Check = Callable[["Site"], str | None]


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class OpDef:
    """Everything Tosaic knows of a TOSA operator, but how to compute it."""

    name: str
    code: int
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    attrs: tuple[Attr, ...]
    regions: tuple[str, ...]
    variables: tuple[str, ...]
    rows: tuple[Row, ...]
    infer: Infer | None
    checks: tuple[Check, ...]
    since: tuple[int, int]
    rows_by_env: dict[Env, dict[tuple[DType, ...], Row]]

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return opdef, (self.name,)

    @property
    def mlir(self) -> str:
        return "tosa." + self.name.lower()

    def attr(self, name: str) -> Attr | None:
        return next((a for a in self.attrs if a.name == name), None)

    def allowed(self, env: Env) -> dict[tuple[DType, ...], Row]:
        """The rows that an environment allows, by the types of the type variables."""
        found = self.rows_by_env.get(env)
        if found is None:
            found = {r.types: r for r in self.rows if r.allowed(env)}
            self.rows_by_env[env] = found
        return found


@dataclass(slots=True)
class Site:
    """One use of an operator, as inference and checks see it."""

    op: OpDef
    env: Env
    ins: tuple[tuple[Operand, TensorType], ...]
    attrs: Mapping[str, Any]
    consts: Callable[[int], Any]
    regions: tuple[Any, ...] = ()
    dims: dict[str, int] = field(default_factory=dict)
    types: dict[str, DType] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.attrs[name]

    def _index(self, name: str) -> int:
        return next(i for i, (operand, _) in enumerate(self.ins) if operand.name == name)

    def type(self, name: str) -> TensorType:
        return self.ins[self._index(name)][1]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.type(name).shape

    def list(self, name: str) -> list[TensorType]:
        """Types of all tensors of a list operand."""
        return [t for operand, t in self.ins if operand.name == name]

    def const(self, name: str) -> tuple[Any, ...] | None:
        """Values of a small constant operand as Python numbers, or None if not known."""
        array = self.consts(self._index(name))
        return None if array is None else tuple(array.reshape(-1).tolist())


OPS: dict[str, OpDef] = {}
BY_CODE: dict[int, OpDef] = {}


def opdef(name: str) -> OpDef:
    """The definition of that name; KeyError if there is none."""
    return OPS[name]


def op(
    name: str,
    code: int,
    signature: str,
    rows: str | Iterable[Row],
    *,
    types: str = "t",
    attrs: Iterable[str] = (),
    regions: tuple[str, ...] = (),
    infer: Infer | None = None,
    checks: Iterable[Check] = (),
    since: tuple[int, int] = VERSIONS[0],
) -> None:
    """Define an operator; ``types`` names the type variables in the order of the rows."""
    ins, _, outs = signature.partition("->")
    table = tuple(parse_rows(rows) if isinstance(rows, str) else rows)
    if since > VERSIONS[0]:
        table = tuple(Row(r.types, r.needs, max(r.since, since)) for r in table)
    OPS[name] = BY_CODE[code] = OpDef(
        name,
        code,
        tuple(_operands(ins)),
        tuple(_operands(outs)),
        tuple(map(_attr, attrs)),
        regions,
        tuple(types.split()),
        table,
        infer,
        tuple(checks),
        min((r.since for r in table), default=since),
        {},
    )


_OPERAND = re.compile(r"(\w+):([\w*]+)(?:\[([^\]]*)\])?(\.\.\.)?(!{0,2})$")


def _operands(text: str) -> Iterator[Operand]:
    for part in re.split(r",\s*(?![^\[]*\])", text.strip()) if text.strip() else ():
        match = _OPERAND.match(part.strip())
        assert match, part
        name, kind, shape, dots, bangs = match.groups()
        dims: tuple[Dim, ...] | None = None
        min_rank = 0
        if shape is not None and shape.endswith("+"):
            min_rank = int(shape[:-1])
        elif shape is not None:
            dims = tuple(int(d) if d.isdigit() else d for d in shape.split(","))
            min_rank = len(dims)
        yield Operand(name, kind, dims, min_rank, bool(dots), bool(bangs), bangs == "!!")


def _attr(text: str) -> Attr:
    declaration, _, default = text.partition("=")
    name, _, kind = declaration.partition(":")
    if not default:
        return Attr(name, kind.rstrip("?"), None, kind.endswith("?"))
    return Attr(name, kind, {"False": False, "True": True}.get(default, default), True)


def parse_rows(text: str) -> Iterator[Row]:
    for group in text.split("|"):
        head, _, body = group.partition(":")
        words = head.split()
        since = VERSIONS[0]
        if "." in words[0]:
            major, minor = words.pop(0).split(".")
            since = (int(major), int(minor))
        for alternative in words[0].split("/"):
            needs = frozenset(alternative.split("+"))
            for combination in body.split() or [""]:
                types = tuple(dtype(t) for t in combination.split(",") if t)
                yield Row(types, needs, since)


def _feature_words(feature: str) -> str:
    return f"the {feature} profile" if feature.isupper() else f"extension {feature}"

"""Forms of TOSA operators to ask Vela about: each a graph of one operator, or of few.

``npu`` is what Vela must answer for a form to be called legal. Some forms it compiles and computes
wrongly, or only in some sizes, or beyond limits that it checks elsewhere; ``never`` names the
families of accelerators for which that holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np

from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.env import everything

U55 = frozenset(("u55", "u65"))
ALL = U55 | {"u85"}
NONE: frozenset[str] = frozenset()
Build = Callable[[Builder], Any]


@dataclass(frozen=True)
class Form:
    """A graph to compile; ``never`` are families that must not be given it though they take it."""

    name: str
    build: Build
    never: frozenset[str] = NONE
    slow: bool = False

    @property
    def op(self) -> str:
        return self.name.split()[0]

    def graph(self, constraints: Sequence[Any] = ()) -> Graph:
        b = Builder(everything((1, 0), level="none"), constraints=constraints)
        made = self.build(b)
        for value in made if isinstance(made, tuple) else (made,):
            b.output(value)
        return b.graph

    def tosa(self) -> bytes:
        return write(self.graph())


def numbers(b: Builder, shape: Sequence[int], kind: str, low: int = -7, high: int = 7) -> Value:
    """A constant with different elements."""
    size = int(np.prod(shape)) if shape else 1
    values = (np.arange(size) * 5 % (high - low + 1) + low).reshape(tuple(shape))
    return b.const(values, kind)


def rescaled(
    b: Builder,
    x: Value,
    out: str,
    multiplier: Sequence[int] = (1 << 30,),
    shift: Sequence[int] = (30,),
    zero: int = 0,
    out_zero: int = 0,
    mode: str = "SINGLE_ROUND",
) -> Value:
    wide = x.dtype.name != "i48"
    if not wide and max(multiplier) > 32767:
        multiplier, shift = [1 << 14] * len(multiplier), [20] * len(multiplier)
    return b.RESCALE(
        x,
        b.const(list(multiplier), "i32" if wide else "i16"),
        b.const(list(shift), "i8"),
        b.const([zero], x.dtype),
        b.const([out_zero], out),
        scale32=wide,
        rounding_mode=mode,
        per_channel=len(multiplier) > 1,
        out=b.const([0], out).dtype,
    )


SHAPES = {
    1: (24,),
    2: (6, 8),
    3: (3, 5, 8),
    4: (2, 3, 4, 8),
    5: (1, 2, 3, 4, 8),
    6: (1, 2, 2, 3, 2, 8),
}


def _unary() -> Iterator[Form]:
    for rank, shape in SHAPES.items():
        for name in ("ABS", "CLZ"):
            yield Form(
                f"{name} i32 rank {rank}", lambda b, n=name, s=shape: b.op(n, b.input("i32", s))
            )
        for kind in ("i8", "i16", "i32"):
            yield Form(
                f"NEGATE {kind} rank {rank}",
                lambda b, s=shape, k=kind: b.NEGATE(
                    b.input(k, s), b.const([0], k), b.const([0], k)
                ),
            )
            yield Form(
                f"BITWISE_NOT {kind} rank {rank}",
                lambda b, s=shape, k=kind: b.BITWISE_NOT(b.input(k, s)),
            )
        for kind in ("i8", "i16"):
            yield Form(
                f"CLAMP {kind} rank {rank}",
                lambda b, s=shape, k=kind: b.CLAMP(b.input(k, s), min_val=-5, max_val=9),
            )
        for kind in ("bool", "i8", "i16", "i32"):
            yield Form(
                f"IDENTITY {kind} rank {rank}", lambda b, s=shape, k=kind: b.IDENTITY(b.input(k, s))
            )
        yield Form(
            f"LOGICAL_NOT bool rank {rank}", lambda b, s=shape: b.LOGICAL_NOT(b.input("bool", s))
        )
        yield Form(
            f"TABLE i8 rank {rank}",
            lambda b, s=shape: b.TABLE(b.input("i8", s), numbers(b, (256,), "i8")),
        )
        yield Form(
            f"TABLE i16 rank {rank}",
            lambda b, s=shape: b.TABLE(b.input("i16", s), numbers(b, (513,), "i16")),
        )
        yield Form(
            f"TABLE i16 then RESCALE 1/128 rank {rank}",
            lambda b, s=shape: rescaled(
                b, b.TABLE(b.input("i16", s), numbers(b, (513,), "i16")), "i16", shift=[37]
            ),
        )
    yield Form(
        "TABLE i8 computed table", lambda b: b.TABLE(b.input("i8", (4, 8)), b.input("i8", (256,)))
    )
    for kind in ("i8", "i16", "i32"):
        for out in ("bool", "i8", "i16", "i32"):
            if out != kind:
                narrow = {"i8": 8, "i16": 16, "i32": 32, "bool": 0}
                never = U55 if out != "bool" and narrow[out] < narrow[kind] else NONE
                yield Form(
                    f"CAST {kind} to {out}",
                    lambda b, k=kind, o=out: b.CAST(
                        b.input(k, (1, 4, 4, 8)), out=b.const([0], o).dtype
                    ),
                    never,
                )
        yield Form(
            f"CAST bool to {kind}",
            lambda b, k=kind: b.CAST(b.input("bool", (1, 4, 4, 8)), out=b.const([0], k).dtype),
        )


PAIRS = [
    ((24,), (24,)),
    ((6, 8), (1, 8)),
    ((3, 1, 8), (1, 5, 8)),
    ((2, 3, 4, 8), (2, 3, 4, 8)),
    ((1, 3, 4, 8), (1, 1, 1, 8)),
    ((1, 3, 1, 8), (1, 1, 4, 1)),
    ((1, 2, 1, 4, 8), (1, 1, 3, 1, 8)),
    ((1, 2, 1, 3, 1, 8), (1, 1, 2, 1, 2, 1)),
    ((), ()),
]


def _binary() -> Iterator[Form]:
    plain = {
        "ADD": ("i32",),
        "SUB": ("i32",),
        "MAXIMUM": ("i32",),
        "MINIMUM": ("i32",),
        "INTDIV": ("i32",),
        "EQUAL": ("i32",),
        "GREATER": ("i32",),
        "GREATER_EQUAL": ("i32",),
        "BITWISE_AND": ("i8", "i16", "i32"),
        "BITWISE_OR": ("i8", "i16", "i32"),
        "BITWISE_XOR": ("i8", "i16", "i32"),
        "LOGICAL_AND": ("bool",),
        "LOGICAL_OR": ("bool",),
        "LOGICAL_XOR": ("bool",),
        "LOGICAL_LEFT_SHIFT": ("i8", "i16", "i32"),
        "LOGICAL_RIGHT_SHIFT": ("i8", "i16", "i32"),
    }
    for name, kinds in plain.items():
        for kind, (one, two) in product(kinds, PAIRS):
            yield Form(
                f"{name} {kind} {one} {two}",
                lambda b, n=name, k=kind, s=one, t=two: b.op(n, b.input(k, s), b.input(k, t)),
            )
        kind = kinds[-1]
        yield Form(
            f"{name} {kind} constant",
            lambda b, n=name, k=kind: b.op(
                n, b.input(k, (1, 4, 4, 8)), numbers(b, (1, 1, 1, 8), k, 0, 1)
            ),
        )
    for kind, (one, two) in product(("i8", "i16", "i32"), PAIRS):
        yield Form(
            f"MUL {kind} {one} {two}",
            lambda b, k=kind, s=one, t=two: b.MUL(b.input(k, s), b.input(k, t), b.const([0], "i8")),
        )
    for shift in (1, 15, 31, 62):
        yield Form(
            f"MUL i32 shift {shift}",
            lambda b, n=shift: b.MUL(
                b.input("i32", (4, 8)), b.input("i32", (4, 8)), b.const([n], "i8")
            ),
        )
    for kind, turn in product(("i8", "i16", "i32"), (False, True)):
        never = U55 if kind == "i32" and not turn else NONE
        yield Form(
            f"ARITHMETIC_RIGHT_SHIFT {kind} round {turn}",
            lambda b, k=kind, r=turn: b.ARITHMETIC_RIGHT_SHIFT(
                b.input(k, (1, 4, 4, 8)), numbers(b, (1, 1, 1, 8), k, 0, 6), round=r
            ),
            never,
        )
    for kind in ("bool", "i8", "i16", "i32"):
        for mask, one, two in (
            ((2, 3, 8), (2, 3, 8), (2, 3, 8)),
            ((2, 1, 1), (2, 3, 8), (1, 1, 8)),
        ):
            yield Form(
                f"SELECT {kind} {mask} {one} {two}",
                lambda b, k=kind, m=mask, s=one, t=two: b.SELECT(
                    b.input("bool", m), b.input(k, s), b.input(k, t)
                ),
            )
    for name, unequal in product(("ADD", "SUB"), ((1, 2), (3, 5), (2, 2), (1, 1))):
        never = U55 if unequal[0] != unequal[1] else NONE
        yield Form(
            f"{name} i8 fused with whole factors {unequal}",
            lambda b, n=name, u=unequal: _sum(b, n, "i8", u),
            never,
        )
        yield Form(
            f"{name} i16 fused with whole factors {unequal}",
            lambda b, n=name, u=unequal: _sum(b, n, "i16", u),
            never,
        )
    for name in ("ADD", "SUB"):
        yield Form(
            f"{name} i8 fused with 2^19 and less",
            lambda b, n=name: _sum(b, n, "i8", (1 << 19, 123456)),
        )


def _sum(b: Builder, name: str, kind: str, factors: tuple[int, int]) -> Value:
    ins = []
    for factor in factors:
        bits = factor.bit_length()
        multiplier, shift = factor << (31 - bits), 31 - bits
        ins.append(rescaled(b, b.input(kind, (1, 4, 4, 8)), "i32", [multiplier], [shift]))
    return rescaled(b, b.op(name, *ins), kind, [1 << 30], [33])


def _avoided(name: str, last: bool) -> frozenset[str]:
    """Families for which a reduction goes wrong in some shapes or graphs, or is slow."""
    if name in ("REDUCE_MAX", "REDUCE_MIN") and last:
        return ALL  # four times as slow
    if name == "REDUCE_MIN" or (name == "REVERSE" and last):
        return U55  # a RESCALE behind it fails; in some shapes alone
    return NONE


def _reduce() -> Iterator[Form]:
    plain = {
        "REDUCE_SUM": ("i32",),
        "REDUCE_MAX": ("i8", "i16", "i32"),
        "REDUCE_MIN": ("i8", "i16", "i32"),
        "REDUCE_ALL": ("bool",),
        "REDUCE_ANY": ("bool",),
        "ARGMAX": ("i8", "i16"),
        "REVERSE": ("bool", "i8", "i16", "i32"),
    }
    for name, kinds in plain.items():
        for kind, (rank, shape) in product(kinds, SHAPES.items()):
            for axis in range(rank):
                never = _avoided(name, axis == rank - 1)
                yield Form(
                    f"{name} {kind} rank {rank} axis {axis}",
                    lambda b, n=name, k=kind, s=shape, a=axis: b.op(n, b.input(k, s), axis=a),
                    never,
                )
    for size in (127, 128):
        yield Form(
            f"ARGMAX i8 last axis {size}",
            lambda b, n=size: b.ARGMAX(b.input("i8", (1, 2, 3, n)), axis=3),
        )
    for size, rank in product((65536, 65537), (2, 3, 4)):
        for axis in range(rank):
            for name, kind in (("REDUCE_SUM", "i32"), ("REDUCE_MAX", "i8")):
                shape = tuple(size if i == axis else 2 if i else 1 for i in range(rank))
                yield Form(
                    f"{name} {kind} {shape} axis {axis}",
                    lambda b, n=name, k=kind, s=shape, a=axis: b.op(n, b.input(k, s), axis=a),
                    _avoided(name, axis == rank - 1),
                )
    for kind in ("i8", "i16"):
        for name in ("REDUCE_MAX", "REDUCE_MIN"):
            yield Form(
                f"{name} {kind} then RESCALE to i32",
                lambda b, n=name, k=kind: rescaled(
                    b, b.op(n, b.input(k, (1, 4, 4, 8)), axis=1), "i32"
                ),
                _avoided(name, False),
            )


def _moves() -> Iterator[Form]:
    for kind in ("bool", "i8", "i16", "i32"):
        for rank, shape in SHAPES.items():
            ones = [1] * rank
            yield Form(
                f"RESHAPE {kind} rank {rank}",
                lambda b, k=kind, s=shape: b.RESHAPE(b.input(k, s), b.shape((int(np.prod(s)),))),
            )
            yield Form(
                f"TILE {kind} rank {rank}",
                lambda b, k=kind, s=shape: b.TILE(b.input(k, s), b.shape([2] * len(s))),
            )
            for axis in range(rank):
                yield Form(
                    f"CONCAT {kind} rank {rank} axis {axis}",
                    lambda b, k=kind, s=shape, a=axis: b.CONCAT(
                        b.input(k, s), b.input(k, s), axis=a
                    ),
                )
                yield Form(
                    f"SLICE {kind} rank {rank} axis {axis}",
                    lambda b, k=kind, s=shape, a=axis, o=ones: b.SLICE(
                        b.input(k, s),
                        b.shape([min(s[i] - 1, 1) if i == a else 0 for i in range(len(s))]),
                        b.shape([max(s[i] - 1, 1) if i == a else s[i] for i in range(len(s))]),
                    ),
                )
                yield Form(
                    f"PAD {kind} rank {rank} axis {axis}",
                    lambda b, k=kind, s=shape, a=axis: b.PAD(
                        b.input(k, s),
                        b.shape([n for i in range(len(s)) for n in ((1, 2) if i == a else (0, 0))]),
                        b.const([1], k),
                    ),
                )
    for kind, rank in product(("bool", "i8", "i16", "i32"), (2, 3, 4, 5)):
        every = list(permutations(range(rank)))
        for perms in every if kind == "i8" and rank < 5 else every[1::7]:
            yield Form(
                f"TRANSPOSE {kind} {perms}",
                lambda b, k=kind, p=perms: b.TRANSPOSE(b.input(k, SHAPES[len(p)]), perms=p),
            )
    for perms in list(permutations(range(6)))[1::37]:
        yield Form(
            f"TRANSPOSE i8 {perms}",
            lambda b, p=perms: b.TRANSPOSE(b.input("i8", SHAPES[6]), perms=p),
        )
    for shape in ((65536, 4), (65537, 4), (4, 65537), (1, 65537, 4), (1, 4, 65537), (65537, 1)):
        perms = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        yield Form(
            f"TRANSPOSE i8 {shape} {perms}",
            lambda b, s=shape, p=perms: b.TRANSPOSE(b.input("i8", s), perms=p),
        )
    for kind in ("i8", "i16", "i32"):
        yield Form(
            f"GATHER {kind}",
            lambda b, k=kind: b.GATHER(b.input(k, (2, 5, 8)), b.input("i32", (2, 3))),
        )
        yield Form(
            f"GATHER {kind} constant indices",
            lambda b, k=kind: b.GATHER(b.input(k, (2, 5, 8)), numbers(b, (2, 3), "i32", 0, 4)),
        )
        yield Form(
            f"SCATTER {kind}",
            lambda b, k=kind: b.SCATTER(
                b.input(k, (2, 5, 8)), numbers(b, (2, 3), "i32", 0, 4), b.input(k, (2, 3, 8))
            ),
        )
    for batch in (16, 4096):
        yield Form(
            f"CONCAT i8 of {batch} batches along C",
            lambda b, n=batch: b.CONCAT(
                b.input("i8", (n, 1, 1, 2)), b.input("i8", (n, 1, 1, 2)), axis=3
            ),
            slow=batch > 16,
        )
    yield Form(
        "CONCAT i8 of 65536 batches along C",
        lambda b: b.CONCAT(
            b.input("i8", (65536, 1, 1, 2)), b.input("i8", (65536, 1, 1, 2)), axis=3
        ),
        slow=True,
    )


def _rescale() -> Iterator[Form]:
    for kind, out in product(("i8", "i16", "i32"), ("i8", "i16", "i32")):
        for rank in (1, 4, 6):
            yield Form(
                f"RESCALE {kind} to {out} rank {rank}",
                lambda b, k=kind, o=out, r=rank: rescaled(b, b.input(k, SHAPES[r]), o, shift=[31]),
            )
        yield Form(
            f"RESCALE {kind} to {out} per channel",
            lambda b, k=kind, o=out: rescaled(
                b, b.input(k, (1, 4, 4, 8)), o, [(1 << 30) + i for i in range(8)], [31] * 8
            ),
        )
        yield Form(
            f"RESCALE {kind} to {out} double round",
            lambda b, k=kind, o=out: rescaled(
                b, b.input(k, (1, 4, 4, 8)), o, shift=[33], mode="DOUBLE_ROUND"
            ),
        )
        for shift in (2, 62):
            yield Form(
                f"RESCALE {kind} to {out} shift {shift}",
                lambda b, k=kind, o=out, n=shift: rescaled(
                    b, b.input(k, (1, 4, 4, 8)), o, shift=[n]
                ),
            )
    for out in ("i8", "i16", "i32"):
        yield Form(
            f"RESCALE i48 to {out} alone",
            lambda b, o=out: rescaled(b, b.input("i48", (1, 4, 4, 8)), o),
        )
    yield Form(
        "RESCALE computed multiplier",
        lambda b: b.RESCALE(
            b.input("i32", (1, 4, 4, 8)),
            b.input("i32", (1,)),
            b.const([30], "i8"),
            b.const([0], "i32"),
            b.const([0], "i8"),
            scale32=True,
            rounding_mode="SINGLE_ROUND",
            per_channel=False,
            out=b.const([0], "i8").dtype,
        ),
        slow=True,
    )
    yield Form(
        "RESCALE computed shift",
        lambda b: b.RESCALE(
            b.input("i32", (1, 4, 4, 8)),
            b.const([1 << 30], "i32"),
            b.input("i8", (1,)),
            b.const([0], "i32"),
            b.const([0], "i8"),
            scale32=True,
            rounding_mode="SINGLE_ROUND",
            per_channel=False,
            out=b.const([0], "i8").dtype,
        ),
        slow=True,
    )


def forms() -> Iterator[Form]:
    """All forms, in a fixed order."""
    from judges.velawindows import windows

    for make in (_unary, _binary, _reduce, _moves, _rescale, windows):
        yield from make()

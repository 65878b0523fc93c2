"""Loops in C: an expression over an iteration space, stored element by element or reduced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tosaic.targets.cortexm.expressions import Apply, Expr, Imm, Load, Ref, nodes
from tosaic.targets.cortexm.vectors import INCLUDE, LANES, STORES, vector_body
from tosaic.targets.cortexm.views import View

NAME = "@"  # stands for a function's name in its text, so that equal functions are one


@dataclass(frozen=True, slots=True)
class Reduction:
    """How the elements along the last axis of a loop become one: C with {r} and {v}."""

    first: str
    code: str
    ctype: str = "int32_t"
    has_place: bool = False


@dataclass(frozen=True, slots=True)
class Function:
    """The text of a function of C and the pointers that it takes, in order."""

    text: str
    pointers: tuple[View, ...]
    includes: tuple[str, ...] = ()


def literal(value: int | float, ctype: str = "int32_t") -> str:
    """A number in C."""
    if ctype == "float":
        return _float(float(value))
    number = int(value)
    if number == -(1 << 31):
        return "(-2147483647 - 1)" if ctype == "int32_t" else "(-INT64_C(2147483647) - 1)"
    if number == -(1 << 63):
        return "(-INT64_C(9223372036854775807) - 1)"
    if ctype == "int64_t":
        return f"INT64_C({number})"
    return str(number) if number >= 0 else f"({number})"


def _float(value: float) -> str:
    if value != value:
        return "tk_nan()"
    if value in (float("inf"), float("-inf")):
        return "tk_infinity()" if value > 0 else "(-tk_infinity())"
    return f"{value.hex()}F" if value >= 0 else f"(-{(-value).hex()}F)"


def merged(
    shape: Sequence[int], accesses: Sequence[Sequence[int]], keep_last: bool = False
) -> tuple[list[int], list[list[int]]]:
    """Axes of a loop with those merged that every access runs through as if they were one."""
    axes = [i for i, n in enumerate(shape) if n != 1 or (keep_last and i == len(shape) - 1)]
    sizes = [shape[i] for i in axes]
    strides = [[a[i] for i in axes] for a in accesses]
    place = len(sizes) - 2
    while place >= 0:
        last = keep_last and place + 1 == len(sizes) - 1
        if not last and all(a[place] == a[place + 1] * sizes[place + 1] for a in strides):
            sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
            for a in strides:
                a[place : place + 2] = [a[place + 1]]
        place -= 1
    return sizes, strides


def loop(
    expr: Expr, shape: Sequence[int], store: View, store_type: str,
    reduction: Reduction | None = None, forms: Sequence[str] = (),
) -> Function:  # fmt: skip
    """A function that computes an expression at every place; the first pointer is written.

    With a reduction the last axis of ``shape`` is reduced, and ``store`` has one axis less. With
    the form "mve" four neighbours are computed at once where the expression has vectors.
    """
    leaves: dict[tuple[object, ...], tuple[int, Load | Ref]] = {}
    slots: dict[int, int] = {}
    for e in nodes(expr):
        if isinstance(e, (Load, Ref)):
            key = (id(e.view.buffer), e.view.offset, e.view.strides, type(e))
            slots[id(e)] = leaves.setdefault(key, (len(leaves), e))[0]
    ordered = [leaf for _, leaf in leaves.values()]
    loads = [leaf for leaf in ordered if isinstance(leaf, Load)]
    out = [*store.strides, 0] if reduction else list(store.strides)
    sizes, strides = merged(shape, [out, *(x.view.strides for x in loads)], reduction is not None)
    by_load = {slots[id(x)]: s for x, s in zip(loads, strides[1:])}
    args = ", ".join(
        [f"{store_type} *y", *(f"const {x.view.buffer.ctype} *x{i}" for i, x in enumerate(ordered))]
    )
    lines = [f"TK_NOINLINE void {NAME}({args})", "{"]
    outer = len(sizes) - 1 if reduction else len(sizes)
    indent = "    "
    for axis in range(outer):
        lines.append(f"{indent}int32_t i{axis};")
    if reduction:
        lines.append(f"{indent}int32_t i{outer};")
    vector = None
    if "mve" in forms and reduction is None and sizes and sizes[-1] >= LANES:
        vector = _vector(expr, slots, by_load, strides[0], store_type)
    for axis in range(outer):
        first = f"i{axis} = 0"
        if vector is not None and axis == outer - 1:
            first = ""
            lines += [f"{indent}i{axis} = 0;", "#if TK_MVE"]
            lines.append(
                f"{indent}for (; i{axis} < {sizes[axis] // LANES * LANES}; i{axis} += {LANES}) {{"
            )
            lines += [*(f"{indent}    {line}" for line in vector), indent + "}", "#endif"]
        lines.append(f"{indent}for ({first}; i{axis} < {sizes[axis]}; ++i{axis}) {{")
        indent += "    "
    if reduction:
        lines.append(f"{indent}{reduction.ctype} r = {reduction.first};")
        if reduction.has_place:
            lines.append(f"{indent}int32_t place = 0;")
        lines.append(f"{indent}for (i{outer} = 0; i{outer} < {sizes[outer]}; ++i{outer}) {{")
        indent += "    "
    body, result = _body(expr, slots, by_load)
    lines += [indent + line for line in body]
    if reduction:
        lines.append(indent + reduction.code.format(v=result, i=f"i{outer}"))
        indent = indent[4:]
        lines.append(indent + "}")
        result = "place" if reduction.has_place else "r"
    lines.append(f"{indent}y[{_index(strides[0])}] = ({store_type}){result};")
    for _ in range(outer):
        indent = indent[4:]
        lines.append(indent + "}")
    lines.append("}")
    text = "\n".join(lines) + "\n"
    includes = (INCLUDE,) if vector else ("float.h",) if "float" in text else ()
    return Function(text, (store, *(x.view for x in ordered)), includes)


def _vector(
    expr: Expr, slots: dict[int, int], by_load: dict[int, list[int]], store: list[int],
    store_type: str,
) -> list[str] | None:  # fmt: skip
    """Statements that store four neighbours; None if they are not computed at once."""
    steps = [by_load[slots[id(e)]][-1] for e in nodes(expr) if isinstance(e, Load)]
    if store[-1] != 1 or any(step not in (0, 1) for step in steps) or store_type not in STORES:
        return None

    def place(e: Load) -> str:
        return f"x{slots[id(e)]} + ({_index(by_load[slots[id(e)]])})"

    made = vector_body(
        expr, place, lambda e: f"x{slots[id(e)]}", lambda e: by_load[slots[id(e)]][-1] == 1,
        lambda e: literal(e.value, e.ctype),
    )  # fmt: skip
    if made is None:
        return None
    return [*made[0], f"{STORES[store_type]}(y + ({_index(store)}), {made[1]});"]


def _body(
    expr: Expr, slots: dict[int, int], by_load: dict[int, list[int]]
) -> tuple[list[str], str]:
    """Statements that compute an expression, and what holds its result."""
    names: dict[int, str] = {}
    lines: list[str] = []
    known: dict[int, str] = {}
    for e in nodes(expr):
        if isinstance(e, Imm):
            names[id(e)] = literal(e.value, e.ctype)
            continue
        if isinstance(e, Ref):
            names[id(e)] = f"x{slots[id(e)]}"
            continue
        if isinstance(e, Load):
            slot = slots[id(e)]
            if slot in known:
                names[id(e)] = known[slot]
                continue
            code = f"x{slot}[{_index(by_load[slot])}]"
        else:
            assert isinstance(e, Apply)
            code = e.code.format(*(names[id(a)] for a in e.args))
        name = f"v{len(lines)}"
        lines.append(f"const {e.ctype} {name} = {code};")
        names[id(e)] = name
        if isinstance(e, Load):
            known[slots[id(e)]] = name
    return lines, names[id(expr)]


def _index(strides: Sequence[int]) -> str:
    parts = [
        f"i{axis}" if stride == 1 else f"i{axis} * {literal(stride)}"
        for axis, stride in enumerate(strides)
        if stride
    ]
    return " + ".join(parts) or "0"

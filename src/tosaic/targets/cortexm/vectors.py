"""Vectors in loops: an expression on four int32 at a time, in intrinsics of the extension MVE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tosaic.targets.cortexm.expressions import INT32, Expr, Imm, Load, Ref, nodes

LANES = 4
INCLUDE = "vectors_mve.h"
_LOADS = {
    "int8_t": "vldrbq_s32({0})", "int16_t": "vldrhq_s32({0})", "int32_t": "vldrwq_s32({0})",
    "uint8_t": "vreinterpretq_s32_u32(vldrbq_u32({0}))",
}  # fmt: skip
STORES = {"int8_t": "vstrbq_s32", "int16_t": "vstrhq_s32", "int32_t": "vstrwq_s32"}


@dataclass(frozen=True, slots=True)
class _Operand:
    """What holds an operand: a vector, or one number for all lanes."""

    text: str
    expr: Expr
    is_vector: bool

    @property
    def vector(self) -> str:
        return self.text if self.is_vector else f"vdupq_n_s32({self.text})"

    @property
    def number(self) -> int | None:
        return int(self.expr.value) if isinstance(self.expr, Imm) else None


_Rule = Callable[[Sequence[_Operand]], str | None]


def _binary(name: str, commutes: bool = True) -> _Rule:
    """An operator of two vectors, or of a vector and a number."""

    def rule(args: Sequence[_Operand]) -> str | None:
        a, b = args
        if commutes and not a.is_vector:
            a, b = b, a
        if b.is_vector or name not in ("vaddq", "vsubq", "vmulq"):
            return f"{name}_s32({a.vector}, {b.vector})"
        return f"{name}_n_s32({a.vector}, {b.text})"

    return rule


def _clamp(args: Sequence[_Operand]) -> str | None:
    v, low, high = args
    return f"vminq_s32(vmaxq_s32({v.vector}, {low.vector}), {high.vector})"


def _round_shift(args: Sequence[_Operand]) -> str | None:
    count = args[-1].number
    ok = count is not None and 0 < count <= 32 and args[0].expr.ctype == "int32_t"
    return f"vrshrq_n_s32({args[0].vector}, {count})" if ok else None


def _rescale(args: Sequence[_Operand]) -> str | None:
    """A shift below 32 shifts the value to the left before, if it has room."""
    v, multiplier, shift = args[0], args[1].number, args[2].number
    if multiplier is None or shift is None or v.expr.ctype != "int32_t":
        return None
    left, text = max(32 - shift, 0), v.vector
    if v.expr.low << left < INT32[0] or v.expr.high << left > INT32[1]:
        return None
    text = f"vshlq_n_s32({text}, {left})" if left else text
    return f"tk_rescale_mve({text}, {multiplier}, {max(shift, 32)})"


def _product(args: Sequence[_Operand]) -> str | None:
    """A product that is rounded and shifted by 31 or more."""
    a, b, shift = args[0], args[1], args[2].number
    if shift == 31:
        return f"vqrdmulhq_s32({a.vector}, {b.vector})"
    if shift is None or shift < 32:
        return None
    return f"vrshrq_n_s32(vqdmulhq_s32({a.vector}, {b.vector}), {shift - 31})"


def _shift(name: str, sign: str = "") -> _Rule:
    """A shift by numbers, or by a vector of them; those to the right have a sign."""

    def rule(args: Sequence[_Operand]) -> str | None:
        v, by = args
        if not sign or by.is_vector:
            count = f"vnegq_s32({by.vector})" if sign else by.vector
            return f"{name}_s32({v.vector}, {count})"
        return f"{name}_s32({v.vector}, vdupq_n_s32(-{by.text}))"

    return rule


def _unary(name: str) -> _Rule:
    return lambda args: f"{name}_s32({args[0].vector})"


_RULES: Mapping[str, _Rule] = {
    "{0} + {1}": _binary("vaddq"), "tk_add({0}, {1})": _binary("vaddq"),
    "{0} - {1}": _binary("vsubq", False), "tk_sub({0}, {1})": _binary("vsubq", False),
    "{1} - {0}": lambda args: f"vsubq_s32({args[1].vector}, {args[0].vector})",
    "{0} * {1}": _binary("vmulq"), "tk_mul({0}, {1})": _binary("vmulq"),
    "{0} & {1}": _binary("vandq"), "{0} | {1}": _binary("vorrq"), "{0} ^ {1}": _binary("veorq"),
    "{0} > {1} ? {0} : {1}": _binary("vmaxq"), "{0} < {1} ? {0} : {1}": _binary("vminq"),
    "~{0}": _unary("vmvnq"), "TK_CLZ({0})": _unary("vclzq"), "tk_sub(0, {0})": _unary("vnegq"),
    "{0} < 0 ? tk_sub(0, {0}) : {0}": _unary("vabsq"), "tk_clamp({0}, {1}, {2})": _clamp,
    "({0} + {1}) >> {2}": _round_shift, "tk_round_shift({0}, {1})": _round_shift,
    "tk_rescale({0}, {1}, {2})": _rescale, "tk_rescale32({0}, {1}, {2})": _rescale,
    "tk_mul_shift({0}, {1}, {2})": _product,
    "tk_shift_left({0}, {1})": _shift("vshlq"), "tk_shift_right({0}, {1})": _shift("vshlq", "-"),
    "tk_shift_right_round({0}, {1})": _shift("vrshlq", "-"),
    "tk_table8({0}, {1})": lambda args: f"tk_table8_mve({args[0].vector}, {args[1].text})",
    "tk_table16({0}, {1})": lambda args: f"tk_table16_mve({args[0].vector}, {args[1].text})",
}  # fmt: skip


def vector_body(
    expr: Expr, place: Callable[[Load], str], pointer: Callable[[Ref], str],
    is_along: Callable[[Load], bool], literal: Callable[[Imm], str],
) -> tuple[list[str], str] | None:  # fmt: skip
    """Statements that compute four elements, and what holds them; None if there are no such.

    ``place`` is the address of a load, ``is_along`` whether its elements are neighbours there.
    """
    found: dict[int, _Operand] = {}
    lines: list[str] = []
    for e in nodes(expr):
        if isinstance(e, Ref):
            found[id(e)] = _Operand(pointer(e), e, False)
            continue
        if e.ctype != "int32_t":
            return None
        if isinstance(e, Imm):
            found[id(e)] = _Operand(literal(e), e, False)
            continue
        is_vector = True
        if isinstance(e, Load):
            is_vector = is_along(e)
            code = _LOADS[e.view.buffer.ctype].format(place(e)) if is_vector else f"*({place(e)})"
        else:
            rule = _RULES.get(e.code)
            made = rule([found[id(a)] for a in e.args]) if rule is not None else None
            if made is None:
                return None
            code = made
        name = f"q{len(lines)}"
        kind = "int32x4_t" if is_vector else "int32_t"
        lines.append(f"const {kind} {name} = {code};")
        found[id(e)] = _Operand(name, e, is_vector)
    result = found[id(expr)]
    return (lines, result.text) if result.is_vector else None

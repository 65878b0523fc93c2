"""Elementwise operators of TOSA as expressions in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tosaic.errors import Unsupported
from tosaic.ir.graph import Array, Op, Value
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm.expressions import INT32, Apply, Expr, Imm, Load, Ref, within
from tosaic.targets.cortexm.views import C_TYPES, View, broadcast, constant, whole

Rule = Callable[[Op, Sequence[Expr]], Expr]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def computed_in(kind: d.DType) -> str:
    """The type of C that elements are computed in."""
    if kind not in C_TYPES:
        raise Unsupported(f"C has no {kind}")
    if kind is d.F32:
        return "float"
    return "int64_t" if kind.bits > 32 else "int32_t"


def bounds(kind: d.DType) -> tuple[int, int]:
    return INT32 if kind.is_float else (-8, 7) if kind is d.I4 else kind.range


def load(view: View, kind: d.DType) -> Expr:
    """An element of a tensor; a constant of one value is that number."""
    data = view.buffer.data
    if view.buffer.kind == "const" and data:
        step = len(data) // view.buffer.count
        if data == data[:step] * view.buffer.count:
            value = np.frombuffer(data[:step], kind.array)[0]
            return Imm(value.item(), computed_in(kind))
    return Load(view, computed_in(kind), *bounds(kind))


def known(value: Value, op: Op) -> Array:
    """The array of an operand that has to be constant."""
    if value.const is None:
        raise Unsupported(f"{op.name}: an operand that has to be constant is computed", op.loc)
    return value.const.array


def one(op: Op, name: str) -> int:
    """A constant operand of one number."""
    return int(known(op.operand(name), op).reshape(-1)[0])


def _wide(op: Op) -> bool:
    return op.ins[0].dtype.bits > 32


def clamped(e: Expr, low: int, high: int) -> Expr:
    """The expression within limits; nothing is done where it is already."""
    if within(e, low, high):
        return e
    lo, hi = max(e.low, low), min(e.high, high)
    if lo > hi:
        lo, hi = low, high
    if e.ctype == "int64_t":
        code = f"(int32_t)({{0}} < {low} ? {low} : {{0}} > {high} ? {high} : {{0}})"
        return Apply(code, (e,), "int32_t", lo, hi)
    return Apply("tk_clamp({0}, {1}, {2})", (e, Imm(low), Imm(high)), "int32_t", lo, hi)


def plus(e: Expr, number: int) -> Expr:
    """The sum with a number that is small beside the expression's type."""
    if not number:
        return e
    low, high = e.low + number, e.high + number
    if INT32[0] <= low and high <= INT32[1]:
        return Apply("{0} + {1}", (e, Imm(number)), e.ctype, low, high)
    wide = "int64_t" if e.ctype == "int64_t" else "int32_t"
    return Apply("tk_add64({0}, {1})" if wide == "int64_t" else "tk_add({0}, {1})",
                 (e, Imm(number, wide)), wide)  # fmt: skip


_SAME = {
    "BITWISE_AND": "{0} & {1}", "BITWISE_OR": "{0} | {1}", "BITWISE_XOR": "{0} ^ {1}",
    "BITWISE_NOT": "~{0}", "LOGICAL_AND": "{0} & {1}", "LOGICAL_OR": "{0} | {1}",
    "LOGICAL_XOR": "{0} ^ {1}", "LOGICAL_NOT": "1 - {0}",
}  # fmt: skip


@rule(*_SAME)
def bitwise(op: Op, args: Sequence[Expr]) -> Expr:
    kind = op.outs[0].dtype
    return Apply(_SAME[op.name], tuple(args), computed_in(kind), *bounds(kind))


_COMPARE = {"EQUAL": "==", "GREATER": ">", "GREATER_EQUAL": ">="}


@rule(*_COMPARE)
def compare(op: Op, args: Sequence[Expr]) -> Expr:
    return Apply(f"{{0}} {_COMPARE[op.name]} {{1}}", tuple(args), "int32_t", 0, 1)


@rule("SELECT")
def select(op: Op, args: Sequence[Expr]) -> Expr:
    low, high = min(args[1].low, args[2].low), max(args[1].high, args[2].high)
    kind = computed_in(op.outs[0].dtype)
    return Apply("{0} ? {1} : {2}", tuple(args), kind, low, high)


_ARITHMETIC = {"ADD": ("tk_add", "+"), "SUB": ("tk_sub", "-")}


@rule(*_ARITHMETIC)
def add(op: Op, args: Sequence[Expr]) -> Expr:
    name, sign = _ARITHMETIC[op.name]
    if _wide(op):
        return Apply(f"{name}64({{0}}, {{1}})", tuple(args), "int64_t")
    a, b = args
    ends = (a.low + b.low, a.high + b.high) if sign == "+" else (a.low - b.high, a.high - b.low)
    if INT32[0] <= ends[0] and ends[1] <= INT32[1]:
        return Apply(f"{{0}} {sign} {{1}}", (a, b), "int32_t", *ends)
    return Apply(f"{name}({{0}}, {{1}})", (a, b))


@rule("MUL")
def mul(op: Op, args: Sequence[Expr]) -> Expr:
    a, b = args[:2]
    shift = int(known(op.ins[2], op).reshape(-1)[0])
    if _wide(op):
        return Apply("tk_mul64({0}, {1})", (a, b), "int64_t")
    if not shift:
        ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        if INT32[0] <= min(ends) and max(ends) <= INT32[1]:
            return Apply("{0} * {1}", (a, b), "int32_t", min(ends), max(ends))
        return Apply("tk_mul({0}, {1})", (a, b))
    return Apply("tk_mul_shift({0}, {1}, {2})", (a, b, Imm(shift)), cost=2)


@rule("INTDIV")
def intdiv(op: Op, args: Sequence[Expr]) -> Expr:
    wide = _wide(op)
    return Apply(
        "tk_div64({0}, {1})" if wide else "tk_div({0}, {1})", tuple(args),
        "int64_t" if wide else "int32_t", cost=4,
    )  # fmt: skip


def _narrowed(e: Expr, kind: d.DType) -> Expr:
    """The low bits of an integer, in a type."""
    if kind.bits >= 32 or within(e, *kind.range):
        return e
    return Apply(f"(int{kind.bits}_t){{0}}", (e,), "int32_t", *kind.range)


@rule("LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT", "ARITHMETIC_RIGHT_SHIFT")
def shift(op: Op, args: Sequence[Expr]) -> Expr:
    kind = op.outs[0].dtype
    more, ctype = ("64", "int64_t") if kind.bits > 32 else ("", "int32_t")
    if op.name == "LOGICAL_LEFT_SHIFT":
        return _narrowed(Apply(f"tk_shift_left{more}({{0}}, {{1}})", tuple(args), ctype), kind)
    if op.name == "LOGICAL_RIGHT_SHIFT":
        bits = "" if more else f", {kind.bits}"
        code = f"tk_shift_right_logical{more}({{0}}, {{1}}{bits})"
        return _narrowed(Apply(code, tuple(args), ctype), kind)
    rounds = "_round" if op.attrs["round"] else ""
    made = Apply(f"tk_shift_right{rounds}{more}({{0}}, {{1}})", tuple(args), ctype, *bounds(kind))
    return made


@rule("MAXIMUM", "MINIMUM")
def extreme(op: Op, args: Sequence[Expr]) -> Expr:
    a, b = args
    is_max = op.name == "MAXIMUM"
    pick = max if is_max else min
    sign = ">" if is_max else "<"
    return Apply(
        f"{{0}} {sign} {{1}} ? {{0}} : {{1}}", (a, b), computed_in(op.outs[0].dtype),
        pick(a.low, b.low), pick(a.high, b.high),
    )  # fmt: skip


@rule("ABS")
def absolute(op: Op, args: Sequence[Expr]) -> Expr:
    kind = op.outs[0].dtype
    more = "64" if kind.bits > 32 else ""
    code = f"{{0}} < 0 ? tk_sub{more}(0, {{0}}) : {{0}}"
    low, high = bounds(kind)
    return Apply(code, tuple(args), computed_in(kind), 0 if args[0].low > low else low, high)


@rule("NEGATE")
def negate(op: Op, args: Sequence[Expr]) -> Expr:
    kind = op.outs[0].dtype
    if kind.bits > 16:
        more = "64" if kind.bits > 32 else ""
        return Apply(f"tk_sub{more}(0, {{0}})", (args[0],), computed_in(kind))
    total = sum(int(known(v, op).reshape(-1)[0]) for v in op.ins[1:3])
    e = args[0]
    made = Apply("{1} - {0}", (e, Imm(total)), "int32_t", total - e.high, total - e.low)
    return clamped(made, *kind.range)


@rule("CLZ")
def clz(op: Op, args: Sequence[Expr]) -> Expr:
    if _wide(op):
        return Apply("tk_clz64({0})", tuple(args), "int64_t", 0, 64)
    return Apply("TK_CLZ({0})", tuple(args), "int32_t", 0, 32)


@rule("CLAMP")
def clamp(op: Op, args: Sequence[Expr]) -> Expr:
    low, high = op.attrs["min_val"], op.attrs["max_val"]
    return clamped(args[0], int(low), int(high))


@rule("TABLE")
def table(op: Op, args: Sequence[Expr]) -> Expr:
    entries = known(op.ins[1], op)
    if op.ins[0].dtype is d.I8:
        ref = Ref(whole(constant(entries, "int8_t"), entries.shape))
        ends = int(entries.min()), int(entries.max())
        return Apply("tk_table8({0}, {1})", (args[0], ref), "int32_t", *ends)
    ref = Ref(whole(constant(entries, "int16_t"), entries.shape))
    ends = 128 * int(entries.min()), 128 * int(entries.max())
    return Apply("tk_table16({0}, {1})", (args[0], ref), "int32_t", *ends, cost=3)


@rule("IDENTITY")
def identity(op: Op, args: Sequence[Expr]) -> Expr:
    return args[0]


@rule("CAST")
def cast(op: Op, args: Sequence[Expr]) -> Expr:
    source, kind, e = op.ins[0].dtype, op.outs[0].dtype, args[0]
    if kind is d.BOOL:
        return Apply("{0} != 0", (e,), "int32_t", 0, 1)
    if kind.bits > 32:
        return Apply("(int64_t){0}", (e,), "int64_t", e.low, e.high)
    if source.bits > 32:
        return Apply("(int32_t){0}", (e,), "int32_t")
    return _narrowed(e, kind)


@rule("RESCALE")
def rescale(op: Op, args: Sequence[Expr]) -> Expr:
    """RESCALE by literals, or by a multiplier and a shift for each channel."""
    source, kind, e = op.ins[0].dtype, op.outs[0].dtype, args[0]
    multiplier, shifts = (known(v, op).reshape(-1) for v in op.ins[1:3])
    zps = [int(known(v, op).reshape(-1)[0]) for v in op.ins[3:5]]
    if op.attrs["input_unsigned"]:
        mask = (1 << source.bits) - 1
        e, zps[0] = Apply("{0} & {1}", (e, Imm(mask)), "int32_t", 0, mask), zps[0] & mask
    e = plus(e, -zps[0])
    if op.attrs["rounding_mode"] == "INEXACT_ROUND":
        slope = np.ldexp(multiplier.astype(np.float64), -shifts.astype(np.int64))
        factor = _by_channel(slope.astype(np.float32), d.F32, op.outs[0].shape)
        e = Apply("tk_rescale_inexact({0}, {1})", (e, factor), cost=4)
    else:
        e = _rounded(e, op, multiplier, shifts)
    if op.attrs["output_unsigned"]:
        mask = (1 << kind.bits) - 1
        zp = zps[1] & mask
        e = plus(clamped(e, -zp, mask - zp), zp)
        return _narrowed(e, kind)
    low, high = kind.range
    return plus(clamped(e, low - zps[1], high - zps[1]), zps[1])


def _rounded(e: Expr, op: Op, multiplier: Array, shifts: Array) -> Expr:
    """The product with one multiplier, or with that of its channel."""
    is_double = op.attrs["rounding_mode"] == "DOUBLE_ROUND"
    if len(multiplier) == 1:
        return scaled(e, int(multiplier[0]), int(shifts[0]), is_double)
    shape = op.outs[0].shape
    factors = (_by_channel(a.astype(np.int32), d.I32, shape) for a in (multiplier, shifts))
    name = "tk_rescale_double" if is_double else "tk_rescale"
    return Apply(f"{name}({{0}}, {{1}}, {{2}})", (e, *factors), cost=3)


def _by_channel(array: Array, kind: d.DType, shape: Sequence[int]) -> Expr:
    """A constant along the last axis."""
    return load(broadcast(whole(constant(array, C_TYPES[kind]), array.shape), shape), kind)


def scaled(e: Expr, multiplier: int, shift: int, is_double: bool = False) -> Expr:
    """The product with multiplier / 2^shift, rounded half up; powers of two are shifts."""

    def result(v: int) -> int:
        return (v * multiplier + (1 << shift - 1)) >> shift

    if is_double and shift > 31:
        code = "tk_rescale_double({0}, {1}, {2})"
        return Apply(code, (e, Imm(multiplier), Imm(shift)), cost=3)
    ends = max(result(e.low), INT32[0]), min(result(e.high), INT32[1])
    if multiplier and not multiplier & (multiplier - 1):
        power = multiplier.bit_length() - 1
        if power == shift:
            return e if e.ctype == "int32_t" else Apply("(int32_t){0}", (e,), "int32_t", *ends)
        if power > shift and e.ctype == "int32_t":
            code = "tk_shift_left({0}, {1})"
            return Apply(code, (e, Imm(power - shift)), "int32_t", *ends)
        if power < shift:
            down = shift - power
            if down < 31 and e.high + (1 << down - 1) <= INT32[1] and e.ctype == "int32_t":
                code = "({0} + {1}) >> {2}"
                return Apply(code, (e, Imm(1 << down - 1), Imm(down)), "int32_t", *ends)
            return Apply("tk_round_shift({0}, {1})", (e, Imm(down)), "int32_t", *ends)
    room = 31 - max(0, 32 - shift)
    is_narrow = e.ctype == "int32_t" and -(1 << room) <= e.low and e.high < 1 << room
    code = f"tk_rescale{'32' if is_narrow else ''}({{0}}, {{1}}, {{2}})"
    return Apply(code, (e, Imm(multiplier), Imm(shift)), "int32_t", *ends, cost=2)

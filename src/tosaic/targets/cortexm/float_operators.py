"""Elementwise operators of float32 as expressions in C; functions are those of kernels/float.h."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d
from tosaic.targets.cortexm.expressions import Apply, Expr, Imm
from tosaic.targets.cortexm.operators import RULES, Rule

_FUNCTION = 12  # what a call of a function costs: its result is stored for several consumers
_CODE = {
    "ADD": "{0} + {1}", "SUB": "{0} - {1}", "MUL": "{0} * {1}", "NEGATE": "-{0}",
    "ABS": "{0} < 0.0F ? -{0} : {0}", "RECIPROCAL": "1.0F / {0}",
}  # fmt: skip
_FUNCTIONS = {
    "CEIL": "tk_ceil({0})", "FLOOR": "tk_floor({0})", "EXP": "tk_exp({0})", "LOG": "tk_log({0})",
    "TANH": "tk_tanh({0})", "SIGMOID": "tk_sigmoid({0})", "ERF": "tk_erf({0})",
    "SIN": "tk_sine({0}, 0)", "COS": "tk_sine({0}, 1)", "RSQRT": "tk_rsqrt({0})",
    "POW": "tk_pow({0}, {1})",
}  # fmt: skip


def rule_of(op: Op) -> Rule | None:
    """How an elementwise operator computes an element; None if it is none."""
    is_float = bool(op.ins) and d.F32 in (op.ins[0].dtype, op.outs[0].dtype)
    return (_FLOAT_RULES.get(op.name) if is_float else None) or RULES.get(op.name)


def _coded(op: Op, args: Sequence[Expr]) -> Expr:
    return Apply(_CODE[op.name], tuple(args[:2]), "float")


def _function(op: Op, args: Sequence[Expr]) -> Expr:
    return Apply(_FUNCTIONS[op.name], tuple(args), "float", cost=_FUNCTION)


def _extreme(op: Op, args: Sequence[Expr]) -> Expr:
    """The larger or the smaller; a NaN wins, or loses to a number."""
    short = op.name[:3].lower()
    name = f"tk_f{short}" if op.attrs["nan_mode"] == "IGNORE" else f"tk_{short}imum"
    return Apply(f"{name}({{0}}, {{1}})", tuple(args), "float")


def _clamp(op: Op, args: Sequence[Expr]) -> Expr:
    """Within limits; a NaN stays, or becomes the lower one."""
    low, high = (Imm(float(op.attrs[name]), "float") for name in ("min_val", "max_val"))
    below = "!({0} >= {1})" if op.attrs["nan_mode"] == "IGNORE" else "{0} < {1}"
    return Apply(f"{below} ? {{1}} : {{0}} > {{2}} ? {{2}} : {{0}}", (args[0], low, high), "float")


def _cast(op: Op, args: Sequence[Expr]) -> Expr:
    kind, e = op.outs[0].dtype, args[0]
    if kind is d.F32:
        return e if e.ctype == "float" else Apply("(float){0}", (e,), "float")
    if kind is d.BOOL:
        return Apply("{0} != 0.0F", (e,), "int32_t", 0, 1)
    low, high = kind.range
    limits = Imm(low), Imm(high), Imm(low if kind.bits == 32 else 0)
    code = "tk_float_to_int({0}, {1}, {2}, {3})"
    return Apply(code, (e, *limits), "int32_t", low, high, cost=4)


_FLOAT_RULES: dict[str, Rule] = {
    **dict.fromkeys(_CODE, _coded), **dict.fromkeys(_FUNCTIONS, _function), "CAST": _cast,
    "CLAMP": _clamp, "MAXIMUM": _extreme, "MINIMUM": _extreme,
}  # fmt: skip

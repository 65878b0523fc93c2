"""Operands of kernels: constants are prepared once, other values at each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tosaic.errors import Unpredictable
from tosaic.interp.kernel import TORCH, Run, constant
from tosaic.ir.graph import Op
from tosaic.spec import dtypes as d

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def specialise(op: Op, names: str, make: Callable[..., Run]) -> Run:
    """``make`` gets the operands named, and returns what runs on the others.

    It is called once if all of them are constant, and at every run if the dynamic extension
    lets one be computed.
    """
    order = [operand.name for operand in op.defn.operands]
    chosen = [order.index(name) for name in names.split()]
    others = [i for i in range(len(order)) if i not in chosen]
    known = [constant(op.ins[i]) for i in chosen]
    if any(tensor is None for tensor in known):

        def run_dynamic(*ins: Tensor) -> object:
            return make(*(ins[i] for i in chosen))(*(ins[i] for i in others))

        return run_dynamic
    run = _postponed(make, known)
    if others == list(range(len(others))):
        count = len(others)
        return lambda *ins: run(*ins[:count])
    return lambda *ins: run(*(ins[i] for i in others))


def _postponed(make: Callable[..., Run], operands: Sequence[Tensor | None]) -> Run:
    """What ``make`` gives; constants that TOSA leaves unpredictable are an error of the run."""
    try:
        return make(*operands)
    except Unpredictable as problem:
        reason = problem.reason

        def run(*ins: Tensor) -> None:
            raise Unpredictable(reason)

        return run


def in_float32(op: Op, compute: Run) -> Run:
    """The same computation for narrow floats: widened, and rounded once at the end."""
    target = TORCH[op.outs[0].dtype]
    if all(value.dtype is d.F32 for value in (*op.ins, *op.outs)):
        return compute
    return lambda *ins: compute(*(x.float() for x in ins)).to(target)


def as_bits(tensor: Tensor) -> Tensor:
    """A tensor that is only moved, in a type that torch can move (it moves no 8-bit float)."""
    return tensor.view(torch.int8) if tensor.dtype in _FLOAT8 else tensor


def moving(op: Op, move: Run) -> Run:
    """A kernel that copies elements without looking at them, for 8-bit floats too."""
    if TORCH[op.outs[0].dtype] not in _FLOAT8:
        return move
    target = TORCH[op.outs[0].dtype]
    return lambda *ins: move(*map(as_bits, ins)).view(target)


def require(holds: Tensor | bool, reason: str) -> None:
    """Raise what TOSA leaves unpredictable; the plan adds the operator and its place."""
    if not bool(holds):
        raise Unpredictable(reason)


def within(tensor: Tensor, low: int, high: int) -> bool:
    """Whether every element lies in a range."""
    if not tensor.numel():
        return True
    smallest, largest = torch.aminmax(tensor)
    return low <= int(smallest) and int(largest) <= high


def narrow(wide: Tensor, kind: d.DType, what: str) -> Tensor:
    """Wide integers in their own type; what does not fit is unpredictable."""
    if not within(wide, *kind.range):
        raise Unpredictable(f"{what} does not fit {kind}")
    return wide.to(TORCH[kind])

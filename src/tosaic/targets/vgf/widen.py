"""Mixed precision: numbers are stored in fp16 or bf16 and computed in fp32.

Vulkan's emulation sums fp16 in 16 bits, truncates bf16 and flushes denormal numbers; and a result
that is rounded to 16 bits after each operator has the noise of all of these roundings. So weights,
inputs and outputs keep their 16 bits, and what lies between is computed in fp32 and rounded once.
"""

from __future__ import annotations

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.dtypes import BF16, F16, F32
from tosaic.spec.env import everything

# Operators that choose among the numbers they are given: exact in 16 bits where those are.
_CHOOSES = {
    "ABS", "ARGMAX", "CLAMP", "CONCAT", "EQUAL", "GATHER", "GREATER", "GREATER_EQUAL", "IDENTITY",
    "MAX_POOL2D", "MAXIMUM", "MINIMUM", "NEGATE", "PAD", "REDUCE_MAX", "REDUCE_MIN", "RESHAPE",
    "REVERSE", "SCATTER", "SELECT", "SLICE", "TILE", "TRANSPOSE",
}  # fmt: skip
_SMALL = 1024  # elements of a constant that is stored in fp32, which takes no operator


def is_narrow(value: Value) -> bool:
    """Whether a value has 16 bits of floating point."""
    return value.dtype in (F16, BF16)


def widen(graph: Graph) -> None:
    """Compute in fp32 what a graph computes in fp16 and bf16, in place."""
    if any(is_narrow(value) for op in graph.ops for value in (*op.ins, *op.outs)):
        _Widening(graph).run()


class _Widening:
    """What values have become: ``wide`` are those computed in fp32, ``casts`` those cast to it."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.b = Builder(everything(graph.version, level="none"), graph)
        self._wide: dict[Value, Value] = {}
        self._casts: dict[tuple[Value, bool], Value] = {}
        self._kept: dict[Value, Value] = {}  # in the types they had

    def run(self) -> None:
        kept, self.graph.ops = self.graph.ops, []
        for op in kept:
            self.b.loc = op.loc
            if op.name == "CAST":
                self._cast(op)
            elif self._is_widened(op):
                self._add_wide(op)
            else:
                op.ins = [self._as_it_was(value) for value in op.ins]
                self.graph.ops.append(op)
        self.graph.outputs = [self._as_it_was(value) for value in self.graph.outputs]

    def _is_widened(self, op: Op) -> bool:
        if op.name == "CUSTOM" or len(op.outs) != 1 or not any(map(is_narrow, op.ins)):
            return False
        loses_infinity = op.name == "MAX_POOL2D" and op.ins[0].dtype is F16
        return op.name not in _CHOOSES or loses_infinity or any(v in self._wide for v in op.ins)

    def _add_wide(self, op: Op) -> None:
        attrs = {**op.attrs, **({"acc_type": F32} if "acc_type" in op.attrs else {})}
        rounds = op.name in _CHOOSES
        made = self.b.op(op.name, *(self._widened(value, rounds) for value in op.ins), **attrs)
        old = op.outs[0]
        made.name, made.quant = old.name, old.quant
        if is_narrow(old):
            self._wide[old] = made
        else:
            self._kept[old] = made

    def _cast(self, op: Op) -> None:
        """One to 16 bits rounds where the network asks for it, not at the end of a call."""
        old, (source,) = op.outs[0], op.ins
        if is_narrow(old) and source.dtype is F32 and not _is_asked_for(op):
            self._wide[old] = self._as_it_was(source)
        elif source in self._wide and old.dtype is F32:
            self._kept[old] = self._wide[source]
        else:
            op.ins = [self._wide.get(source) or self._as_it_was(source)]
            self.graph.ops.append(op)

    def _widened(self, value: Value, rounds: bool) -> Value:
        """A value in fp32. Weights stay as they are in the file, which has half as many bytes.

        Constants that a call computes with are those before PyTorch's type has rounded them, as
        PyTorch computes with them in fp32, too; among rounded ones it chooses.
        """
        if not is_narrow(value):
            return self._as_it_was(value)
        if value in self._wide:
            return self._wide[value]
        rounds |= value.const is None or value.const.exact is None
        if (value, rounds) not in self._casts:
            self._casts[value, rounds] = self._cast_of(value, rounds)
        return self._casts[value, rounds]

    def _cast_of(self, value: Value, rounds: bool) -> Value:
        const = value.const if value.is_const else None
        if const is not None and const.exact is not None and not rounds:
            return self.b.const(const.exact, F32)
        if const is not None and value.type.size <= _SMALL:
            return self.b.remade(value, lambda array: array.astype(np.float32), kind=F32)
        return self.b.CAST(value, out=F32)

    def _as_it_was(self, value: Value) -> Value:
        """A value in its own type; what was computed in fp32 is rounded, once for all consumers."""
        if value in self._wide and value not in self._kept:
            wide = self._wide[value]
            made = self._kept[value] = self.b.CAST(wide, out=value.dtype)
            made.name, made.quant, made.loc, wide.name = value.name, value.quant, value.loc, ""
        return self._kept.get(value, value)


def _is_asked_for(op: Op) -> bool:
    """Whether a CAST is a call of its own, not the last step of another call."""
    node = op.loc.node if op.loc is not None else ""
    return not node or node.startswith(("aten.to.", "aten._to_copy.", "aten.type_as."))

"""The Builder emits, infers and checks an operator in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.ir.graph import Array, Const, Graph, Loc, Op, Quant, Value
from tosaic.ir.traits import PLAIN, Traits
from tosaic.spec import OPS
from tosaic.spec.check import resolve
from tosaic.spec.dtypes import (
    ALL,
    BF16,
    F16,
    I8,
    I16,
    I32,
    I48,
    SHAPE,
    DType,
    TensorType,
    dtype,
)  # fmt: skip
from tosaic.spec.env import Env
from tosaic.spec.ops_shape import evaluate
from tosaic.spec.table import OpDef

Constraint = Callable[[Op], str | None]
Wanted = DType | TensorType | Sequence[DType | TensorType] | None

_BY_ARRAY = {
    np.dtype(d.array): d for d in reversed(ALL) if d.name not in ("i4", "i48", "shape")
    and d.kind in ("int", "float", "bool")
}  # fmt: skip
_FEW = 1 << 16  # numbers of a constant that are kept in fp32, too


class Trial:
    """A scratch stretch of building: dropped at its end unless committed."""

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        self.committed = True


class Builder:
    """Emits operators into a graph; each is checked against the table and the constraints.

    ``b.op("ADD", x, y)`` and ``b.ADD(x, y)`` are the same. A refused operator raises Unsupported
    with a reason and leaves the graph as it was.
    """

    def __init__(
        self, env: Env | str, graph: Graph | None = None, constraints: Sequence[Constraint] = (),
        traits: Traits = PLAIN,
    ) -> None:  # fmt: skip
        self.env = Env.parse(env)
        self.graph = graph if graph is not None else Graph(version=self.env.version)
        self.constraints, self.traits = tuple(constraints), traits
        self.loc: Loc | None = None

    def __getattr__(self, name: str) -> Callable[..., Value]:
        if name in OPS:
            return partial(self.op, name)
        raise AttributeError(name)

    def input(self, kind: DType | str, shape: Sequence[int], name: str = "") -> Value:
        """A new graph input."""
        kind = dtype(kind) if isinstance(kind, str) else kind
        value = Value(TensorType(kind, tuple(shape)), name, loc=self.loc)
        self.graph.inputs.append(value)
        return value

    def const(
        self,
        data: Any,
        kind: DType | str | None = None,
        name: str = "",
        quant: Quant | None = None,
        shape: Sequence[int] | None = None,
    ) -> Value:
        """A constant from numbers, an array, or a function that makes one (with ``shape``)."""
        kind = dtype(kind) if isinstance(kind, str) else kind
        if callable(data):
            if kind is None or shape is None:
                raise InvalidInput("a lazy constant needs its type and shape")
            make, target = data, kind.array
            lazy = Const(lambda: np.asarray(make(), dtype=target, order="C"))
            return Value(TensorType(kind, tuple(shape)), name, lazy, quant, self.loc)
        array = as_array(data, kind)
        kind = kind or _BY_ARRAY[array.dtype]
        const = Const(array, _exact(data, array) if kind in (BF16, F16) else None)
        return Value(TensorType(kind, array.shape), name, const, quant, self.loc)

    def remade(
        self, value: Value, make: Callable[[Array], Array], shape: Sequence[int] | None = None,
        kind: DType | None = None, quant: Quant | None = None,
    ) -> Value:  # fmt: skip
        """A constant made of another one, when it is needed; in its shape and type unless told."""
        source = value.const
        assert source is not None
        shape = value.shape if shape is None else shape
        made = self.const(lambda: make(source.array), kind or value.dtype, quant=quant, shape=shape)
        if source.exact is not None and made.const is not None:
            made.const.exact = _exact(make(source.exact), made.const.array)
        return made

    def shape(self, sizes: Sequence[int], name: str = "") -> Value:
        """A constant shape."""
        array = np.array(tuple(sizes), dtype=np.int64)
        return Value(TensorType(SHAPE, (len(array),)), name, Const(array), loc=self.loc)

    def output(self, *values: Value) -> None:
        """Add graph outputs."""
        self.graph.outputs.extend(values)

    def child(self, name: str = "") -> Builder:
        """A Builder for a region of a COND_IF or WHILE_LOOP to come."""
        region = Graph(name or f"{self.graph.name}_region", version=self.env.version)
        return Builder(self.env, region, self.constraints, self.traits)

    @contextmanager
    def scratch(self) -> Iterator[Trial]:
        """Operators emitted inside are dropped unless the trial is committed."""
        trial, length = Trial(), len(self.graph.ops)
        try:
            yield trial
        finally:
            if not trial.committed:
                del self.graph.ops[length:]

    def op(self, name: str, /, *ins: Value, **more: Any) -> Value:
        """Emit an operator: its result. FFT2D and control flow have several, in a tuple."""
        made = self.results(name, *ins, **more)
        return made[0] if len(made) == 1 else made  # type: ignore[return-value]

    def layer(
        self, name: str, x: Value, weights: Value | Array, input_zp: Value | int = 0,
        bias: Value | None = None, acc: DType = I32,
    ) -> Value:  # fmt: skip
        """A convolution with a stride of 1, without padding or dilation: the sums of products."""
        weights = weights if isinstance(weights, Value) else self.const(weights, I8)
        zero = input_zp if isinstance(input_zp, Value) else self.const([input_zp], x.dtype)
        bias = self.const([0], acc) if bias is None else bias
        return self.op(
            name, x, weights, bias, zero, self.const([0], I8), pad=(0,) * 4, stride=(1, 1),
            dilation=(1, 1), acc_type=acc,
        )  # fmt: skip

    def levels(
        self, x: Value, out: DType = I32, given: int = 0, zero: int = 0, **flags: bool
    ) -> Value:
        """x − given + zero in another type, whatever it means; what does not fit saturates."""
        wide = x.dtype is not I48  # of which a multiplier has 16 bits
        bits, kind = (30, I32) if wide else (14, I16)
        return self.RESCALE(
            x, self.const([1 << bits], kind), self.const([bits], I8), self.const([given], x.dtype),
            self.const([zero], out), scale32=wide, rounding_mode="SINGLE_ROUND",
            per_channel=False, out=out, **flags,
        )  # fmt: skip

    def results(
        self,
        name: str,
        /,
        *ins: Value,
        out: Wanted = None,
        regions: Sequence[Graph] = (),
        names: Sequence[str] = (),
        loc: Loc | None = None,
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Emit an operator: all of its results.

        ``out`` settles the result's type where the operands leave it open (CAST, RESCALE).
        """
        defn = OPS.get(name)
        if defn is None:
            raise InvalidInput(f"TOSA has no operator '{name}'")
        loc = loc or self.loc
        try:
            made = make(defn, self.env, ins, normal_attrs(defn, attrs), _wanted(out), regions, loc)
        except Unsupported as refusal:
            raise Unsupported(refusal.reason, loc) from None
        self.add(made)
        for value, label in zip(made.outs, names):
            value.name = label
        return tuple(made.outs)

    def add(self, op: Op) -> None:
        """Append an operator that TOSA has; the constraints alone are asked."""
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                raise Unsupported(f"{op.name}: {reason}", op.loc)
        self.graph.ops.append(op)


def make(
    defn: OpDef,
    env: Env,
    ins: Sequence[Value],
    attrs: dict[str, Any],
    outs: Sequence[DType | TensorType] | None,
    regions: Sequence[Graph],
    loc: Loc | None,
) -> Op:
    """A checked operator with new results, in no graph yet."""
    kinds = [v.type for v in ins]
    found = resolve(defn, env, kinds, attrs, partial(known, ins), outs, tuple(regions))
    results = [Value(t, loc=loc) for t in found]
    if defn.results and defn.results[0].type == "shape":
        results[0].const = Const(shape_value(defn.name, ins, attrs))
    return Op(defn, list(ins), results, attrs, tuple(regions), loc)


def known(ins: Sequence[Value], index: int) -> Array | None:
    """The array of an operand that is known now."""
    const = ins[index].const
    return None if const is None else const.array


def shape_value(name: str, ins: Sequence[Value], attrs: dict[str, Any]) -> Array:
    """What a shape operator computes; all its operands are known."""
    args = [v.shape if v.const is None else tuple(v.const.array.reshape(-1).tolist()) for v in ins]
    if name == "DIM":
        args = [ins[0].shape]
    return np.array(evaluate(name, args, attrs), dtype=np.int64)


def shape_result(op: Op, env: Env) -> Const | None:
    """What a shape operator read from a file computes; None where that is not known or legal."""
    kinds = [v.type for v in op.ins]
    try:
        resolve(op.defn, env, kinds, op.attrs, partial(known, op.ins), [op.outs[0].type])
        if not is_sized(op):
            return None
        return Const(shape_value(op.name, op.ins, dict(op.attrs)))
    except Unsupported:
        return None


def is_sized(op: Op) -> bool:
    """Whether the sizes and shapes that an operator reads are known."""
    return all(v.type.is_known and (v.dtype is not SHAPE or v.const is not None) for v in op.ins)


def normal_attrs(defn: OpDef, attrs: dict[str, Any]) -> dict[str, Any]:
    """Attributes in table order and in their one form: ints, bools, tuples, types, names."""
    normal: dict[str, Any] = {}
    for attr in defn.attrs:
        if attr.name in attrs:
            value = attrs[attr.name]
            if attr.kind == "acc" and isinstance(value, str):
                value = dtype(value)
            elif attr.kind.startswith("i32["):
                value = tuple(map(int, value))
            elif attr.kind in ("i32", "value") and isinstance(value, np.generic):
                value = value.item()
            elif attr.kind == "bool":
                value = bool(value)
            normal[attr.name] = value
        elif attr.default is not None:
            normal[attr.name] = attr.default
    return normal | {k: v for k, v in attrs.items() if k not in normal}


def as_array(data: Any, kind: DType | None) -> Array:
    """Numbers as a contiguous array of a type; an integer that does not fit is refused."""
    source = np.asarray(data)
    if kind is None:
        if source.dtype not in _BY_ARRAY:
            raise InvalidInput(f"no TOSA type holds {source.dtype}; name the one that is meant")
        return np.ascontiguousarray(source).reshape(source.shape)
    if kind.is_int and source.size and source.dtype.kind in "iu":
        low, high = int(source.min()), int(source.max())
        if low < kind.range[0] or high > kind.range[1]:
            raise InvalidInput(f"values {low} to {high} do not fit {kind}")
    if kind.is_int and source.dtype.kind == "f":
        return as_array(_whole(source, kind), kind)
    return np.ascontiguousarray(source, dtype=kind.array).reshape(source.shape)


def _exact(data: Any, array: Array) -> Array | None:
    """Numbers in fp32 that an array of 16-bit floats has rounded; None where it has them all."""
    numbers = np.asarray(data)
    if numbers.dtype == array.dtype or numbers.size > _FEW or numbers.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):
        exact = numbers.astype(np.float32)
        is_rounded = np.array_equal(exact.astype(array.dtype), array) and (exact != array).any()
    return exact if is_rounded and np.isfinite(array.astype(np.float32)).all() else None


def _whole(source: Array, kind: DType) -> Array:
    """Floats that are whole numbers, as integers."""
    if not (np.abs(source) < 1 << 62).all() or (source != np.trunc(source)).any():
        raise InvalidInput(f"values that are not whole do not fit {kind}")
    return source.astype(np.int64)


def _wanted(out: Wanted) -> Sequence[DType | TensorType] | None:
    return (out,) if isinstance(out, (DType, TensorType)) else out

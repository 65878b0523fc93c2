"""Operators that Vela compiles wrongly beside others, kept apart by one that changes nothing.

Vela lets an operator read and write pieces of a tensor instead of copying them (SLICE, CONCAT, PAD,
TILE), and then forgets the piece where it makes something else of the operator. The simulator of
the NPU shows it; tests/npu/test_simulator_pieces.py has each fault. They are of Vela 5.2, and a
repair is exact, so a later Vela at most loses a little by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env
from tosaic.targets.ethosu.constraints import is_small_for_dilation
from tosaic.targets.ethosu.vela_workarounds.shapes import (
    flattened,
    keeps_order,
    maker,
    read_apart,
    rounded_once,
    shape_first,
    twin_of,
)

Uses = Mapping[Value, Sequence[Op]]
_PIECES = {"SLICE", "CONCAT", "PAD", "TILE"}
COPIED = {d.I8, d.I16, d.I32, d.BOOL}
_WINDOWS = {"CONV2D", "DEPTHWISE_CONV2D", "AVG_POOL2D", "MAX_POOL2D"}
_CONVOLUTIONS = {"CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D"}
_BINARY = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"}
_SHIFTS = {"LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT"}
_FUNCTIONS = {"ABS", "BITWISE_NOT", "CLZ"}
_KERNELS = {*_WINDOWS, *_CONVOLUTIONS, "REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM", "MATMUL"}
_CHAINED = 3  # sums and products that U85 computes in one operation
_BITS = {"BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_NOT"}


@dataclass(frozen=True, slots=True)
class Fault:
    """Where an operand must be a tensor of its own.

    ``lost`` is asked about an operator, the number of an operand, and who reads each value.
    """

    products: tuple[str, ...]
    lost: Callable[[Op, int, Uses], bool]


def repair(graph: Graph, env: Env, product: str) -> None:
    """Copy what would be read from or written to the wrong place."""
    faults = [fault for fault in FAULTS if product in fault.products]
    shape_first(graph)
    if product != "u85":
        graph.ops = flattened(graph.ops, env)
    graph.ops = read_apart(graph.ops)
    uses, copies, ops = _readers(graph), dict[Value, Value](), list[Op]()
    for op in graph.ops:
        op = rounded_once(op, env)
        for position, value in enumerate(op.ins):
            if value.is_const or value.dtype not in COPIED:
                continue
            if any(fault.lost(op, position, uses) for fault in faults):
                if value not in copies:
                    copies[value], made = _copy_for(op, value, uses, env)
                    ops += made
                    for each in made:
                        for source in each.ins:
                            uses.setdefault(source, []).append(each)
                op.ins[position] = copies[value]
                uses.setdefault(copies[value], []).append(op)
        ops.append(op)
        for region in op.regions:
            repair(region, env, product)
    graph.ops = ops


def _readers(graph: Graph) -> dict[Value, list[Op]]:
    """Who reads each value, with an operator for each output: a result is fused into nothing."""
    uses = graph.uses()
    for value in graph.outputs:
        uses.setdefault(value, []).append(Op(OPS["IDENTITY"], [value], [Value(value.type)], {}))
    return uses


def _copy_for(op: Op, value: Value, uses: Uses, env: Env) -> tuple[Value, list[Op]]:
    """A copy; of a part that only got another shape, before it.

    Vela then makes such parts behind the others, the last one first: as it does where none are
    copied.
    """
    shape = value.producer
    if op.name != "CONCAT" or shape is None or shape.name != "RESHAPE" or len(uses[value]) > 1:
        copied, made = copy_of(value, env)
        return copied, [made]
    copied, made = copy_of(shape.ins[0], env)
    shaped = twin_of(value)
    shaped.ins[0] = copied
    return shaped.outs[0], [made, shaped]


def copy_of(value: Value, env: Env) -> tuple[Value, Op]:
    """A CLAMP that limits nothing, a sum with 0, a value or itself: Vela keeps all of them."""
    b = Builder(env)
    if value.dtype is d.BOOL:
        made: Value = b.LOGICAL_OR(value, value)
    elif value.dtype is d.I32:
        made = b.ADD(value, b.const(np.zeros((1,) * value.type.rank), d.I32))
    elif _source(value) in _SHIFTS:  # which become part of a CLAMP
        made = b.BITWISE_OR(value, value)
    else:
        low, high = value.dtype.range
        made = b.CLAMP(value, min_val=low, max_val=high)
    made.quant = value.quant
    (op,) = b.graph.ops
    op.loc = value.producer.loc if value.producer else None
    return made, op


def _number(value: Value) -> int:
    assert value.const is not None
    return int(value.const.array.reshape(-1)[0])


def _source(value: Value) -> str:
    made = maker(value)
    return made.name if made is not None else ""


def _factor(value: Value) -> float | None:
    """By how much a RESCALE with one scale multiplies; None if something else made the value."""
    made = value.producer
    if made is None or made.name != "RESCALE" or made.attrs["per_channel"]:
        return None
    multiplier, shift = (v.const for v in made.ins[1:3])
    assert multiplier is not None
    assert shift is not None
    return int(multiplier.array[0]) / 2.0 ** int(shift.array[0])


def _rides(op: Op, uses: Uses) -> bool:
    """Whether a RESCALE to 32 bits becomes part of the operator that reads it on U55 and U65."""
    readers = uses.get(op.outs[0], ())
    if len(readers) != 1 or op.ins[0].dtype is d.I32:
        return False
    (reader,) = readers
    operands = reader.ins[:2]
    if any(len(uses.get(v, ())) != 1 for v in operands):
        return False
    factors = [_factor(v) for v in operands]
    kinds = {v.producer.ins[0].dtype for v in operands if v.producer is not None}
    if len(factors) != 2 or None in factors or len(kinds) > 1:
        return False
    low, high = sorted(f or 0.0 for f in factors)
    if reader.name in ("ADD", "SUB"):
        most = 2.0**19 if op.ins[0].dtype is d.I8 else 2.0**14
        return low < high == most or (low == high < 1 << 15 and low.is_integer())
    if reader.name in ("MAXIMUM", "MINIMUM"):
        after = uses.get(reader.outs[0], ())
        if len(after) != 1 or _factor(after[0].outs[0]) != 1:
            return False
    return reader.name in ("MUL", "MAXIMUM", "MINIMUM") and low == high == 1


def _part(op: Op, position: int, uses: Uses) -> bool:
    """The parts of a whole, written to where the first belongs or as if they were the whole."""
    if op.name not in ("CONCAT", "PAD") or (op.name == "PAD" and position):
        return False
    made = maker(op.ins[position])
    if made is None:
        return False
    first = op.name == "CONCAT" and position == 0
    summed = maker(made.ins[0]) if made.name == "RESCALE" else made
    if summed is not None and _is_several_for_one(summed):
        return True
    return made.name in ("REDUCE_MAX", "REDUCE_MIN") or (made.name == "RESCALE" and not first)


def _chained(op: Op, position: int, uses: Uses) -> bool:
    """A part that is a function of windows' results, in one operation with them."""
    if (op.name, position > 0) not in (("CONCAT", True), ("PAD", False)):
        return False
    made = _before_rescale(op.ins[position])
    if made is None or made.name not in _FUNCTIONS:
        return False
    windows = _before_rescale(made.ins[0])
    return windows is not None and windows.name in _KERNELS


def _before_rescale(value: Value) -> Op | None:
    made = maker(value)
    return maker(made.ins[0]) if made is not None and made.name == "RESCALE" else made


def _wide(op: Op, position: int, uses: Uses) -> bool:
    """A RESCALE with 32 bits becomes several operators on U55 and U65, without the place."""
    if op.name != "RESCALE" or position or _source(op.ins[0]) not in _PIECES:
        return False
    if d.I32 in (op.ins[0].dtype, op.outs[0].dtype):
        return not _rides(op, uses)
    readers = uses.get(op.outs[0], ())  # a RESCALE by 1 behind it becomes part of it
    return len(readers) == 1 and _factor(readers[0].outs[0]) == 1 and not _rides(readers[0], uses)


def _shared(op: Op, position: int, uses: Uses) -> bool:
    """A RESCALE with 32 bits is made anew for each SLICE of it, without the place."""
    made = op.ins[position].producer
    if op.name != "SLICE" or made is None or made.name != "RESCALE":
        return False
    readers, starts = uses[made.outs[0]], op.ins[1].const
    alone = sum(reader.name == "SLICE" for reader in readers) == 1
    if made.outs[0].dtype is not d.I32 and alone and starts and not starts.array.any():
        return False  # the only piece, from the start
    return d.I32 in (made.ins[0].dtype, made.outs[0].dtype) and len(readers) > 1


def _by_channel(op: Op, position: int, uses: Uses) -> bool:
    """Scales by channel are counted anew in each piece."""
    if op.name != "RESCALE" or position or not op.attrs["per_channel"]:
        return False
    return _source(op.ins[0]) in _PIECES


def _sliced(op: Op, position: int, uses: Uses) -> bool:
    """Operators that are made of others, which read from the start of the whole."""
    if position or _source(op.ins[0]) != "SLICE":
        return False
    if op.name == "RESCALE":
        return any(reader.name == "REDUCE_SUM" for reader in uses.get(op.outs[0], ()))
    if op.name in ("CONV3D", "TRANSPOSE_CONV2D", "ARGMAX") or op.name.startswith("REDUCE_"):
        return True
    return op.name in _WINDOWS and any(op.attrs["pad"][::2]) and _split(op)


def _multiplied(op: Op, position: int, uses: Uses) -> bool:
    """U55 and U65 multiply matrices by products and sums of their elements."""
    return op.name == "MATMUL" and position == 0 and _source(op.ins[0]) == "SLICE"


def _split(op: Op) -> bool:
    """Convolutions and pools of which Vela makes several."""
    gap = max(op.attrs.get("dilation", (1,)))
    is_split = gap > 2 or max(op.attrs["stride"]) > 3 or _is_several_for_one(op)
    return op.ins[0].shape[0] > 1 or is_split


def _is_several_for_one(op: Op) -> bool:
    """A depthwise convolution with several results for each channel."""
    return op.name == "DEPTHWISE_CONV2D" and op.operand("weight").shape[3] > 1


def _reshaped(op: Op, position: int, uses: Uses) -> bool:
    """A piece of a tensor of five axes or more that is then read with other axes."""
    if op.name != "RESHAPE" or position or _source(op.ins[0]) != "SLICE":
        return False
    return max(op.ins[0].type.rank, op.outs[0].type.rank) > 4


def _cut(op: Op, position: int, uses: Uses) -> bool:
    """A CAST to fewer bits that becomes part of what reads it saturates instead."""
    made = op.ins[position].producer
    return op.name in ("TABLE", "RESCALE") and made is not None and made.name == "CAST"


def _surrounded(op: Op, position: int, uses: Uses) -> bool:
    """A PAD becomes padding of the convolution, whose gaps are then longer than the input."""
    made = op.ins[position].producer
    if position or made is None or made.name != "PAD" or "dilation" not in op.attrs:
        return False
    return is_small_for_dilation(op, made.ins[0])


def _limited(op: Op, position: int, uses: Uses) -> bool:
    """A RESCALE that becomes part of what made its operand, with the limits of that."""
    made = maker(op.ins[position])
    while made is not None and made.name == "RESCALE" and _factor(made.outs[0]) == 1:
        made = maker(made.ins[0])  # which are left out
    if op.name != "RESCALE" or position or made is None or _number(op.ins[3]) != 0:
        return False
    if made.name not in {"MAX_POOL2D", "SELECT", *_BITS}:
        return False
    return op.outs[0].dtype.bits > made.outs[0].dtype.bits and (_factor(op.outs[0]) or 0) > 1


def _negated(op: Op, position: int, uses: Uses) -> bool:
    """So does one behind a NEGATE, whose result may have no place in fewer bits."""
    if op.name != "RESCALE" or position or _source(op.ins[0]) != "NEGATE":
        return False
    return op.ins[0].dtype is not d.I32 and _number(op.ins[3]) == 0 and _factor(op.outs[0]) != 1


def _resized(op: Op, position: int, uses: Uses) -> bool:
    """Nor has a RESIZE of U55 and U65 room for more bits."""
    if op.name != "RESCALE" or position or _source(op.ins[0]) != "RESIZE":
        return False
    return op.outs[0].dtype.bits > op.ins[0].dtype.bits and not _rides(op, uses)


def _left_out(op: Op, position: int, uses: Uses) -> bool:
    """A RESCALE by 1 that is left out, and then a type is read that the operator has not."""
    made = maker(op.ins[position])
    if made is None or made.name != "RESCALE" or _factor(made.outs[0]) != 1:
        return False
    before, after = made.ins[0].dtype, made.outs[0].dtype
    if op.name == "RESIZE":
        return before is not after
    if op.name in _CONVOLUTIONS and (before, after) == (d.I8, d.I16):
        return True
    if op.name == "RESCALE" and _factor(op.outs[0]) == 1:  # left out as well, across a RESHAPE
        return before is d.I48 and op.ins[0].producer is not made
    return before is d.I48 and op.name in ("CONV3D", "TRANSPOSE_CONV2D", "NEGATE")


def _shifted(op: Op, position: int, uses: Uses) -> bool:
    """Bits that are shifted out of a number count for limits that become part of the shift."""
    return op.name == "CLAMP" and _source(op.ins[0]) in _SHIFTS


def _merged(op: Op, position: int, uses: Uses) -> bool:
    """Two RESCALE of which one is by 1 become one, which saturates to the last type alone."""
    first = maker(op.ins[position])
    if op.name != "RESCALE" or position or first is None or first.name != "RESCALE":
        return False
    factor, bits = _factor(op.outs[0]), op.ins[0].dtype.bits
    if factor is None or _number(op.ins[3]) != 0:
        return False
    if factor == 1:
        return _number(op.ins[4]) != 0
    if _factor(first.outs[0]) != 1 or first.ins[0].dtype.bits < bits:
        return False
    return abs(factor) < 2.0 ** (op.outs[0].dtype.bits - bits)


def _turned(op: Op, position: int, uses: Uses) -> bool:
    """Limits or a table behind a REVERSE of what had others, which has one place for them."""
    made = maker(op.ins[position])
    if op.name not in ("CLAMP", "TABLE") or made is None or made.name != "REVERSE":
        return False
    return _source(made.ins[0]) in ("CLAMP", "TABLE")


def _tabled(op: Op, position: int, uses: Uses) -> bool:
    """A table of int16 in one chain with another, where there is room for one."""
    if op.name != "TABLE" or position or op.ins[0].dtype is not d.I16:
        return False
    return _follows_table(op.ins[0], _CHAINED)


def _follows_table(value: Value, depth: int) -> bool:
    """Whether a chain of sums and products begins with a table of int16."""
    made = maker(value)
    while made is not None and made.name == "RESCALE":
        made = maker(made.ins[0])
    if made is None or depth < 0:
        return False
    if made.name == "TABLE":
        return depth < _CHAINED and made.ins[0].dtype is d.I16
    return made.name in _BINARY and any(_follows_table(v, depth - 1) for v in made.ins[:2])


def _shaped_apart(op: Op, position: int, uses: Uses) -> bool:
    """A RESCALE of int32 by itself becomes several operators: one shape, whoever reads another."""
    made = op.ins[position].producer
    if op.name != "RESHAPE" or position or made is None or made.name != "RESCALE":
        return False
    sums = made.ins[0]
    if sums.dtype is not d.I32 or len(uses.get(op.outs[0], ())) < 2:
        return False
    return len(uses[sums]) > 1 or _source(sums) not in {*_KERNELS, *_BINARY}


def _chosen(op: Op, position: int, uses: Uses) -> bool:
    """What SELECT reads has the shape that another reader of the same tensor gave it."""
    return op.name == "SELECT" and _reshaped_for_several(op.ins[position], uses)


def _crossed(op: Op, position: int, uses: Uses) -> bool:
    """So has what U55 and U65 read where both operands are repeated."""
    if op.defn.name not in _BINARY or position > 1:
        return False
    if any(v.shape == op.outs[0].shape for v in op.ins[:2]):
        return False
    return _reshaped_for_several(op.ins[position], uses)


def _reshaped_for_several(value: Value, uses: Uses) -> bool:
    """Whether a tensor is read by others, and by someone with another shape."""
    made = value.producer
    if made is not None and keeps_order(made):
        return len(uses[made.ins[0]]) > 1 or len(uses[value]) > 1
    return len(uses[value]) > 1 and any(keeps_order(reader) for reader in uses[value])


_EVERYWHERE = (_part, _by_channel, _sliced, _reshaped, _chosen, _negated, _left_out, _merged,
               _surrounded)  # fmt: skip
_ON_OLDER = (_wide, _shared, _multiplied, _shaped_apart, _resized, _crossed)
_ON_NEWER = (_chained, _limited, _shifted, _cut, _turned, _tabled)
FAULTS = (
    *(Fault(("u55", "u65", "u85"), lost) for lost in _EVERYWHERE),
    *(Fault(("u55", "u65"), lost) for lost in _ON_OLDER),
    *(Fault(("u85",), lost) for lost in _ON_NEWER),
)

"""Constraints of Ethos-U: operator forms that it does not run, each with its reason.

Found by asking Vela 5.2.0 form by form (``tools/probe_vela.py`` asks again), and by running what
it compiled: a form that is computed wrongly, ends Vela or keeps it busy for minutes is refused
like one that it does not take. Limits of kernels are those that Vela checks for TFLite only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tosaic.ir.build import Constraint
from tosaic.ir.graph import Op, Value
from tosaic.spec import dtypes as d

_LARGEST = 65536  # of an axis that the hardware counts in 16 bits
_BATCHES = 4096  # each becomes operations of its own; 65,536 of them take Vela minutes
_CONVOLUTIONS = ("CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D")
_POOLS = ("AVG_POOL2D", "MAX_POOL2D")
_FAR_STRIDES = "a padded pool with a stride beyond 3 becomes several, which lose the padding"


@dataclass(frozen=True, slots=True)
class Form:
    """Operators that are refused where ``breaks`` holds."""

    ops: tuple[str, ...]
    breaks: Callable[[Op], bool]
    reason: str


def constraint(forms: Sequence[Form]) -> Constraint:
    """A function that gives the reason of the first form that an operator has."""
    everywhere = [form for form in forms if not form.ops]
    by_name: dict[str, list[Form]] = {}
    for form in forms:
        for name in form.ops:
            by_name.setdefault(name, []).append(form)

    def refusal(op: Op) -> str | None:
        for form in by_name.get(op.name, []) + everywhere:
            if form.breaks(op):
                return form.reason
        return None

    return refusal


def _always(op: Op) -> bool:
    return True


def _given(op: Op) -> Value:
    return op.ins[0]


def _is(*kinds: d.DType) -> Callable[[Op], bool]:
    return lambda op: op.ins[0].dtype in kinds


def _is_not(*kinds: d.DType) -> Callable[[Op], bool]:
    return lambda op: op.ins[0].dtype not in kinds


def _computed(*names: str) -> Callable[[Op], bool]:
    """Whether an operand that must be a constant is none."""
    return lambda op: not all(op.operand(name).is_const for name in names)


def _taps(op: Op) -> tuple[int, ...]:
    """Height and width of the weights of a convolution."""
    shape = op.operand("weight").shape
    return shape[:2] if op.name == "DEPTHWISE_CONV2D" else shape[-3:-1]


def _kernel(op: Op) -> tuple[int, ...]:
    """Height and width of a window, dilation included."""
    if op.name in _POOLS:
        return tuple(op.attrs["kernel"])
    gaps = op.attrs.get("dilation", (1, 1))[-2:]
    return tuple((k - 1) * n + 1 for k, n in zip(_taps(op), gaps))


def _large_kernel(op: Op) -> bool:
    height, width = _kernel(op)
    return height > 64 or height * width > 4096


def _large_pool(op: Op) -> bool:
    height, width = _kernel(op)
    return height > 256 or height * width > _LARGEST


def _far_padding(op: Op) -> bool:
    top, _, left, _ = op.attrs["pad"][-4:]
    return bool(max(top, left) > 127)


def _far_strides(op: Op) -> bool:
    """Padded windows farther apart than the hardware steps, of which Vela makes several pools."""
    return max(op.attrs["stride"]) > 3 and any(op.attrs["pad"])


def _batches(op: Op) -> bool:
    """Operators that run batch by batch, with very many of them."""
    shape = _given(op).shape
    return len(shape) >= 4 and math.prod(shape[:-3]) > _BATCHES


def _cut(op: Op) -> bool:
    """Joins and cuts inside of very many batches; along the batches they are whole copies."""
    shape = op.outs[0].shape
    return len(shape) >= 4 and math.prod(shape[:-3]) > _BATCHES


def _last_axis(op: Op) -> bool:
    return int(op.attrs["axis"]) == _given(op).type.rank - 1


def _small_for_dilation(op: Op) -> bool:
    return is_small_for_dilation(op, _given(op))


def is_small_for_dilation(op: Op, given: Value) -> bool:
    """Whether Vela takes a convolution apart by its dilation, and parts of the input are empty.

    It does so along both axes where the dilation of one exceeds 2, for which there is no kernel.
    """
    dilation = op.attrs["dilation"][-2:]
    axes = zip(given.shape[-3:-1], dilation, _taps(op))
    return max(dilation) > 2 and any(gap > size and taps > 1 for size, gap, taps in axes)


def _cut_to_one(op: Op) -> bool:
    """A transposed convolution of several rows or columns of whose result one is left."""
    sizes = zip(op.attrs["stride"], _given(op).shape[1:3], op.outs[0].shape[1:3])
    return any(stride > 1 and size > 1 and left == 1 for stride, size, left in sizes)


def _made_by(op: Op) -> Op | None:
    return _given(op).producer


def _scales_of_computed(op: Op) -> bool:
    """Scales by channel of a product of two tensors, neither of which is constant."""
    made = _made_by(op)
    if made is None or not op.attrs["per_channel"]:
        return False
    return made.name == "MATMUL" or (made.name in _CONVOLUTIONS and not made.ins[1].is_const)


EVERY = (
    Form(("RESCALE",), _computed("multiplier", "shift"),
         "the multiplier and shift must be constants; others end Vela"),
    Form(("MUL",), lambda op: _given(op).dtype is not d.I32 and _shift(op) != 0,
         "the NPU shifts products of int32 only"),
    Form(("CONV2D", "DEPTHWISE_CONV2D", "CONV3D", *_POOLS), _far_padding,
         "padding at the top and left has at most 127 elements; more is computed wrongly"),
    Form(("CONV2D", "DEPTHWISE_CONV2D", "CONV3D"), _small_for_dilation,
         "a dilation above 2 on an input that is shorter than a dilation is computed wrongly"),
    Form(("TRANSPOSE_CONV2D",), _cut_to_one,
         "a transposed convolution that is cut to one row or column is computed wrongly"),
    Form(_CONVOLUTIONS, _large_kernel,
         "a kernel has at most 64 rows and 4096 elements, dilation included"),
    Form(("MAX_POOL2D",), _far_strides, _FAR_STRIDES),
    Form(_POOLS, _large_pool, "a pool's window has at most 256 rows and 65536 elements"),
    Form(_POOLS, lambda op: max(_given(op).shape[1:3]) > _LARGEST,
         "pools of more than 65536 rows or columns take Vela seconds or more"),
    Form(("CONV2D", "CONV3D", "TRANSPOSE_CONV2D"), lambda op: _given(op).shape[-1] > _LARGEST,
         "there are at most 65536 input channels"),
    Form(("RESIZE",), lambda op: _scale(op)[0] == _scale(op)[1] and _scale(op)[2] == _scale(op)[3],
         "a resize to the same size loses the RESCALE behind it; leave it out"),
    Form((*_POOLS, *_CONVOLUTIONS, "RESIZE"), _batches,
         "each batch becomes an operation of its own, and there are too many"),
    Form(("CONCAT", "PAD", "TILE"), _cut,
         "each batch becomes an operation of its own, and there are too many"),
    Form(("CONV2D", "DEPTHWISE_CONV2D"), lambda op: max(op.attrs["stride"]) > 3,
         "each pixel of a convolution with a stride above 3 becomes an operation of its own"),
    Form(("REDUCE_MAX", "REDUCE_MIN"), _last_axis,
         "an extreme over the last axis takes four times as long as over another"),
    Form(("CUSTOM",), _always, "Vela takes no custom operators"),
    Form(("VARIABLE", "VARIABLE_READ", "VARIABLE_WRITE"), _always,
         "an Ethos-U command stream keeps no variables"),
)  # fmt: skip


def is_shifted_far(op: Op) -> bool:
    """A product of int32 whose shift is so long that Vela has it rounded twice."""
    return _given(op).dtype is d.I32 and _shift(op) > 31


def constant_factor(op: Op) -> tuple[Value, int] | None:
    """The tensor of a product and the number it is multiplied by, if a RESCALE computes that."""
    for value, factor in (op.ins[:2], op.ins[1::-1]):
        if factor.const is not None and factor.type.size == 1 and value.shape == op.outs[0].shape:
            number = int(factor.const.array.reshape(-1)[0])
            if number >= 0:
                return value, number
    return None


def _shift(op: Op) -> int:
    const = op.ins[2].const
    return 0 if const is None else int(const.array.reshape(-1)[0])


def _scale(op: Op) -> tuple[int, ...]:
    return _numbers(op.ins[1])


def _numbers(value: Value) -> tuple[int, ...]:
    return () if value.const is None else tuple(int(n) for n in value.const.array)


def _holds_bool(op: Op) -> bool:
    return any(v.dtype is d.BOOL for v in (*op.ins, *op.outs))


def _narrows(op: Op) -> bool:
    return op.outs[0].dtype.bits < op.ins[0].dtype.bits


def _long_sum(op: Op) -> bool:
    axis, shape = int(op.attrs["axis"]), _given(op).shape
    return axis != len(shape) - 1 and shape[axis] > _LARGEST


def _long_transpose(op: Op) -> bool:
    """Axes beyond the limit, where elements move at all."""
    shape = _given(op).shape
    moved = [p for p in op.attrs["perms"] if shape[p] != 1]
    return moved != sorted(moved) and max(shape) > _LARGEST


def _batched(op: Op) -> bool:
    return math.prod(_given(op).shape[:-3]) > 1


def _argmax(op: Op) -> bool:
    shape, axis = _given(op).shape, op.attrs["axis"]
    return axis != len(shape) - 1 or shape[-1] > 127 or _batched(op)


def _rescale48(op: Op) -> bool:
    """int48 exists inside of a convolution that rescales its own sums, and nowhere else."""
    source = _given(op)
    made = source.producer
    return source.dtype is d.I48 and (made is None or made.name not in _CONVOLUTIONS)


def _transposed_stride(op: Op) -> bool:
    (height, width), (_, rows, columns, _) = op.attrs["stride"], op.operand("weight").shape
    _, high, wide, _ = _given(op).shape
    if (height, width) in ((1, 1), (2, 2)):
        return False
    return not (((height, width) == (1, 2) and high == rows == 1)
                or ((height, width) == (2, 1) and wide == columns == 1))  # fmt: skip


def _cut_from_one(op: Op) -> bool:
    """A transposed convolution of one row or column, with more in its kernel, of which one is left.

    Vela does not take it.
    """
    sizes = zip(op.attrs["stride"], _given(op).shape[1:3], _kernel(op), op.outs[0].shape[1:3])
    return any(stride > 1 < taps and size == left == 1 for stride, size, taps, left in sizes)


def _padded_mean(op: Op) -> bool:
    return any(op.attrs["pad"]) and max(op.attrs["kernel"]) > 8


def _resize(op: Op) -> bool:
    """What is no repetition of one pixel, and not both axes 2, 4 or 8 times as long."""
    up, down, across, along = _scale(op)
    offset, border = _numbers(op.ins[2]), _numbers(op.ins[3])
    if (up, down) != (across, along) or op.attrs["mode"] != "NEAREST_NEIGHBOR":
        return True
    if _given(op).shape[0] > 1:
        return True
    if _given(op).shape[1:3] == (1, 1):
        return False
    factor, rest = divmod(up, down)
    if rest or factor not in (2, 4, 8):
        return True
    centred = down == 2 and offset == (1 - factor,) * 2 and border == (factor - 1,) * 2
    return not centred and not (down == 1 and offset == (0, 0) and border == (0, 0))


def _whole_factors(op: Op) -> bool:
    """Operands of a sum scaled by different whole numbers, which are applied wrongly."""
    factors = [_factor(v) for v in op.ins]
    return None not in factors and factors[0] != factors[1] and max(
        f or 0.0 for f in factors) < 1 << 14  # fmt: skip


def _factor(value: Value) -> float | None:
    """By how much a value is scaled up from int8 or int16; None if not by a whole number."""
    made = value.producer
    if made is None or made.name != "RESCALE" or made.ins[0].dtype not in (d.I8, d.I16):
        return None
    multiplier, shift = (v.const for v in made.ins[1:3])
    if multiplier is None or shift is None or multiplier.array.size != 1:
        return None
    factor = int(multiplier.array[0]) / 2.0 ** int(shift.array[0])
    return factor if factor.is_integer() else None


OLDER = (
    Form(("AVG_POOL2D",), _far_strides, _FAR_STRIDES),
    Form((), _holds_bool, "Ethos-U55 and U65 have no bool tensors"),
    Form(("EQUAL", "GREATER", "GREATER_EQUAL", "SELECT", "LOGICAL_AND", "LOGICAL_OR",
          "LOGICAL_XOR", "LOGICAL_NOT", "REDUCE_ALL", "REDUCE_ANY"), _always,
         "Ethos-U55 and U65 have no comparisons, SELECT or logic"),
    Form(("BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_NOT"), _always,
         "Ethos-U55 and U65 have no bitwise logic"),
    Form(("INTDIV",), _always, "Ethos-U55 and U65 do not divide"),
    Form(("LOGICAL_RIGHT_SHIFT",), _always, "Ethos-U55 and U65 have no logical right shift"),
    Form(("LOGICAL_LEFT_SHIFT", "ARITHMETIC_RIGHT_SHIFT"), _is_not(d.I32),
         "Ethos-U55 and U65 shift int32 only"),
    Form(("ARITHMETIC_RIGHT_SHIFT",), lambda op: not op.attrs["round"],
         "Ethos-U55 and U65 round when they shift right"),
    Form(("GATHER", "SCATTER"), _always, "Ethos-U55 and U65 do not gather or scatter"),
    Form(("COND_IF", "WHILE_LOOP"), _always, "Ethos-U55 and U65 have no control flow"),
    Form(("CAST",), _narrows, "Ethos-U55 and U65 saturate where a narrowing CAST wraps"),
    Form(("REDUCE_MAX", "REDUCE_MIN"), _is(d.I32),
         "Ethos-U55 and U65 find extremes of int8 and int16 only"),
    Form(("REDUCE_MIN",), _always,
         "a RESCALE of the smallest element fails on Ethos-U55 and U65"),
    Form(("REDUCE_SUM",), _long_sum, "Ethos-U55 and U65 sum at most 65536 elements of an axis"),
    Form(("ARGMAX",), _is_not(d.I8), "Ethos-U55 and U65 have ARGMAX of int8 only"),
    Form(("ARGMAX",), _argmax,
         "Ethos-U55 and U65 have ARGMAX over up to 127 elements of the last axis"),
    Form(("REVERSE",), _last_axis, "Ethos-U55 and U65 do not reverse the last axis"),
    Form(("TRANSPOSE",), _long_transpose, "Ethos-U55 and U65 transpose axes of up to 65536"),
    Form(("RESCALE",), _rescale48,
         "Ethos-U55 and U65 rescale int48 only where a convolution makes it"),
    Form((*_CONVOLUTIONS,), _computed("weight"), "Ethos-U55 and U65 need constant weights"),
    Form(("TRANSPOSE_CONV2D",), _is_not(d.I8),
         "transposed convolutions are for int8 on Ethos-U55 and U65"),
    Form(("TRANSPOSE_CONV2D",), _transposed_stride,
         "transposed convolutions have strides of 1 or 2 on Ethos-U55 and U65"),
    Form(("TRANSPOSE_CONV2D",), _cut_from_one,
         "Ethos-U55 and U65 do not cut a transposed convolution of one row or column to one"),
    Form(("TRANSPOSE_CONV2D",), lambda op: max(op.attrs["out_pad"][::2]) > 0,
         "Ethos-U55 and U65 compute a transposed convolution with padding before it wrongly"),
    Form(("CONV3D",), lambda op: op.operand("weight").shape[1] > 1,
         "Ethos-U55 and U65 have no convolutions over three axes"),
    Form(("CONV3D",), lambda op: op.ins[0].dtype is d.I16 and op.attrs["stride"][0] > 1,
         "Ethos-U55 and U65 leave out no images between those of int16 that they convolve"),
    Form(("AVG_POOL2D",), _padded_mean,
         "padded average pools have windows of up to 8×8 on Ethos-U55 and U65"),
    Form(("MATMUL",), _is_not(d.I8), "Ethos-U55 and U65 multiply matrices of int8 only"),
    Form(("MATMUL",), lambda op: max(_given(op).shape[2], op.outs[0].shape[2]) > _LARGEST,
         "Ethos-U55 and U65 multiply matrices of up to 65536 columns"),
    Form(("RESIZE",), _resize,
         "Ethos-U55 and U65 resize one image to 2, 4 or 8 times its size, by nearest pixels"),
    Form(("ADD", "SUB"), _whole_factors,
         "Ethos-U55 and U65 scale operands of a sum by different whole numbers wrongly"),
)  # fmt: skip

NEWER = (
    Form(("RESCALE",), _scales_of_computed,
         "Ethos-U85 takes the first of scales by channel for all where the weights are computed"),
)  # fmt: skip

# Where the NPU has fast memory of its own beside the arena.
DEDICATED = (
    Form(("COND_IF", "WHILE_LOOP"), _always,
         "with dedicated SRAM a branch or a loop uses memory that Vela does not ask for; "
         "another memory mode takes it"),
)  # fmt: skip

FAMILIES: dict[str, tuple[Form, ...]] = {
    "u55": (*EVERY, *OLDER),
    "u65": (*EVERY, *OLDER),
    "u85": (*EVERY, *NEWER),
}

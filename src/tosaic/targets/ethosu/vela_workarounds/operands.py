"""Rows whose remedy is a copy of an operand.

Vela lets an operator read and write pieces of a tensor (SLICE, CONCAT, PAD, TILE) instead of
copying them, and fuses operators; then it forgets the piece, a limit, a type or a shape.
"""

from __future__ import annotations

import math

from tosaic.ir.graph import Op, Value
from tosaic.spec import dtypes as d
from tosaic.targets.ethosu.constraints import is_small_for_dilation
from tosaic.targets.ethosu.vela_workarounds.rows import (
    NEWER,
    OLDER,
    SHIFTS,
    SMALL,
    Operand,
    Use,
    factor,
    fused_into,
    is_fused_forward,
    keeps_order,
    maker,
    number,
    source,
)

_WINDOWS = {"CONV2D", "DEPTHWISE_CONV2D", "AVG_POOL2D", "MAX_POOL2D"}
_CONVOLUTIONS = {"CONV2D", "DEPTHWISE_CONV2D", "CONV3D", "TRANSPOSE_CONV2D"}
_KERNELS = {*_WINDOWS, *_CONVOLUTIONS, "REDUCE_MAX", "REDUCE_MIN", "REDUCE_SUM", "MATMUL"}
_BINARY = {"ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM"}
_BITS = {"BITWISE_AND", "BITWISE_OR", "BITWISE_XOR", "BITWISE_NOT"}
_FUNCTIONS = {"RESCALE", "TABLE", "CLAMP", "NEGATE", "ABS"}
_CHAIN_STARTS = {*_BINARY, *_FUNCTIONS, "REDUCE_SUM", "MATMUL"}  # seen in front of a RESHAPE
_CHAINED = 3  # sums and products that U85 computes in one operation


def _before_rescale(value: Value) -> Op | None:
    made = maker(value)
    return maker(made.ins[0]) if made is not None and made.name == "RESCALE" else made


def _multiplies_channels(op: Op | None) -> bool:
    """A depthwise convolution with several results for each channel."""
    if op is None or op.name != "DEPTHWISE_CONV2D":
        return False
    return op.operand("weight").shape[3] > 1


def _is_first(use: Use) -> bool:
    return use.position == 0


def _is_later_part(use: Use) -> bool:
    return use.op.name == "PAD" or use.position > 0


def _is_of_pieces(use: Use) -> bool:
    """A RESCALE of what is itself written in parts, for a CONCAT whose parts are no runs."""
    made, axis = use.made, use.op.attrs.get("axis", 0)
    if made is None or all(n == 1 for n in use.value.shape[:axis]):
        return False
    return source(made.ins[0]) in {"CONCAT", "PAD", "TILE"}


def _is_function_of_windows(use: Use) -> bool:
    made = _before_rescale(use.value) if _is_later_part(use) else None
    if made is None or made.name not in {"ABS", "BITWISE_NOT", "CLZ"}:
        return False
    windows = _before_rescale(made.ins[0])
    return windows is not None and windows.name in _KERNELS


def _is_several(use: Use) -> bool:
    """A RESCALE with 32 bits by itself, or with one by 1 to 32 bits behind it."""
    op, uses = use.op, use.uses
    if d.I32 in (op.ins[0].dtype, op.outs[0].dtype):
        return not is_fused_forward(op, uses)
    readers = use.readers
    while len(readers) == 1 and keeps_order(readers[0]):
        readers = uses.get(readers[0].outs[0], ())
    if len(readers) != 1 or factor(readers[0].outs[0]) != 1:
        return False
    return not is_fused_forward(readers[0], uses)


def _is_one_of_several_pieces(use: Use) -> bool:
    made = use.value.producer
    if made is None or made.name != "RESCALE":
        return False
    readers, starts = use.uses[made.outs[0]], use.op.ins[1].const
    alone = sum(reader.name == "SLICE" for reader in readers) == 1
    if made.outs[0].dtype is not d.I32 and alone and starts and not starts.array.any():
        return False  # the only piece, from the start
    if d.I32 not in (made.ins[0].dtype, made.outs[0].dtype):
        return False
    return len(readers) > 1 or len(use.readers) > 1


def _is_padded_and_split(use: Use) -> bool:
    """Padded convolutions and pools of which Vela makes several."""
    return use.position == 0 and any(use.op.attrs["pad"][::2]) and _is_split(use.op)


def _is_padded_for_split(use: Use) -> bool:
    return any(op.name in _CONVOLUTIONS and _is_split(op) for op in use.readers)


def _is_split(op: Op) -> bool:
    far = max(op.attrs.get("dilation", (1,))) > 2 or max(op.attrs["stride"]) > 3
    return op.ins[0].shape[0] > 1 or far or _multiplies_channels(op)


def _is_empty_when_padded(use: Use) -> bool:
    made = use.value.producer
    if use.position or made is None or made.name != "PAD":
        return False
    return is_small_for_dilation(use.op, made.ins[0])


def _fuses_backward(use: Use) -> bool:
    """Whether Vela may fuse a RESCALE with what makes its operand: not if that has a zero point."""
    return use.position == 0 and number(use.op.ins[3]) == 0


def _is_wider_than_its_source(use: Use) -> bool:
    if not _fuses_backward(use) or (factor(use.op.outs[0]) or 0) <= 1:
        return False
    kinds = [v for v in fused_into(use.value) if v.name in {"MAX_POOL2D", "SELECT", *_BITS}]
    return any(use.op.outs[0].dtype.bits > made.outs[0].dtype.bits for made in kinds)


def _is_of_negated(use: Use) -> bool:
    if not _fuses_backward(use) or use.value.dtype is d.I32 or factor(use.op.outs[0]) == 1:
        return False
    return any(made.name == "NEGATE" for made in fused_into(use.value))


def _is_wider_than_an_image(use: Use) -> bool:
    op = use.op
    return op.outs[0].dtype.bits > op.ins[0].dtype.bits and not is_fused_forward(op, use.uses)


def _has_other_type_before(use: Use) -> bool:
    op, made = use.op, use.made
    if op.name == "RESCALE":  # left out as well, or fused with the parts of a CONCAT or PAD
        parts = made is not None and made.name in ("CONCAT", "PAD")
        return (parts or factor(op.outs[0]) == 1) and any(
            factor(v.outs[0]) == 1 and v.ins[0].dtype is d.I48 for v in fused_into(use.value)
        )
    if made is None or made.name != "RESCALE" or factor(made.outs[0]) != 1:
        return False
    before, after = made.ins[0].dtype, made.outs[0].dtype
    if op.name == "RESIZE":
        return before is not after
    if op.name in _CONVOLUTIONS and (before, after) == (d.I8, d.I16):
        return True
    return before is d.I48 and op.name in ("CONV3D", "TRANSPOSE_CONV2D", "NEGATE")


def _is_scaled_from_48_bits(use: Use) -> bool:
    if not _fuses_backward(use) or not use.op.attrs["scale32"]:
        return False
    firsts = [made for made in fused_into(use.value) if made.name == "RESCALE"]
    return any(factor(f.outs[0]) == 1 and f.ins[0].dtype is d.I48 for f in firsts)


def _saturates_once(use: Use) -> bool:
    scale, bits = factor(use.op.outs[0]), use.value.dtype.bits
    if scale is None or not _fuses_backward(use):
        return False
    firsts = [made for made in fused_into(use.value) if made.name == "RESCALE"]
    if scale == 1:
        return bool(firsts) and number(use.op.ins[4]) != 0
    if abs(scale) >= 2.0 ** (use.op.outs[0].dtype.bits - bits):
        return False
    return any(factor(f.outs[0]) == 1 and f.ins[0].dtype.bits >= bits for f in firsts)


def _is_shaped_for_several(use: Use) -> bool:
    made, given = use.value.producer, use.readers
    readers = given
    while len(readers) == 1 and factor(readers[0].outs[0]) == 1:  # which is left out
        readers = use.uses.get(readers[0].outs[0], ())
    if made is None or made.name != "RESCALE" or len(readers) < 2:
        return False
    sums = made.ins[0]
    if sums.dtype is not d.I32:
        return False
    is_left_out, fused = readers is not given, {*_KERNELS, *_BINARY} - {"TRANSPOSE_CONV2D"}
    return is_left_out or len(use.uses[sums]) > 1 or source(sums) not in fused


def _is_read_by_others(use: Use) -> bool:
    """Whether a value has another consumer, in whatever shape."""
    value, made = use.value, use.value.producer
    if made is not None and keeps_order(made) and len(use.uses[made.ins[0]]) > 1:
        return True
    return len(use.uses[value]) > 1


def _is_limited_before(use: Use) -> bool:
    limits = tuple(use.op.attrs.get(name) for name in ("min_val", "max_val"))
    if use.made is None or limits == tuple(use.value.dtype.range):  # which is a copy
        return False
    return source(use.made.ins[0]) in ("CLAMP", "TABLE")


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


def _broadcasts_both(use: Use) -> bool:
    return use.position < 2 and _is_crossed(use.op) and _has_two_shapes(use)


def _is_crossed(op: Op) -> bool:
    """Whether an operator of two operands broadcasts both."""
    return op.name in _BINARY and all(v.shape != op.outs[0].shape for v in op.ins[:2])


def _is_scaled_for_crossed(use: Use) -> bool:
    readers = [*use.readers]
    for reader in readers:
        readers += use.uses.get(reader.outs[0], ()) if keeps_order(reader) else ()
    return any(map(_is_crossed, readers)) and _has_two_shapes(use)


def _has_two_shapes(use: Use) -> bool:
    """Whether a tensor is read by others, and by someone with another shape."""
    value, uses, made = use.value, use.uses, use.value.producer
    if made is None or not keeps_order(made):
        return len(uses[value]) > 1 and any(keeps_order(reader) for reader in uses[value])
    while made is not None and keeps_order(made):
        if len(uses[value]) > 1 or len(uses[made.ins[0]]) > 1:
            return True
        value, made = made.ins[0], made.ins[0].producer
    return False


def _meets_another_shape(use: Use) -> bool:
    """Whether a RESHAPE lies before an operand, and one in a chain before the other."""
    if use.position > 1:
        return False
    shaped = _shaped_on_the_way(use.value, 0)
    other = _shaped_on_the_way(use.op.ins[1 - use.position], _CHAINED)
    if shaped in (None, other) or other is None or source(other) not in _CHAIN_STARTS:
        return False
    if _in_bricks(shaped.shape) <= _in_bricks(use.value.shape):
        return False
    return shaped.producer is not None or len(use.uses[shaped]) > 1


def _in_bricks(shape: tuple[int, ...]) -> int:
    """Elements of a tensor in memory whose last axis is a multiple of 16."""
    return math.prod(shape[:-1]) * -(-shape[-1] // 16) * 16


def _shaped_on_the_way(value: Value, sums: int) -> Value | None:
    """What a chain of functions and so many sums reads, if it has another last axis there."""
    given, made = value.shape[-1:], value.producer
    while made is not None and (keeps_order(made) or made.name in _FUNCTIONS):
        value, made = made.ins[0], made.ins[0].producer
        if value.shape[-1:] != given:
            return value
    if made is None or not sums or made.name not in _BINARY:
        return None
    found = (_shaped_on_the_way(v, sums - 1) for v in made.ins[:2])
    return next((v for v in found if v is not None), None)


_PARTS, _PIECES = "CONCAT PAD", "SLICE CONCAT PAD TILE"
OPERANDS = (
    Operand("A maximum or minimum is written to its CONCAT as if it were the whole.",
            _PARTS, "REDUCE_MAX REDUCE_MIN", test="a maximum into a CONCAT"),
    Operand("A RESCALE is written to its CONCAT where the first part belongs.",
            _PARTS, "RESCALE", _is_later_part, test="a RESCALE to int32 into a CONCAT"),
    Operand("A RESCALE of a CONCAT, PAD or TILE is fused with each part, which forgets its CONCAT.",
            "CONCAT", "RESCALE", _is_of_pieces, test="a RESCALE of tiles into a CONCAT"),
    Operand("A depthwise convolution with a channel multiplier forgets its place in a CONCAT.",
            _PARTS, when=lambda use: _multiplies_channels(_before_rescale(use.value)),
            test="two channels for one into a CONCAT"),
    Operand("A function that is chained to a convolution or pool forgets its place in a CONCAT.",
            _PARTS, when=_is_function_of_windows, products=NEWER,
            test="sizes of sums into a CONCAT"),
    Operand("Scales by channel of a RESCALE are counted anew in each piece that it reads.",
            "RESCALE", _PIECES, lambda use: bool(use.op.attrs["per_channel"]),
            test="scales by channel of a CONCAT"),
    Operand("A RESCALE with 32 bits becomes several operators, which read the whole tensor.",
            "RESCALE", _PIECES, _is_several, products=OLDER, test="a piece as int32"),
    Operand("A RESCALE with 32 bits is made anew for each SLICE of it, at the wrong place.",
            "SLICE", when=_is_one_of_several_pieces, products=OLDER,
            test="two pieces of one RESCALE"),
    Operand("A RESCALE that is fused with a REDUCE_SUM reads from the start of the whole tensor.",
            "RESCALE", "SLICE", lambda use: any(op.name == "REDUCE_SUM" for op in use.readers),
            test="a sum of a piece of int16"),
    Operand("An operator that is made of several others reads from the start of the whole.",
            "CONV3D TRANSPOSE_CONV2D ARGMAX REDUCE_SUM REDUCE_MAX REDUCE_MIN REDUCE_ALL REDUCE_ANY",
            "SLICE", _is_first, test="a maximum of a piece of five axes"),
    Operand("A padded convolution or pool that is split reads from the start of the whole.",
            "CONV2D DEPTHWISE_CONV2D AVG_POOL2D MAX_POOL2D", "SLICE", _is_padded_and_split,
            test="a padded convolution of a piece, in batches"),
    Operand("A PAD that is fused with one that is split is forgotten, or the piece before it.",
            "PAD", "SLICE", _is_padded_for_split,
            test="a convolution of a piece that a PAD surrounds, in batches"),
    Operand("A product of matrices reads its first operand from the start of the whole.",
            "MATMUL", "SLICE", _is_first, products=OLDER, test="a product with a piece"),
    Operand("A piece of a tensor of five axes is at the wrong place when it has other axes.",
            "RESHAPE", "SLICE",
            lambda use: max(use.value.type.rank, use.op.outs[0].type.rank) > 4,
            test="a piece with more axes"),
    Operand("A PAD is fused with a dilated convolution, parts of which then have no input.",
            "CONV2D DEPTHWISE_CONV2D CONV3D", when=_is_empty_when_padded,
            test="gaps longer than what a PAD surrounds"),
    Operand("A RESCALE of int32 by itself is several operators in the shape of one consumer.",
            "RESHAPE", "RESCALE", _is_shaped_for_several, products=OLDER,
            test="a RESCALE of int32 with another shape for two"),
    Operand("SELECT reads a tensor in the shape that another consumer gave it.",
            "SELECT", when=_has_two_shapes, test="a choice of a tensor with two shapes"),
    Operand("Where both operands are broadcast, each is read in another consumer's shape.",
            "ADD SUB MUL MAXIMUM MINIMUM", when=_broadcasts_both, products=OLDER,
            test="differences of a tensor with two shapes"),
    Operand("Where both are scaled and broadcast, each is read in another consumer's shape.",
            "RESCALE", when=_is_scaled_for_crossed, products=OLDER,
            test="differences of scaled tensors with two shapes"),
    Operand("A RESCALE is fused with a NEGATE, whose result has no room for -(-128).",
            "RESCALE", when=_is_of_negated, test="less than nothing, scaled"),
    Operand("A RESCALE to more bits is fused with an operator that saturates to fewer.",
            "RESCALE", when=_is_wider_than_its_source, products=NEWER,
            test="a maximum as more bits"),
    Operand("A RESCALE to more bits is fused with a RESIZE, which has no room for them.",
            "RESCALE", "RESIZE", _is_wider_than_an_image, products=OLDER,
            test="an enlarged image as int32"),
    Operand("A RESCALE by 1 is left out before an operator that does not read the type before.",
            "RESIZE RESCALE NEGATE CONV2D DEPTHWISE_CONV2D CONV3D TRANSPOSE_CONV2D",
            when=_has_other_type_before, test="an int48 by 1 in an enlarged image"),
    Operand("Two RESCALE of which one is by 1 become one, which saturates to the last type.",
            "RESCALE", when=_saturates_once, test="sums that saturate before a wider scale"),
    Operand("A RESCALE with 32 bits and one of int48 by 1 become one, for which there are 16.",
            "RESCALE", when=_is_scaled_from_48_bits, products=NEWER,
            test="an int48 by 1, scaled with 32 bits"),
    Operand("A CLAMP or RESCALE that is fused with a shift limits bits that are shifted out.",
            "CLAMP RESCALE", " ".join(SHIFTS), lambda use: use.value.dtype is not d.I32,
            products=NEWER, test="limits behind a shift"),
    Operand("A CAST to fewer bits that is fused with its consumer saturates and does not wrap.",
            "TABLE RESCALE", products=NEWER,
            when=lambda use: any(made.name == "CAST" for made in fused_into(use.value)),
            test="a table of what a CAST wraps"),
    Operand("Limits or a table behind a REVERSE replace those before it.",
            "CLAMP TABLE", "REVERSE", _is_limited_before, products=NEWER,
            test="limits behind a table turned round"),
    Operand("A table that is fused with a TRANSPOSE lies outside of the smaller internal memory.",
            "TABLE", "TRANSPOSE", products=SMALL, test="a table of a turned tensor"),
    Operand("A table is outside of it, too, that is fused with two channels for one.",
            "TABLE", when=lambda use: _multiplies_channels(_before_rescale(use.value)),
            products=SMALL, test="a table of two channels for one"),
    Operand("A WHILE_LOOP overwrites a value that another operator has yet to read.",
            "WHILE_LOOP", when=_is_read_by_others, products=NEWER,
            test="a value that a loop changes and another reads"),
    Operand("Two tables of int16 are chained, and there is room for one.",
            "TABLE", products=NEWER, test="two tables of int16 with a product between",
            when=lambda use: use.value.dtype is d.I16 and _follows_table(use.value, _CHAINED)),
    Operand("Memory of a reshaped operand has the size of its last shape, beside a reshaped chain.",
            " ".join(sorted(_BINARY)), products=NEWER, when=_meets_another_shape, rare=True,
            test="a sum of two tensors with another shape"),
)  # fmt: skip

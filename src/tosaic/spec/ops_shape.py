"""Shape operators (TOSA 1.1) and what they compute, which is always known at compile time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tosaic.errors import Unsupported
from tosaic.spec import infer
from tosaic.spec.dtypes import BLOCKS
from tosaic.spec.ops_tensor import FLOAT_NEEDS
from tosaic.spec.table import Row, Shapes, Site, op, parse_rows

Shape = tuple[int, ...]
_BIGGEST = 1 << 63


def _pairwise(site: Site) -> Shapes:
    a, b = (t.shape for _, t in site.ins)
    if a != b:
        raise Unsupported(f"{site.op.name}: shapes have lengths {a[0]} and {b[0]}")
    return a


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise Unsupported(f"{name}: {value} must be 1 or more")
    return value


def _floor_div(a: int, b: int) -> int:
    return a // _positive("DIV_FLOOR_SHAPE", b)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // _positive("DIV_CEIL_SHAPE", b))


def _mod(a: int, b: int) -> int:
    return a % _positive("MOD_SHAPE", b)


def _exp2(a: int) -> int:
    if not 0 <= a < 63:
        raise Unsupported(f"EXP2_SHAPE: 2^{a} is not a size")
    return 1 << a


def _log2_ceil(a: int) -> int:
    return (_positive("LOG2_CEIL_SHAPE", a) - 1).bit_length()


def _log2_floor(a: int) -> int:
    return _positive("LOG2_FLOOR_SHAPE", a).bit_length() - 1


_BINARY: Mapping[str, tuple[int, Callable[[int, int], int]]] = {
    "ADD_SHAPE": (81, operator.add),
    "SUB_SHAPE": (82, operator.sub),
    "MUL_SHAPE": (83, operator.mul),
    "MAX_SHAPE": (88, max),
    "MIN_SHAPE": (89, min),
    "MOD_SHAPE": (90, _mod),
    "DIV_CEIL_SHAPE": (91, _ceil_div),
    "DIV_FLOOR_SHAPE": (92, _floor_div),
}
_UNARY: Mapping[str, tuple[int, Callable[[int], int]]] = {
    "EXP2_SHAPE": (85, _exp2),
    "LOG2_CEIL_SHAPE": (86, _log2_ceil),
    "LOG2_FLOOR_SHAPE": (87, _log2_floor),
}


def evaluate(name: str, args: Sequence[Shape], attrs: Mapping[str, Any]) -> Shape:
    """The value of a shape operator; DIM takes the shape of its operand as its argument."""
    if name in _BINARY:
        result = tuple(map(_BINARY[name][1], *args))
    elif name in _UNARY:
        result = tuple(map(_UNARY[name][1], args[0]))
    elif name == "DIM":
        result = (args[0][attrs["axis"]],)
    elif name == "CONCAT_SHAPE":
        result = tuple(n for arg in args for n in arg)
    else:
        (start,), (size,) = args[1:]
        result = args[0][start : start + size]
    if any(not -_BIGGEST <= n < _BIGGEST for n in result):
        raise Unsupported(f"{name}: {list(result)} does not fit 64 bits")
    return result


def _dim(site: Site) -> Shapes:
    infer.check_axis(site, len(site.shape("input1")))
    return (1,)


def _concat(site: Site) -> Shapes:
    lengths = [t.shape[0] for t in site.list("input")]
    if not lengths or 0 in lengths:
        raise Unsupported(f"{site.op.name}: every shape must have an element")
    return (sum(lengths),)


def _slice(site: Site) -> Shapes:
    start, size = site.const("start"), site.const("size")
    if start is None or size is None:
        return None
    if start[0] < 0 or size[0] < 1 or start[0] + size[0] > site.shape("input")[0]:
        length = site.shape("input")[0]
        raise Unsupported(
            f"{site.op.name}: {size[0]} elements from {start[0]} do not lie in {length}"
        )
    return (size[0],)


def _check_equal(site: Site) -> str | None:
    a, b = site.const("input1"), site.const("input2")
    if a is None or b is None:
        return None
    alike = len(a) == len(b) and all(
        x == y or (site["allow_broadcast"] and 1 in (x, y)) for x, y in zip(a, b)
    )
    return None if alike else f"{list(a)} and {list(b)} are not equal"


for _name in _BINARY:
    op(
        _name, _BINARY[_name][0], "input1:shape!!, input2:shape!! -> output:shape", "1.1 shape:",
        types="", infer=_pairwise,
    )  # fmt: skip
for _name in _UNARY:
    op(
        _name, _UNARY[_name][0], "input:shape!! -> output:shape", "1.1 shape:", types="",
        infer=infer.same,
    )  # fmt: skip
op(
    "CONCAT_SHAPE", 80, "input:shape...!! -> output:shape", "1.1 shape:", types="", infer=_concat,
)  # fmt: skip
op(
    "SLICE_SHAPE", 84, "input:shape!!, start:i32[1]!!, size:i32[1]!! -> output:shape",
    "1.1 shape:", types="", infer=_slice,
)  # fmt: skip
op(
    "ASSERT_EQUAL_SHAPE", 93, "input1:shape!!, input2:shape!!", "1.1 shape:", types="",
    attrs=("allow_broadcast:bool",), infer=infer.nothing, checks=(_check_equal,),
)  # fmt: skip
op(
    "DIM", 79, "input1:t[1+] -> output:shape",
    (
        *parse_rows(
            "1.1 shape+INT/shape+FP: bool | 1.1 shape+INT: i8 i16 i32 | 1.1 shape+int64: i64 | "
            "1.1 shape+FP: f16 f32 | 1.1 shape+bf16: bf16 | 1.1 shape+fp8e4m3: f8e4m3 | "
            "1.1 shape+fp8e5m2: f8e5m2 | 1.1 shape+mxfp6e3m2: f6e3m2 | "
            "1.1 shape+mxfp6e2m3: f6e2m3 | 1.1 shape+mxfp4e2m1: f4e2m1 | "
            "1.1 shape+mxint8: mxi8 | 1.1 shape+mx: f8ue8m0"
        ),
        *(Row((b,), FLOAT_NEEDS[b], (1, 1)) for b in BLOCKS),
    ),
    attrs=("axis:i32",), infer=_dim,
)  # fmt: skip
op("CONST_SHAPE", 75, "-> output:shape", "INT/FP:", types="", attrs=("values:data",),
   infer=infer.declared)  # fmt: skip

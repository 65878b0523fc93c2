"""Integer operators at their corners: exact where TOSA defines a result, refused where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from judges.corner import RANDOM, Case, all_bits, check, ids, integers
from tosaic.spec.dtypes import dtype

LOW, HIGH = -(1 << 31), (1 << 31) - 1
LOW64, HIGH64 = -(1 << 63), (1 << 63) - 1


def wide_products() -> Iterator[Case]:
    for shift in (0, 1, 2, 15, 30, 31, 32, 33, 46, 61, 62, 63):
        a = np.append(RANDOM.permutation(integers("i32")), [LOW, LOW, HIGH])
        b = np.append(RANDOM.permutation(integers("i32")), [LOW, HIGH, HIGH])
        fits = np.abs(a.astype(object) * b.astype(object)) < (1 << 30 + shift)
        keep = fits.astype(bool) | (shift == 0)
        ins = [("i32", a[keep]), ("i32", b[keep]), ("=i8", [shift])]
        yield Case(f"MUL shift {shift}", "MUL", ins, distinct=2 if shift > 60 else 50)
    extreme = [("i32", [LOW]), ("i32", [LOW]), ("=i8", [31])]
    yield Case("MUL result too wide", "MUL", extreme)
    yield Case("MUL rounding wraps at shift 63", "MUL", [*extreme[:2], ("=i8", [63])])
    for kind in ("i8", "i16", "i64"):
        pair = [(kind, RANDOM.permutation(integers(kind))) for _ in range(2)]
        yield Case(f"MUL {kind}", "MUL", [*pair, ("=i8", [0])], distinct=200)


def overflows() -> Iterator[Case]:
    for kind, low, high in (("i32", LOW, HIGH), ("i64", LOW64, HIGH64)):
        for a, b in ((high, 1), (low, -1), (high, 0), (low, high), (1, high), (-1, low)):
            yield Case(f"ADD {kind} {a} {b}", "ADD", [(kind, [5, a]), (kind, [6, b])])
        for a, b in ((low, 1), (high, -1), (0, low), (-1, low), (low, low), (high, high)):
            yield Case(f"SUB {kind} {a} {b}", "SUB", [(kind, [5, a]), (kind, [6, b])])
        yield Case(f"ABS {kind} lowest", "ABS", [(kind, [1, low])])
        yield Case(f"ABS {kind}", "ABS", [(kind, [1, low + 1, high])], distinct=2)
        for a, b in ((low, -1), (5, 0), (low, 1), (-7, 2), (7, -2), (high, low)):
            yield Case(f"INTDIV {kind} {a} {b}", "INTDIV", [(kind, [9, a]), (kind, [2, b])])
        sums = ([high, 1, -1], [-1, high, 1], [low, high, -1], [low, -1, 1], [high, low, high, 1])
        for i, terms in enumerate(sums):
            axis = {"axis": 0}
            yield Case(f"REDUCE_SUM {kind} order {i}", "REDUCE_SUM", [(kind, terms)], attrs=axis)
    for kind in ("i8", "i16", "i32", "i64"):
        low, high = dtype(kind).range
        zero = [(f"={kind}", [0])] * 2
        yield Case(f"NEGATE {kind} lowest", "NEGATE", [(kind, [low, 3]), *zero])
        yield Case(f"NEGATE {kind}", "NEGATE", [(kind, [low + 1, high, 7]), *zero], distinct=3)
    for zero_points in ((100, -100), (-128, -1), (127, 3), (5, 9), (-128, -128)):
        ins = [("i8", all_bits("i8")), *(("=i8", [z]) for z in zero_points)]
        distinct = 1 if sum(zero_points) < -255 else 100
        yield Case(f"NEGATE zero points {zero_points}", "NEGATE", ins, distinct=distinct)


def shifts() -> Iterator[Case]:
    for kind in ("i8", "i16", "i32", "i64"):
        bits = dtype(kind).bits
        values = integers(kind)
        amounts = np.arange(len(values)) % bits
        operators = ("ARITHMETIC_RIGHT_SHIFT", "LOGICAL_LEFT_SHIFT", "LOGICAL_RIGHT_SHIFT")
        for name in operators:
            for rounded in (True, False) if name == operators[0] else (None,):
                attrs = {} if rounded is None else {"round": rounded}
                ins = [(kind, values), (kind, amounts)]
                yield Case(f"{name} {kind} {rounded}", name, ins, attrs=attrs, distinct=100)
                for amount in (-1, bits):
                    one = [(kind, [3]), (kind, [amount])]
                    yield Case(f"{name} {kind} {rounded} by {amount}", name, one, attrs=attrs)
    yield Case("CLZ i32", "CLZ", [("i32", integers("i32"))], distinct=33)
    yield Case("CLZ i64", "CLZ", [("i64", integers("i64"))], distinct=65)


def tables() -> Iterator[Case]:
    entries = RANDOM.permutation(256) - 128
    yield Case("TABLE i8", "TABLE", [("i8", all_bits("i8")), ("=i8", entries)], "i8", {}, 256)
    smooth = np.clip(np.cumsum(RANDOM.integers(-9000, 9000, 513)), -32768, 32767)
    every = all_bits("i16").view(np.int16)
    yield Case("TABLE i16", "TABLE", [("i16", every), ("=i16", smooth)], "i32", {}, 9000)
    steep = smooth.copy()
    steep[256:258] = 32767, -32768
    for value in (0, 127, 128, -1, -129):
        ins = [("i16", [value]), ("=i16", steep)]
        yield Case(f"TABLE i16 steep at {value}", "TABLE", ins, "i32")


def pools() -> Iterator[Case]:
    windows = (
        ((24, 24), (1, 1), (0, 0, 0, 0)),
        ((5, 7), (1, 1), (4, 3, 6, 5)),
        ((19, 23), (1, 1), (18, 17, 22, 21)),
        ((3, 4), (3, 5), (2, 1, 3, 2)),
    )
    zero_points = {"i8": ((-128, -90), (3, 17), (127, 100)), "i16": ((0, 0),)}
    for kind, choices in zero_points.items():
        low, high = dtype(kind).range
        image = RANDOM.integers(low // 2, high // 2, (1, 24, 24, 3)) + high // 5 * np.arange(3)
        image[:, 3:5], image[:, 7:9] = low, high
        for kernel, stride, pad in windows:
            window = {"kernel": kernel, "stride": stride, "pad": pad}
            distinct = 2 if kernel == (24, 24) else 10
            for pair in choices:
                ins = [(kind, image), *((f"={kind}", [z]) for z in pair)]
                attrs = {**window, "acc_type": dtype("i32")}
                label = f"AVG_POOL2D {kind} {kernel} {pair}"
                yield Case(label, "AVG_POOL2D", ins, attrs=attrs, distinct=distinct)
            label = f"MAX_POOL2D {kind} {kernel}"
            yield Case(label, "MAX_POOL2D", [(kind, image)], attrs=window, distinct=1)
    ties = RANDOM.integers(-3, 3, (50, 7))
    yield Case("ARGMAX ties", "ARGMAX", [("i8", ties)], attrs={"axis": 1}, distinct=6)


def indexed() -> Iterator[Case]:
    values = RANDOM.integers(-128, 127, (2, 5, 3))
    updates = RANDOM.integers(-128, 127, (2, 2, 3))
    for kind in ("i32", "i64"):
        for rows in ([0, 4], [2, 2], [5, 0], [-1, 0], [3, 4]):
            indices = (kind, [rows, [1, 0]])
            ins = [("i8", values), indices]
            inside = min(rows) >= 0 and max(rows) < 5
            distinct = 4 if inside else 1
            yield Case(f"GATHER {kind} {rows}", "GATHER", ins, distinct=distinct)
            distinct = 4 if inside and rows != [2, 2] else 1
            writes = [*ins, ("i8", updates)]
            yield Case(f"SCATTER {kind} {rows}", "SCATTER", writes, distinct=distinct)
            for count in (1, 2):
                runs = [*ins, ("=i32", [count])]
                distinct = 4 if inside and max(rows) + count <= 5 else 1
                label = f"ROW_GATHER {kind} {rows} x{count}"
                yield Case(label, "ROW_GATHER", runs, distinct=distinct)


def resizes() -> Iterator[Case]:
    sizes = (
        ((4, 2, 6, 2), (-1, 0), (1, 2)),
        ((1, 1, 1, 2), (0, 0), (0, 0)),
        ((16, 1, 2, 1), (-7, -1), (9, 1)),
        ((3, 5, 7, 3), (1, -2), (2, 4)),
    )
    for kind, wide in (("i8", "i32"), ("i16", "i48")):
        image = integers(kind, 2 * 7 * 9 * 2)[: 2 * 7 * 9 * 2].reshape(2, 7, 9, 2)
        for scale, offset, border in sizes:
            border = tuple(_whole(n, scale, offset, border, i) for i, n in enumerate((7, 9)))
            ins = [(kind, image), ("shape", scale), ("shape", offset), ("shape", border)]
            for mode, out in (("NEAREST_NEIGHBOR", kind), ("BILINEAR", wide)):
                attrs = {"mode": mode}
                yield Case(f"RESIZE {kind} {mode} {scale}", "RESIZE", ins, out, attrs, distinct=15)


def awkward_convolutions() -> Iterator[Case]:
    """Geometries that oneDNN in torch 2.13 gets wrong or crashes on, in float32 or in 8 bits."""
    geometries = (  # input, kernel, channels, multiplier or output channels, stride, dilation, pad
        ((6, 2), (5, 5), 1, 4, (1, 3), (1, 1), (2, 1, 1, 2)),
        ((9, 7), (5, 7), 1, 2, (1, 2), (1, 1), (0, 0, 0, 0)),
        ((3, 1), (3, 1), 13, 4, (2, 2), (1, 2), (1, 1, 1, 1)),
        ((6, 1), (1, 2), 3, 4, (1, 3), (1, 3), (1, 1, 4, 5)),
        ((6, 3), (3, 2), 8, 2, (1, 2), (1, 1), (5, 2, 1, 0)),
        ((6, 1), (1, 1), 16, 1, (2, 2), (1, 1), (1, 0, 0, 0)),
        ((6, 1), (2, 1), 16, 4, (2, 2), (2, 2), (2, 1, 5, 5)),
        ((2, 2), (1, 2), 16, 1, (2, 1), (2, 3), (2, 1, 1, 1)),
    )
    for i, (size, kernel, channels, multiple, stride, dilation, pad) in enumerate(geometries):
        for kind, out in (("i8", "i32"), ("f32", "f32")):
            zero = [(f"={kind}", [5 if kind == "i8" else 0]), (f"={kind}", [0])]
            image = (kind, RANDOM.integers(-128, 128, (1, *size, channels)))
            geometry = {"stride": stride, "dilation": dilation, "pad": pad}
            attrs = {**geometry, "acc_type": dtype(out)}
            for name, shape in (
                ("CONV2D", (multiple, *kernel, channels)),
                ("DEPTHWISE_CONV2D", (*kernel, channels, multiple)),
            ):
                weight = (f"={kind}", RANDOM.integers(-128, 128, shape))
                count = multiple if name == "CONV2D" else multiple * channels
                bias = (f"={out}", RANDOM.integers(-999, 999, count))
                ins = [image, weight, bias, *zero]
                yield Case(f"{name} {kind} {i}", name, ins, out, attrs, -(-count // 2))


def computed_operands() -> Iterator[Case]:
    """What is usually constant may be computed under the dynamic extension."""
    data = integers("i32", 200)
    yield Case("MUL shift", "MUL", [("i32", data), ("i32", data), ("i8", [40])], distinct=9)
    ins = [("i8", all_bits("i8")), ("i8", [3]), ("i8", [-7])]
    yield Case("NEGATE zero points", "NEGATE", ins, distinct=100)
    entries = RANDOM.permutation(256) - 128
    yield Case("TABLE entries", "TABLE", [("i8", all_bits("i8")), ("i8", entries)], "i8", {}, 256)
    scale = {"scale32": True, "rounding_mode": "SINGLE_ROUND", "per_channel": False}
    ins = [("i32", integers("i32", 90) >> 12), ("i32", [1 << 30]), ("i8", [42]), ("i32", [0]),
           ("i8", [9])]  # fmt: skip
    yield Case("RESCALE parameters", "RESCALE", ins, "i8", scale, distinct=10)
    image = integers("i8", 120)[:120].reshape(1, 5, 6, 4)
    ins = [("i8", image), ("shape", (0, 0, 1, 1, 2, 0, 0, 1)), ("i8", [77])]
    yield Case("PAD value", "PAD", ins, distinct=20)
    pool = {"kernel": (3, 2), "stride": (1, 1), "pad": (1, 1, 0, 1), "acc_type": dtype("i32")}
    ins = [("i8", image), ("i8", [-30]), ("i8", [12])]
    yield Case("AVG_POOL2D zero points", "AVG_POOL2D", ins, attrs=pool, distinct=20)
    weight, bias = integers("i8", 96)[:96].reshape(4, 3, 2, 4), integers("i16", 4)[:4]
    places = {"pad": (1, 1, 0, 1), "stride": (1, 1), "dilation": (1, 1), "acc_type": dtype("i32")}
    ins = [("i8", image), ("i8", weight), ("i32", bias), ("i8", [-30]), ("i8", [12])]
    yield Case("CONV2D weights and zero points", "CONV2D", ins, attrs=places, distinct=60)
    ins = [("i8", image[0]), ("i8", weight[0].reshape(1, 4, 6).repeat(5, 0)), ("i8", [-3]),
           ("i8", [9])]  # fmt: skip
    yield Case("MATMUL zero points", "MATMUL", ins, attrs={}, distinct=40)


def _whole(size: int, scale: Any, offset: Any, border: Any, i: int) -> int:
    """The border nearest to the one wanted that gives a whole number of outputs."""
    unit, step = scale[2 * i : 2 * i + 2]
    span = (size - 1) * unit - offset[i] + border[i]
    return int(border[i] - span % step)


@ids(wide_products)
def test_products_keep_low_bits_or_round_and_must_fit(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(overflows)
def test_what_overflows_raises_and_what_fits_is_exact(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(shifts)
def test_shifts_take_amounts_below_the_width_only(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(tables)
def test_tables_look_up_and_interpolate(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(pools)
def test_pools_divide_by_what_the_window_holds(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(indexed)
def test_indices_must_exist_and_be_written_once(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(resizes)
def test_resize_counts_in_whole_numbers(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(computed_operands)
def test_operands_that_are_usually_constant_may_be_computed(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(awkward_convolutions)
def test_convolutions_that_one_library_gets_wrong_are_exact(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

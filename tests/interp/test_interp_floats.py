"""Floating-point operators where the answer is exact: casts, NaN modes, 8-bit floats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judges.corner import RANDOM, Case, all_bits, check, ids, integers
from judges.reference import run_reference
from tosaic.files.flatbuffer import write
from tosaic.interp.model import Model
from tosaic.ir import Builder
from tosaic.spec.dtypes import dtype

NAN, INF = float("nan"), float("inf")


def floats(count: int = 4000) -> np.ndarray:
    """Every kind of float32: all magnitudes, denormal numbers, halves, infinities, NaN."""
    bits = RANDOM.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    halves = np.float32(RANDOM.integers(-40000, 40000, count) / 2)
    halves[: count // 2] %= 130
    halves[: count // 4] *= -1
    ends = [2147483520.0, 2147483648.0, -2147483648.0, -2147483904.0, 127.5, -128.5, 0.0, -0.0]
    return np.concatenate([bits, halves, np.float32([*ends, NAN, INF, -INF, 1e-40, -1e-45])])


def casts() -> Iterator[Case]:
    for target in ("i8", "i16", "i32"):
        yield Case(f"CAST f32 {target}", "CAST", [("f32", floats())], target, {}, 250)
        for source in ("f16", "bf16"):
            ins = [(source, all_bits(source))]
            yield Case(f"CAST {source} {target}", "CAST", ins, target, {}, 250)
    for source, target in (("i32", "i8"), ("i32", "i16"), ("i16", "i8"), ("i64", "i32"),
                           ("i32", "f16"), ("i32", "bf16"), ("i32", "f32"), ("i16", "bf16"),
                           ("i16", "f16")):  # fmt: skip
        ins = [(source, integers(source))]
        yield Case(f"CAST {source} {target}", "CAST", ins, target, {}, 200)
    for source in ("i8", "i16", "i32", "i64", "f32"):
        ins = [(source, [0, 1, -1, 100, 64, 0])]
        yield Case(f"CAST {source} bool", "CAST", ins, "bool", {}, 2)
    for target in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        yield Case(f"CAST f32 {target}", "CAST", [("f32", floats())], target, {}, 100)
    for source in ("f16", "bf16"):
        targets = ("f32", "f8e4m3", "f8e5m2")
        for target in targets:
            ins = [(source, all_bits(source))]
            yield Case(f"CAST {source} {target}", "CAST", ins, target, {}, 100)
    for source in ("f8e4m3", "f8e5m2"):
        for target in ("f32", "f16", "bf16"):
            ins = [(source, all_bits(source))]
            yield Case(f"CAST {source} {target}", "CAST", ins, target, {}, 240)


def not_numbers() -> Iterator[Case]:
    grid = np.array([NAN, INF, -INF, 0.0, -0.0, 1.5, -2.5, 65504.0, 1e-7])
    left, right = np.meshgrid(grid, grid)
    rows = RANDOM.choice(grid, (200, 4))
    rows[:9] = grid[:, None]
    rows[9] = [NAN, -INF, NAN, NAN]
    image = RANDOM.choice(grid, (1, 12, 9, 2), p=[0.2, *[0.1] * 8])
    window = {"kernel": (2, 3), "stride": (2, 1), "pad": (1, 1, 2, 0)}
    for mode in ("PROPAGATE", "IGNORE"):
        attrs = {"nan_mode": mode}
        for kind in ("f32", "f16", "bf16"):
            for name in ("MAXIMUM", "MINIMUM"):
                ins = [(kind, left.reshape(-1)), (kind, right.reshape(-1))]
                yield Case(f"{name} {kind} {mode}", name, ins, attrs=attrs, distinct=6)
            for name in ("REDUCE_MAX", "REDUCE_MIN"):
                axis = {"axis": 1, **attrs}
                yield Case(f"{name} {kind} {mode}", name, [(kind, rows)], attrs=axis, distinct=6)
            clamp = {"min_val": -1.0, "max_val": 2.0, **attrs}
            yield Case(f"CLAMP {kind} {mode}", "CLAMP", [(kind, grid)], attrs=clamp, distinct=5)
        for kind in ("f32", "f16", "bf16", "f8e4m3", "f8e5m2"):
            axis = {"axis": 1, **attrs}
            yield Case(f"ARGMAX {kind} {mode}", "ARGMAX", [(kind, rows)], attrs=axis, distinct=4)
            pool = {**window, **attrs}
            ins = [(kind, image)]
            yield Case(f"MAX_POOL2D {kind} {mode}", "MAX_POOL2D", ins, attrs=pool, distinct=2)
    for name in ("EQUAL", "GREATER", "GREATER_EQUAL"):
        ins = [("f32", left.reshape(-1)), ("f32", right.reshape(-1))]
        yield Case(f"{name} f32", name, ins, distinct=2)
    for x, y in ((0, 0), (0, -1), (0, 1), (-1, 2), (NAN, 1), (1, NAN), (INF, 1), (2, -INF), (2, 3)):
        yield Case(f"POW {x} {y}", "POW", [("f32", [2, x]), ("f32", [3, y])])


def small_floats() -> Iterator[Case]:
    """Every operator that takes 8-bit floats, on small whole numbers: all sums are exact."""

    def whole(*shape: int) -> np.ndarray:
        return RANDOM.integers(-8, 9, shape)

    image, rows = whole(1, 5, 6, 4), whole(2, 5, 3)
    for kind in ("f8e4m3", "f8e5m2"):
        zero, x = (f"={kind}", [0]), (kind, image)
        bias = {out: (out, whole(8)) for out in ("f16", "f32")}
        index = ("i32", [[4, 1], [0, 2]])
        moves: list[tuple[str, list[tuple[str, Any]], dict[str, Any]]] = [
            ("IDENTITY", [x], {}),
            ("CONCAT", [x, (kind, whole(1, 5, 2, 4))], {"axis": 2}),
            ("PAD", [x, ("shape", (0, 0, 1, 2, 0, 3, 1, 0)), (f"={kind}", [1.75])], {}),
            ("RESHAPE", [x, ("shape", (6, 20))], {}),
            ("REVERSE", [x], {"axis": 2}),
            ("SLICE", [x, ("shape", (0, 1, 2, 0)), ("shape", (1, 3, 4, 2))], {}),
            ("TILE", [x, ("shape", (2, 1, 3, 1))], {}),
            ("TRANSPOSE", [x], {"perms": (3, 1, 0, 2)}),
            ("GATHER", [(kind, rows), index], {}),
            ("SCATTER", [(kind, rows), index, (kind, whole(2, 2, 3))], {}),
        ]
        for name, ins, attrs in moves:
            yield Case(f"{name} {kind}", name, ins, attrs=attrs, distinct=5)
        window = {"kernel": (2, 2), "stride": (1, 2), "pad": (1, 0, 0, 0)}
        pool = {**window, "acc_type": dtype("f16")}
        ins = [(kind, np.abs(image) * 4), zero, zero]
        yield Case(f"AVG_POOL2D {kind}", "AVG_POOL2D", ins, attrs=pool, distinct=5)
        for out in ("f16", "f32"):
            places = {"pad": (1, 0, 1, 1), "stride": (1, 1), "dilation": (2, 1)}
            common = {"acc_type": dtype(out)}
            ends = [bias[out], zero, zero]
            ins = [x, (kind, whole(8, 2, 3, 4)), *ends]
            yield Case(f"CONV2D {kind} {out}", "CONV2D", ins, out, {**places, **common}, 50)
            ins = [x, (kind, whole(2, 3, 4, 2)), *ends]
            label = f"DEPTHWISE_CONV2D {kind} {out}"
            yield Case(label, "DEPTHWISE_CONV2D", ins, out, {**places, **common}, 50)
            ins = [x, (kind, whole(8, 2, 3, 4)), *ends]
            widened = {"out_pad": (1, -1, 2, 0), "stride": (2, 1), **common}
            label = f"TRANSPOSE_CONV2D {kind} {out}"
            yield Case(label, "TRANSPOSE_CONV2D", ins, out, widened, 50)
            deep = {"pad": (0, 1, 1, 0, 1, 1), "stride": (1, 2, 1), "dilation": (1, 1, 2)}
            ins = [(kind, whole(1, 3, 4, 5, 4)), (kind, whole(8, 2, 1, 3, 4)), *ends]
            yield Case(f"CONV3D {kind} {out}", "CONV3D", ins, out, {**deep, **common}, 50)
            ins = [(kind, whole(2, 4, 7)), (kind, whole(2, 7, 5)), zero, zero]
            yield Case(f"MATMUL {kind} {out}", "MATMUL", ins, out, {}, 20)


@ids(casts)
def test_casts_round_to_even_saturate_and_truncate(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(not_numbers)
def test_nan_modes_and_powers_that_are_not_defined(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@ids(small_floats)
def test_float8_operators_are_exact_on_whole_numbers(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize(
    ("operator", "weights", "attributes"),
    [
        ("CONV2D", (3, 3, 4, 2), {"pad": (4, 0, 0, 4), "stride": (1, 2), "dilation": (1, 1)}),
        ("CONV2D", (3, 3, 2, 2), {"pad": (2, 3, 1, 4), "stride": (2, 1), "dilation": (2, 3)}),
        ("CONV3D", (3, 2, 3, 2, 2), {"pad": (0, 3, 2, 1, 3, 0), "stride": (1,) * 3,
                                     "dilation": (1,) * 3}),
        ("DEPTHWISE_CONV2D", (3, 4, 2, 2), {"pad": (0, 5, 4, 0), "stride": (1, 2),
                                            "dilation": (1, 1)}),
        ("TRANSPOSE_CONV2D", (3, 3, 4, 2), {"out_pad": (1, -2, -1, 2), "stride": (3, 2)}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("local_bound", [False, True])
def test_infinite_weights_do_not_meet_the_padding(
    operator: str, weights: tuple[int, ...], attributes: dict[str, Any], local_bound: bool
) -> None:
    """Whole numbers and a few infinities: the sums are exact in any order."""
    draw = np.random.default_rng(sum(weights))
    b = Builder("TOSA-1.0+FP")
    x = b.input("f32", (2, *(6,) * (len(weights) - 2), 2), "x")
    weight = np.float32(draw.integers(-9, 10, weights))
    weight.flat[3], weight.flat[-2] = INF, -INF
    channels = weights[2] * weights[3] if operator.startswith("DEPTH") else weights[0]
    bias, zero = b.const(np.float32(range(channels)), "f32"), b.const(np.zeros(1), "f32")
    operands = (x, b.const(weight, "f32"), bias, zero, zero)
    b.output(b.op(operator, *operands, acc_type="f32", local_bound=local_bound, **attributes))
    given = np.float32(draw.integers(-9, 10, x.shape))
    (expected,) = run_reference(write(b.graph), [given])
    (got,) = Model(b.graph).run(given)
    np.testing.assert_array_equal(got, expected)
    assert np.isinf(expected).any()
    assert len(np.unique(expected[np.isfinite(expected)])) > 20

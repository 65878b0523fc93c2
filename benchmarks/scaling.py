"""Does cost grow in step with the work? Build, verify, print, parse, write, read, improve a graph
of 2,000 and of 20,000 operators, and print the ratio of the times, which should be near 10."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from tosaic.files.flatbuffer import read, write
from tosaic.files.parse import parse
from tosaic.files.text import print_graph
from tosaic.ir import Builder, Graph, verify
from tosaic.rewrite import improve
from tosaic.spec.dtypes import I8
from tosaic.spec.env import Env

SMALL, LARGE = 2_000, 20_000
OPS_PER_BLOCK = 5
LIMIT = 20.0  # a quadratic step would show a ratio near 100


def build(count: int) -> Graph:
    """Blocks of CONV2D, RESCALE, a residual ADD between RESCALEs, each with its own constants."""
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 4, 4, 8), "x")
    rng = np.random.default_rng(0)
    for _ in range(count // OPS_PER_BLOCK):
        weight = b.const(rng.integers(-127, 128, (8, 1, 1, 8)), "i8")
        zero, zero32 = b.const([0], "i8"), b.const([0], "i32")
        conv = b.CONV2D(
            x, weight, b.const(rng.integers(-99, 99, 8), "i32"), zero, zero,
            pad=(0, 0, 0, 0), stride=(1, 1), dilation=(1, 1), acc_type="i32",
        )  # fmt: skip
        scale = {"scale32": True, "rounding_mode": "SINGLE_ROUND"}
        wide = b.RESCALE(
            conv, b.const([1 << 30] * 8, "i32"), b.const([36] * 8, "i8"), zero32, zero32,
            per_channel=True, out=zero32.dtype, **scale,
        )  # fmt: skip
        one, left = b.const([1 << 30], "i32"), b.const([30], "i8")
        skip = b.RESCALE(x, one, left, zero, zero32, per_channel=False, out=zero32.dtype, **scale)
        total = b.ADD(wide, skip)
        x = b.RESCALE(total, one, left, zero32, zero, per_channel=False, out=I8, **scale)
    b.output(x)
    return b.graph


def steps(count: int) -> dict[str, float]:
    """Seconds that each step takes on a graph of that many operators."""
    times: dict[str, float] = {}

    def timed(name: str, run: Callable[[], object]) -> object:
        start = time.perf_counter()
        result = run()
        times[name] = time.perf_counter() - start
        return result

    graph = timed("build", lambda: build(count))
    assert isinstance(graph, Graph)
    assert len(graph.ops) == count
    timed("verify", lambda: verify(graph, "TOSA-1.0+INT"))
    text = timed("print", lambda: print_graph(graph))
    timed("parse", lambda: parse(str(text)))
    data = timed("write", lambda: write(graph))
    assert isinstance(data, bytes)
    again = timed("read", lambda: read(data))
    assert isinstance(again, Graph)
    timed("improve", lambda: improve(again, Env.parse("TOSA-1.0+INT")))
    return times


def main() -> int:
    steps(200)  # warm up
    small, large = steps(SMALL), steps(LARGE)
    print(f"{'step':8}{f'{SMALL:,} ops':>14}{f'{LARGE:,} ops':>14}{'ratio':>8}")
    worst = 0.0
    for name in small:
        ratio = large[name] / small[name]
        worst = max(worst, ratio)
        print(f"{name:8}{small[name]:>12.3f} s{large[name]:>12.3f} s{ratio:>8.1f}")
    print(f"worst ratio {worst:.1f} for {LARGE // SMALL} times the work (limit {LIMIT:.0f})")
    return 0 if worst < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())

"""How fast the interpreter is, beside TOSA's reference model and fp32 eager PyTorch.

One process, runs interleaved, medians, ratios printed with the bound each must keep. Memory is
the growth of the resident set from before the file is opened to the highest point of the runs,
in a process that has run a tiny network before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from networks import Prepared, prepare
from networks.reference import run_reference

import tosaic
from tosaic.files.flatbuffer import read
from tosaic.interp.model import Model
from tosaic.ir import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8, I32, SHAPE

BATCH = 32


@dataclass
class Table:
    """Lines of figures, each with the bound it must keep."""

    failed: list[str] = field(default_factory=list)

    def line(self, what: str, value: float, bound: float, at_least: bool) -> None:
        good = value >= bound if at_least else value <= bound
        sign = "≥" if at_least else "≤"
        print(f"  {what:58}{value:9.2f}   {sign} {bound:<5g} {'ok' if good else 'MISSED'}")
        if not good:
            self.failed.append(what)


def medians(runs: dict[str, Callable[[], object]], rounds: dict[str, int]) -> dict[str, float]:
    """Seconds a run of each, taken in turns so that a busy machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(max(rounds.values())):
        for name, run in runs.items():
            if index * rounds[name] // max(rounds.values()) >= len(times[name]):
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def check(net: Prepared) -> None:
    """The timed graph gives the reference model's bits, and they are many different ones."""
    data = net.graph(1).read_bytes()
    _, x = net.inputs(1)
    (got,), (expected,) = tosaic.load(data).run(x), run_reference(data, x)
    assert np.array_equal(got, expected), "the interpreter differs from the reference model"
    assert len(np.unique(got)) > 50, "the comparison is vacuous"


def speed(name: str, factor: float, table: Table, threads: int, rounds: int) -> None:
    net = prepare(name)
    check(net)
    torch.set_num_threads(threads)
    data = net.graph(1).read_bytes()
    model = tosaic.load(data)
    picture, x = net.inputs(1)
    _, batch = net.inputs(BATCH)
    with torch.inference_mode():
        runs: dict[str, Callable[[], object]] = {
            "tosaic": lambda: model.run(x),
            "eager": lambda: net.model(picture),
            "reference": lambda: run_reference(data, x),
        }
        for name_ in ("tosaic", "eager"):
            for _ in range(3):
                runs[name_]()
        found = medians(runs, {"tosaic": rounds, "eager": rounds, "reference": 3})
        label = f"{name}, {threads} thread{'s' * (threads > 1)}"
        print(
            f"\n{label}: Tosaic {found['tosaic'] * 1e3:.1f} ms, fp32 eager "
            f"{found['eager'] * 1e3:.1f} ms, reference model {found['reference'] * 1e3:.0f} ms"
        )
        table.line(
            "times as fast as the reference model", found["reference"] / found["tosaic"], factor,
            True,
        )  # fmt: skip
        if name == "mobilenet_v2":
            slower = found["tosaic"] / found["eager"]
            table.line("time over fp32 eager PyTorch", slower, 1.5, False)
            model.run(batch)
            both = medians(
                {"one": lambda: model.run(x), "batch": lambda: model.run(batch)},
                {"one": rounds, "batch": 3},
            )
            each = both["batch"] / BATCH / both["one"]
            table.line(f"time per input, batch {BATCH} over batch 1", each, 1.0, False)


def bytes_of(value: Value) -> int:
    if value.dtype is SHAPE:
        return 8 * value.shape[0]
    return value.type.size * np.dtype(value.dtype.array).itemsize


def live_set(graph: Graph) -> int:
    """The most bytes that values other than constants must occupy at one time."""
    last = {v: i for i, op in enumerate(graph.ops) for v in op.ins}
    last.update((v, len(graph.ops)) for v in graph.outputs)
    live = sum(bytes_of(v) for v in graph.inputs)
    most = live
    for index, op in enumerate(graph.ops):
        live += sum(bytes_of(v) for v in op.outs)
        most = max(most, live)
        live -= sum(bytes_of(v) for v in {*op.ins, *op.outs} if last.get(v) == index
                    and not v.is_const)  # fmt: skip
    return most


def warm_up() -> None:
    """Run a tiny network, so that library code and torch's own pools are not counted."""
    b = Builder("TOSA-1.0+INT")
    rng = np.random.default_rng(0)
    x = b.input("i8", (1, 16, 16, 8), "x")
    zero, zero32 = b.const([0], "i8"), b.const([0], "i32")
    scale = {"scale32": True, "rounding_mode": "SINGLE_ROUND", "out": I8}
    for name, shape, pad in (
        ("CONV2D", (8, 3, 3, 8), 1), ("DEPTHWISE_CONV2D", (3, 3, 8, 1), 1),
        ("CONV2D", (8, 1, 1, 8), 0), ("CONV2D", (8, 7, 7, 8), 3),
    ):  # fmt: skip
        for shift in (34, 38):  # a slope whose proof succeeds, and one whose proof fails
            weight = b.const(rng.integers(-127, 128, shape), "i8")
            acc = b.op(
                name, x, weight, zero32, zero, zero, pad=(pad,) * 4, stride=(1, 1),
                dilation=(1, 1), acc_type="i32",
            )  # fmt: skip
            multiplier = b.const(rng.integers(1 << 30, 1 << 31, 8), "i32")
            y = b.RESCALE(
                acc, multiplier, b.const([shift] * 8, "i8"), zero32, zero, per_channel=True, **scale
            )
            one, left = b.const([1 << 30], "i32"), b.const([20], "i8")
            wide = [
                b.RESCALE(v, one, left, zero, zero32, per_channel=False, **{**scale, "out": I32})
                for v in (x, y)
            ]
            x = b.RESCALE(
                b.ADD(*wide), one, b.const([41], "i8"), zero32, zero, per_channel=False, **scale
            )
    pool = {"kernel": (16, 16), "stride": (1, 1), "pad": (0, 0, 0, 0), "acc_type": "i32"}
    b.output(b.AVG_POOL2D(x, zero, zero, **pool))
    model = Model(b.graph)
    for _ in range(3):
        model.run(rng.integers(-128, 128, (1, 16, 16, 8)).astype(np.int8))


def memory_child(path: str) -> None:
    """In a fresh process: the highest resident set while loading and running, above the start."""
    torch.set_num_threads(1)
    graph = read(path)
    constants = sum(bytes_of(v) for v in graph.values() if v.is_const)
    live = live_set(graph)
    shape = graph.inputs[0].shape
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    del graph
    warm_up()
    with open("/proc/self/clear_refs", "w") as reset:
        reset.write("5")
    before = _status("VmRSS")
    model = tosaic.load(path)
    for _ in range(5):
        model.run(x)
    print(constants, live, _status("VmHWM") - before)


def _status(key: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def memory(name: str, table: Table) -> None:
    if not os.path.exists("/proc/self/clear_refs"):
        print(f"\n{name}: memory is measured on Linux only")
        return
    command = [sys.executable, __file__, "--memory-of", str(prepare(name).graph(1))]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    constants, live, grown = map(int, output.split())
    print(f"\n{name}: constants {constants / 1e6:.1f} MB, largest live set {live / 1e6:.1f} MB, "
          f"grown by {grown / 1e6:.1f} MB")  # fmt: skip
    table.line("peak over constants and live set", grown / (constants + live), 3.0, False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        memory_child(options.memory_of)
        return 0
    table = Table()
    for name, factor in (("mobilenet_v2", 20.0), ("resnet18", 50.0)):
        for threads in (1, 2):
            speed(name, factor, table, threads, options.rounds)
        memory(name, table)
    print(f"\n{len(table.failed)} bounds missed" if table.failed else "\nall bounds kept")
    return 1 if table.failed else 0


if __name__ == "__main__":
    sys.exit(main())

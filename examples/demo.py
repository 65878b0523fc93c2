"""Build a small int8 network, write it, load it, run it, and check every bit.

The network has the parts a picture classifier has: convolutions with per-channel scales, a
depthwise convolution, a residual sum, an average pool. Its weights are random; what counts here
is that the same bytes give the same numbers as TOSA's reference model.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import tosa_reference_model
from numpy.typing import NDArray

import tosaic
from tosaic.files import flatbuffer
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Value
from tosaic.spec.dtypes import I8, I32, DType

FILE = Path(__file__).resolve().parent.parent / "build" / "demo.tosa"
IMAGES = 50


class Network:
    """A few layers over the Builder, which infers and checks each operator as it is added."""

    def __init__(self) -> None:
        self.b = Builder("TOSA-1.0+INT")
        self.random = np.random.default_rng(7)

    def rescale(self, x: Value, factor: NDArray[np.float64], to: DType) -> Value:
        """multiplier · 2^−shift for each factor, the multiplier in 31 bits."""
        fraction, exponent = np.frexp(factor)
        multiplier = self.b.const((fraction * 2**31).astype(np.int32))
        shift = self.b.const((31 - exponent).astype(np.int8))
        zero_points = self.b.const([0], x.dtype), self.b.const([0], to)
        value: Value = self.b.RESCALE(
            x, multiplier, shift, *zero_points, out=to,
            scale32=True, rounding_mode="SINGLE_ROUND", per_channel=len(factor) > 1,
            input_unsigned=False, output_unsigned=False,
        )  # fmt: skip
        return value

    def conv(self, x: Value, channels: int, kernel: int, op: str = "CONV2D") -> Value:
        """Random weights, and scales with which the results fill the range of int8."""
        inside = 1 if op == "DEPTHWISE_CONV2D" else x.shape[3]
        shape = (channels, kernel, kernel, inside)
        if op == "DEPTHWISE_CONV2D":
            shape = (kernel, kernel, channels, 1)
        weight = self.random.integers(-127, 128, shape, np.int8)
        bias = self.random.integers(-9999, 9999, channels, np.int32)
        zero = self.b.const([0], I8)
        before, after = (kernel - 1) // 2, kernel // 2
        wide = self.b.op(
            op, x, self.b.const(weight), self.b.const(bias), zero, zero,
            pad=(before, after, before, after), stride=(1, 1), dilation=(1, 1), acc_type=I32,
        )  # fmt: skip
        spread = 73 * np.sqrt(kernel * kernel * inside)
        return self.rescale(wide, self.random.uniform(0.8, 1.2, channels) / spread, I8)

    def relu(self, x: Value) -> Value:
        value: Value = self.b.CLAMP(x, min_val=0, max_val=127, nan_mode="PROPAGATE")
        return value

    def build(self) -> Graph:
        b = self.b
        image = b.input("i8", (1, 32, 32, 3), "image")
        x = self.relu(self.conv(image, 16, 3))
        y = self.conv(self.relu(self.conv(x, 16, 3, "DEPTHWISE_CONV2D")), 16, 1)
        half = np.array([2.0**15])
        total = b.ADD(self.rescale(x, half, I32), self.rescale(y, half, I32))
        x = self.relu(self.rescale(total, np.array([2.0**-15]), I8))
        x = b.MAX_POOL2D(x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0))
        x = self.relu(self.conv(x, 64, 3))
        zero = b.const([0], I8)
        x = b.AVG_POOL2D(
            x, zero, zero, kernel=(16, 16), stride=(1, 1), pad=(0, 0, 0, 0), acc_type=I32
        )
        scores = b.RESHAPE(self.conv(x, 10, 1), b.shape((1, 10)))
        scores.name = "scores"
        b.output(scores)
        return b.graph


def pictures(count: int) -> NDArray[np.int8]:
    """Coarse coloured squares with noise on top."""
    random = np.random.default_rng(1)
    squares = random.integers(-110, 111, (count, 1, 4, 4, 3)).repeat(8, axis=2).repeat(8, axis=3)
    noise = random.integers(-17, 18, squares.shape)
    images: NDArray[np.int8] = (squares + noise).astype(np.int8)
    return images


@contextmanager
def quiet() -> Iterator[None]:
    """The reference model writes to the file descriptors themselves."""
    kept = [(fd, os.dup(fd)) for fd in (1, 2)]
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd, _ in kept:
            os.dup2(sink, fd)
        yield
    finally:
        for fd, copy in kept:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(sink)


Run = Callable[[NDArray[np.int8]], NDArray[np.int8]]


def race(runs: list[Run], images: NDArray[np.int8]) -> list[tuple[NDArray[np.int8], float]]:
    """Each one's scores and its median milliseconds an image, taken turn by turn."""
    scores = [[run(images[0])] * len(images) for run in runs]  # the first run warms up
    spent = np.zeros((len(runs), len(images)))
    for i, image in enumerate(images):
        for j, run in enumerate(runs):
            start = time.perf_counter()
            scores[j][i] = run(image)
            spent[j, i] = time.perf_counter() - start
    return [(np.stack(s), float(np.median(t)) * 1e3) for s, t in zip(scores, spent, strict=True)]


def main() -> None:
    FILE.parent.mkdir(exist_ok=True)
    data = flatbuffer.write(Network().build(), FILE)
    graph = tosaic.load(FILE)

    def reference(image: NDArray[np.int8]) -> NDArray[np.int8]:
        with quiet():
            outputs, status = tosa_reference_model.run(data, [image])
        if status != tosa_reference_model.GraphStatus.TOSA_VALID:
            raise SystemExit(f"the reference model does not accept the file: {status}")
        result: NDArray[np.int8] = outputs[0]
        return result

    torch.set_num_threads(1)  # as many as the reference model uses
    results = race([reference, lambda image: graph.run(image)[0]], pictures(IMAGES))
    (expected, slow), (actual, fast) = results
    equal = int((actual == expected).sum())

    print(f"file      build/{FILE.name}, {len(data):,} bytes")
    for kind, values in (("input", graph.inputs), ("output", graph.outputs)):
        for value in values:
            print(f"{kind:<10}{value}")
    print(f"scores    {' '.join(f'{score:4d}' for score in actual[0, 0])}   (first image)")
    print(f"\n{'':<18}{'ms an image':>12}{'scores':>9}{'distinct':>10}")
    for name, (scores, cost) in zip(("reference model", "Tosaic"), results, strict=True):
        print(f"{name:<18}{cost:>12.2f}{scores.size:>9}{len(np.unique(scores)):>10}")
    print(
        f"\n{equal} of {actual.size} scores are equal; {slow / fast:.1f} times as fast, one thread"
    )
    if equal != actual.size:
        raise SystemExit("Tosaic and the reference model disagree")


if __name__ == "__main__":
    main()

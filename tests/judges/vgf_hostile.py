"""Mutated ``.vgf`` files: each is refused with a sentence or loaded, and none takes long.

``python -m judges.vgf_hostile --count 10000`` is the long run of ``make vgf``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from functools import cache

import numpy as np

import tosaic
from tosaic.errors import TosaicError
from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph
from tosaic.spec.dtypes import F16, I8, I32
from tosaic.targets.vgf.converter import convert

EXTREMES = (0, 1, 2, 7, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF8, 1 << 24)
MOST_SECONDS = 1.0


def _convolution() -> Graph:
    b = Builder("TOSA-1.0+INT+int16")
    x, numbers = b.input("i8", (1, 8, 8, 4), "x"), np.random.default_rng(0)
    w = b.const(numbers.integers(-127, 128, (6, 3, 3, 4)).astype(np.int8))
    zero, bias = b.const([0], "i8"), b.const(np.arange(6, dtype=np.int32))
    y = b.CONV2D(
        x, w, bias, zero, zero, pad=(1, 1, 1, 1), stride=(1, 1), dilation=(1, 1), acc_type="i32"
    )
    y = b.RESCALE(
        y, b.const([1 << 30], "i32"), b.const([36], "i8"), b.const([0], "i32"), zero, scale32=True,
        rounding_mode="SINGLE_ROUND", per_channel=False, input_unsigned=False,
        output_unsigned=False, out=I8,
    )  # fmt: skip
    y = b.RESHAPE(b.TABLE(y, b.const(np.arange(-128, 128, dtype=np.int8))), b.shape((1, 384)))
    b.output(y, b.REDUCE_SUM(b.CAST(y, out=I32), axis=1))
    return b.graph


def _floats() -> Graph:
    b = Builder("TOSA-1.0+FP+INT+fft")
    x = b.input("f32", (2, 4, 4), "x")
    real, imaginary = b.results("RFFT2D", x)
    y = b.CLAMP(b.ADD(real, imaginary), min_val=-1.0, max_val=1.0)
    y = b.CONCAT(y, b.PAD(imaginary, b.shape((0, 0, 0, 0, 0, 0)), b.const([0.0], "f32")), axis=2)
    chosen = b.SELECT(b.GREATER(y, b.const(np.full((1, 1, 6), 0.5), "f32")), y, y)
    b.output(b.CAST(b.TRANSPOSE(chosen, perms=(2, 0, 1)), out=F16), b.ARGMAX(y, axis=1))
    return b.graph


@cache
def files() -> tuple[bytes, ...]:
    """The files that are damaged."""
    return tuple(convert(write(graph)) for graph in (_convolution(), _floats()))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A file with a few words, bytes or stretches changed, or its end cut off."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(made))
        kind = chance.randrange(5)
        if kind == 0:
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            word = at & ~3
            made[word : word + 4] = chance.choice(EXTREMES).to_bytes(4, "little")
        elif kind == 2:
            word, other = at & ~3, chance.randrange(len(made)) & ~3
            made[word : word + 4] = made[other : other + 4]
        elif kind == 3:
            made[at] = chance.randrange(256)
        elif len(made) > 200 and chance.random() < 0.3:
            del made[at:]
    return bytes(made)


def judged(count: int, seed: int = 0) -> tuple[Counter[str], float]:
    """How many files were loaded and refused, and the longest that one took, in seconds."""
    chance, told, longest = random.Random(seed), Counter[str](), 0.0
    for whole in files():  # which imports what is needed
        tosaic.load(whole)
    for number in range(count):
        data = mutated(files()[number % len(files())], chance)
        start = time.process_time()
        try:
            tosaic.load(b"VGF1" + data[4:])
            told["loaded"] += 1
        except TosaicError as refusal:
            told["refused" if len(str(refusal).split()) > 3 else "without a sentence"] += 1
        longest = max(longest, time.process_time() - start)
    return told, longest


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    told, longest = judged(options.count, options.seed)
    print(f"{options.count} mutated files: {dict(told)}, the longest took {longest:.2f} s")
    return 1 if told["without a sentence"] or longest >= MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())

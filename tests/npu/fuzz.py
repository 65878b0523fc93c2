"""Damaged command streams, weights and blobs: the simulator must refuse them or run them.

``python -m npu.fuzz --first 0 --count 2000`` runs in this process and prints what is neither. It
runs apart from the tests: a crash ends it, a hang meets its alarm, and both are seen from outside
by the number it was at.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from npu.configurations import compile_stream, configuration
from npu.families import build
from tosaic.errors import TosaicError
from tosaic.files import flatbuffer
from tosaic.sim import ethosu
from tosaic.sim.ethosu import velabin
from tosaic.sim.ethosu.velabin import Stream

SECONDS = 60  # far above what any undamaged graph here takes
MEMORY = 12 << 30
SEEDS = (
    ("u55", "conv2d conv2d_int16 depthwise add_int8 mul_int32 table_int8 table_int16 concat pad "
            "transpose resize_nearest max_pool avg_pool reduce_sum argmax residual fully_connected "
            "transpose_conv rescale_per_channel shift_right"),
    ("u85", "conv2d conv2d_int4 conv2d_sparse depthwise add_int8 mul_int8 table_int8 table_int16 "
            "select compare gather scatter resize_bilinear resize_nearest argmax branch loop "
            "matmul reverse transpose elementwise_chain conv2d_given_weights separable intdiv"),
)  # fmt: skip
_HEAD = 8  # words of the driver's header before the commands of a COP1 payload


@cache
def originals() -> list[tuple[Stream, list[np.ndarray]]]:
    """Small compiled graphs, with inputs."""
    found = []
    for machine, names in SEEDS:
        for i, name in enumerate(names.split()):
            maker, graph = build(name, machine, 200 + i)
            where = configuration(machine, 5 * i, maker.dedicated)
            plain = replace(where, flags=where.flags[:1])
            result = compile_stream(flatbuffer.write(graph), plain)
            found.append((result.stream, maker.data))
    return found


def damaged_words(rng: np.random.Generator, stream: Stream) -> Stream:
    """Commands changed, exchanged, repeated, left out, or another value in a register."""
    words = np.frombuffer(stream.command_stream, "<u4").copy()
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(_HEAD, len(words)))
        match int(rng.integers(8)):
            case 0:
                words[at] ^= np.uint32(1 << int(rng.integers(32)))
            case 1:
                words[at] = rng.integers(0, 1 << 32)
            case 2:  # the 16 bits that a command carries
                carried = int(rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF, rng.integers(1 << 16)]))
                words[at] = (int(words[at]) & 0xFFFF) | carried << 16
            case 3:
                words = np.delete(words, at)
            case 4:
                words = np.insert(words, at, words[int(rng.integers(_HEAD, len(words)))])
            case 5:
                other = int(rng.integers(_HEAD, len(words)))
                words[[at, other]] = words[[other, at]]
            case 6:
                step = int(rng.choice([1, 16, 0xFFFFFFFF, 0x10000, 0xFFFF0000]))
                words[at] = (int(words[at]) + step) & 0xFFFFFFFF
            case _:
                words[at] = (
                    words[at] & 0x3FF | rng.choice([0, 0x4000]) | rng.integers(1 << 16) << 16
                )
    return replace(stream, command_stream=words.astype("<u4").tobytes())


def damaged_header(rng: np.random.Generator, stream: Stream) -> Stream:
    data = bytearray(stream.command_stream)
    for _ in range(int(rng.integers(1, 3))):
        data[int(rng.integers(0, 4 * _HEAD + 4))] = int(rng.integers(256))
    if rng.random() < 0.3:
        del data[int(rng.integers(len(data))) :]
    return replace(stream, command_stream=bytes(data))


def damaged_weights(rng: np.random.Generator, stream: Stream) -> Stream:
    data = bytearray(stream.weights)
    if not data:
        return damaged_words(rng, stream)
    for _ in range(int(rng.integers(1, 6))):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    if rng.random() < 0.3:
        del data[int(rng.integers(len(data))) :]
    return replace(stream, weights=bytes(data))


def damaged_boundary(rng: np.random.Generator, stream: Stream) -> Stream:
    side = "inputs" if rng.random() < 0.5 else "outputs"
    tensors = list(getattr(stream, side))
    at = int(rng.integers(len(tensors)))
    number = int(rng.choice([0, 1, 2, 3, 16, 255, 1 << 16, (1 << 31) - 1, rng.integers(4096)]))
    tensor = tensors[at]
    match int(rng.integers(6)):
        case 0:
            shape = list(tensor.shape)
            shape[int(rng.integers(6))] = number
            tensors[at] = replace(tensor, shape=tuple(shape))
        case 1:
            tensors[at] = replace(tensor, element_size=int(rng.choice([1, 2, 4, 8])))
        case 2:
            tensors[at] = replace(tensor, address=number)
        case 3:
            tensors[at] = replace(tensor, region=number)
        case 4:
            del tensors[at]
        case _:
            return replace(stream, scratch_size=number)
    return replace(stream, **{side: tuple(tensors)})


def damaged_blob(rng: np.random.Generator, stream: Stream) -> bytes:
    data = bytearray(velabin.write(stream))
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(len(data)))] = int(rng.integers(256))
    if rng.random() < 0.2:
        at = 16 * int(rng.integers(len(data) // 16))
        data[at : at + 4] = struct.pack("<I", int(rng.integers(1 << 32)))
    if rng.random() < 0.1:
        del data[int(rng.integers(len(data))) :]
    return bytes(data)


_DAMAGES = (*[damaged_words] * 5, damaged_header, *[damaged_weights] * 2, damaged_boundary)


def attempt(number: int) -> str:
    """What happens to the number-th damaged stream: "result" or the name of the error."""
    rng = np.random.default_rng((31, number))
    stream, inputs = originals()[number % len(originals())]
    if rng.random() < 0.1:
        data = damaged_blob(rng, stream)
    else:
        changed = _DAMAGES[int(rng.integers(len(_DAMAGES)))](rng, stream)
        try:
            data = velabin.write(changed)
        except struct.error:
            return "not a blob"
    try:
        simulation = ethosu.load(data)
        simulation.run(*inputs)
    except TosaicError as refusal:
        return type(refusal).__name__
    return "result"


def run_apart(first: int, count: int) -> tuple[bool, str]:
    """Run damaged streams in a process of their own: did all go well, and what it said."""
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "number"
        command = [sys.executable, "-m", "npu.fuzz", "--first", str(first), "--count", str(count)]
        path = os.pathsep.join([str(Path(__file__).resolve().parent.parent), *sys.path])
        done = subprocess.run(
            [*command, "--progress", progress], capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        at = progress.read_text() if progress.exists() else "the start"
    if done.returncode in (0, 1):
        said = [line for line in done.stdout.splitlines() if not line.startswith("Missing")]
        return done.returncode == 0, "\n".join(said)[-6000:]  # Vela misses an estimate
    return False, f"ended with {done.returncode} at damaged stream {at}: {done.stderr[-3000:]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20000)
    parser.add_argument("--progress", type=Path, default=Path(os.devnull))
    options = parser.parse_args()
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seen: Counter[str] = Counter()
    wrong = []
    slowest = (0.0, 0)
    for number in range(options.first, options.first + options.count):
        options.progress.write_text(str(number))
        start = time.process_time()
        signal.alarm(SECONDS)  # its default action ends the process, wherever it hangs
        try:
            seen[attempt(number)] += 1
        except Exception:  # noqa: BLE001 - whatever else is raised is the finding
            wrong.append(f"damaged stream {number}: {traceback.format_exc(limit=-3)}")
        signal.alarm(0)
        slowest = max(slowest, (time.process_time() - start, number))
    print(f"the slowest was {slowest[1]} with {slowest[0]:.1f} s")
    for words in wrong[:20]:
        print(words)
    print(f"{options.count - len(wrong)} of {options.count} refused or run: {dict(seen)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

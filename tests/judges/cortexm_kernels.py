"""Kernels of the Cortex-M target by themselves: layers, their results by NumPy, and a C program.

The program runs many calls, each in buffers of its own of exactly the promised sizes, on this
machine with sanitizers, or on an emulated core with bytes behind each buffer that must stay.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tosaic.targets.cortexm
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm.layers import Add, Call, Conv, MatMul, Requant

Array = np.ndarray[Any, Any]
KERNELS = Path(tosaic.targets.cortexm.__file__).parent / "kernels"


@dataclass(frozen=True)
class Trial:
    """A call of a kernel with inputs, and what it must give."""

    name: str
    call: Call
    inputs: tuple[Array, ...]
    wanted: Array
    rows: int = 0


def requant(rng: np.random.Generator, count: int, spread: float, bits: int = 8, odd: bool = False,
            limits: bool = False, lut: bool = False) -> Requant:  # fmt: skip
    """Scales that bring sums of about `spread` to the whole range; `odd`: shifts of all sizes."""
    scale = (1 << bits - 2) / spread * rng.uniform(0.5, 1.5, count)
    exponent = np.floor(np.log2(scale)).astype(np.int64)
    multiplier = np.round(scale / 2.0**exponent * 2**30).astype(np.int64)
    shift = 30 - exponent
    if odd:
        other = rng.choice([28, 30, 31, 32, 33, 40, 55, 60, 62], count)
        shift = np.where(rng.random(count) < 0.4, other, shift)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if limits:
        low, high = low * 3 // 4, high // 2
    table = rng.integers(-128, 128, 256).astype(np.int8) if lut else None
    return Requant(
        multiplier, shift, int(rng.integers(-30, 30)) if bits == 8 else 0, low, high, table
    )


def rescaled(acc: Array, made: Requant, bits: int = 8) -> Array:
    """TOSA's RESCALE with one rounding, CLAMP and TABLE."""
    value = ((acc * made.multiplier + (1 << (made.shift - 1))) >> made.shift) + made.zp
    value = np.clip(value, made.lo, made.hi)
    if made.lut is not None:
        return made.lut[value + 128]
    return value.astype(np.int8 if bits == 8 else np.int16)


def conv_layer(rng: np.random.Generator, kind: str, image: tuple[int, ...], oc: int,
               kernel: tuple[int, int], stride: int = 1, dilation: int = 1,
               pad: tuple[int, int, int, int] = (0, 0, 0, 0), bits: int = 8,
               **more: bool) -> Conv:  # fmt: skip
    n, ih, iw, ic = image
    kh, kw = kernel
    pt, pb, pl, pr = pad
    oh = (ih + pt + pb - dilation * (kh - 1) - 1) // stride + 1
    ow = (iw + pl + pr - dilation * (kw - 1) - 1) // stride + 1
    if kind == "depthwise":
        oc = oc or ic
    shape = (kh, kw, ic, oc // ic) if kind == "depthwise" else (oc, kh, kw, ic)
    weight = rng.integers(-127, 128, shape).astype(np.int8)
    spread = 73 * 73 * np.sqrt(kh * kw * (1 if kind == "depthwise" else ic))
    made = requant(rng, oc, spread, bits, **more)
    bias = rng.integers(-9000, 9000, oc).astype(np.int64)
    return Conv(
        kind, n, ih, iw, ic, oh, ow, oc, kh, kw, stride, stride, dilation, dilation, pt, pl,  # type: ignore[arg-type]
        weight, bias, int(rng.integers(-128, 128)), 0, 8, bits, made, ih,
    )  # fmt: skip


def convolved(layer: Conv, x: Array) -> Array:
    edge = layer.dy * layer.kh + layer.sy + layer.dx * layer.kw + layer.sx
    padded = np.full(
        (layer.n, layer.ih + 2 * edge, layer.iw + 2 * edge, layer.ic), layer.x_zp, np.int64
    )
    padded[:, edge : edge + layer.ih, edge : edge + layer.iw] = x
    padded -= layer.x_zp
    acc = np.zeros((layer.n, layer.oh, layer.ow, layer.oc), np.int64) + layer.bias
    for ky in range(layer.kh):
        for kx in range(layer.kw):
            top, left = edge - layer.pt + ky * layer.dy, edge - layer.pl + kx * layer.dx
            part = padded[:, top : top + layer.sy * layer.oh : layer.sy]
            part = part[:, :, left : left + layer.sx * layer.ow : layer.sx]
            if layer.kind == "conv":
                acc += part @ layer.weight[:, ky, kx].astype(np.int64).T
            else:
                acc += (part[..., None] * layer.weight[ky, kx]).reshape(acc.shape)
    assert layer.requant is not None
    return rescaled(acc, layer.requant, layer.out_bits)


def conv_trial(name: str, layer: Conv, call: Call, rng: np.random.Generator) -> Trial:
    x = rng.integers(-128, 128, (layer.n, layer.ih, layer.iw, layer.ic)).astype(np.int8)
    return Trial(name, call, (x,), convolved(layer, x), layer.oh)


def matmul_layer(rng: np.random.Generator, n: int, h: int, c: int, width: int, batches: int,
                 transposed: bool, bits: int = 8, **more: bool) -> MatMul:  # fmt: skip
    made = requant(rng, 1, 73 * 73 * np.sqrt(c) + 3000, bits, **more)
    zero_points = (int(v) for v in rng.integers(-128, 128, 2))
    return MatMul(n, h, c, width, batches, transposed, *zero_points, 8, bits, made)


def matmul_trial(name: str, layer: MatMul, call: Call, rng: np.random.Generator) -> Trial:
    a = rng.integers(-128, 128, (layer.n, layer.h, layer.c)).astype(np.int8)
    b = rng.integers(-128, 128, (layer.batches, layer.c, layer.width)).astype(np.int8)
    acc = (a.astype(np.int64) - layer.a_zp) @ (b.astype(np.int64) - layer.b_zp)
    assert layer.requant is not None
    given = b.transpose(0, 2, 1) if layer.is_transposed else b
    inputs = (a, np.ascontiguousarray(given))
    return Trial(name, call, inputs, rescaled(acc, layer.requant, layer.out_bits))


def add_layer(rng: np.random.Generator, size: int, **more: bool) -> Add:
    tables = [np.arange(-128, 128) * int(rng.integers(1 << 18, 1 << 20)) for _ in range(2)]
    return Add(size, tables[0], tables[1] - 12345, requant(rng, 1, 1 << 26, **more))


def add_trial(name: str, layer: Add, call: Call, rng: np.random.Generator) -> Trial:
    a, b = (rng.integers(-128, 128, layer.size).astype(np.int8) for _ in range(2))
    acc = layer.a[a.astype(np.int64) + 128] + layer.b[b.astype(np.int64) + 128]
    return Trial(name, call, (a, b), rescaled(acc, layer.requant))


_HOST = """
#include <stdio.h>
#include <stdlib.h>
static void host_read(const char *path, void *data, unsigned size)
{ FILE *f = fopen(path, "rb"); if (!f || fread(data, 1, size, f) != size) exit(3); fclose(f); }
static void host_write(const char *path, const void *data, unsigned size)
{ FILE *f = fopen(path, "wb"); if (!f || fwrite(data, 1, size, f) != size) exit(3); fclose(f); }
static void *host_memory(unsigned size) { return malloc(size ? size : 1); }
enum { GUARD = 0 };
"""
_CORE = '#include "harness.h"\nenum { GUARD = 32 };\n'
_CHECK = """
static void *guarded(unsigned size)
{ uint8_t *p = (uint8_t *)host_memory(size + GUARD); memset(p + size, 0xa5, GUARD); return p; }
static int broken(const void *p, unsigned size)
{
    int i, bad = 0;
    for (i = 0; i < GUARD; ++i)
        bad |= ((const uint8_t *)p)[size + (unsigned)i] != 0xa5;
    return bad;
}
"""


def program(trials: Sequence[Trial], prelude: str) -> str:
    """A program that runs every trial; its status is not 0 where bytes behind a buffer changed."""
    includes = sorted({trial.call.include for trial in trials})
    lines = [
        "#include <string.h>",
        *(f'#include "kernels/{name}"' for name in includes),
        prelude,
        _CHECK,
    ]
    for i, trial in enumerate(trials):
        call, size = trial.call, trial.wanted.nbytes
        names = [f"x{j}" for j in range(len(trial.inputs))]
        lines += [f"static int run{i}(void)", "{"]
        for name, array in zip(names, trial.inputs):
            lines.append(f"    int8_t *{name} = (int8_t *)guarded({array.nbytes}u);")
        lines += [
            f"    void *y = guarded({size}u);",
            f"    uint8_t *w = (uint8_t *)guarded({len(call.blob)}u);",
            f"    int8_t *lut = (int8_t *)guarded({len(call.lut)}u);",
            f"    uint8_t *scratch = (uint8_t *)guarded({call.scratch}u);",
            *(f'    host_read("{i}.{n}", {n}, {a.nbytes}u);' for n, a in zip(names, trial.inputs)),
            f'    host_read("{i}.w", w, {len(call.blob)}u);',
            f'    host_read("{i}.lut", lut, {len(call.lut)}u);',
        ]
        given = [*names, "y", "w" if call.blob else "NULL", "lut" if call.lut else "NULL",
                 "scratch" if call.scratch else "NULL"]  # fmt: skip
        if call.streams:
            given += ["0", str(trial.rows)]
        given += map(str, call.literals)
        lines += [
            f"    {call.function}({', '.join(given)});",
            f'    host_write("{i}.y", y, {size}u);',
            f"    return broken(y, {size}u) | broken(scratch, {call.scratch}u);", "}", "",
        ]  # fmt: skip
    calls = "\n".join(f"    if (run{i}()) return {20 + i % 200};" for i in range(len(trials)))
    return "\n".join(lines) + f"\nint main(void)\n{{\n{calls}\n    return 0;\n}}\n"


def files_of(trials: Sequence[Trial]) -> dict[str, bytes]:
    files = {}
    for i, trial in enumerate(trials):
        files |= {f"{i}.x{j}": array.tobytes() for j, array in enumerate(trial.inputs)}
        files |= {f"{i}.w": trial.call.blob, f"{i}.lut": trial.call.lut}
    return files


def kernels() -> dict[str, bytes]:
    return {f"kernels/{path.name}": path.read_bytes() for path in KERNELS.glob("*.h")}


def on_host(trials: Sequence[Trial], folder: Path) -> list[str]:
    """What differs on this machine, with address and undefined-behaviour sanitizers."""
    for name, data in {**kernels(), **files_of(trials)}.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    (folder / "main.c").write_text(program(trials, _HOST))
    compiler = shutil.which("gcc") or "cc"
    flags = "-std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wall"
    warnings = "-Wextra -Wconversion -Wshadow -pedantic -Wno-unused-function -Werror"
    done = subprocess.run(
        [compiler, *flags.split(), *warnings.split(), "-I.", "main.c", "-o", "main"], cwd=folder,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    ran = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False,
                         env={"ASAN_OPTIONS": "detect_leaks=0"})  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return different(trials, {p.name: p.read_bytes() for p in folder.glob("*.y")})


def on_core(core: str, trials: Sequence[Trial]) -> list[str]:
    """What differs on an emulated core."""
    ran = qemu.run(core, {"main.c": program(trials, _CORE), **kernels()}, files_of(trials))
    return different(trials, ran.files)


def different(trials: Sequence[Trial], files: dict[str, bytes]) -> list[str]:
    found = []
    for i, trial in enumerate(trials):
        got = np.frombuffer(files[f"{i}.y"], trial.wanted.dtype).reshape(trial.wanted.shape)
        if not np.array_equal(got, trial.wanted):
            count = int((got != trial.wanted).sum())
            found.append(f"{trial.name}: {count} of {got.size} elements of {trial.call.function}")
    return found

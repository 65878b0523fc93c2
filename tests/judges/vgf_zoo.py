"""Networks of the zoo for VGF: the interpreter of the file beside Vulkan.

``python -m judges.vgf_zoo`` compiles all in int8, a16w8, mixed and float and prints a line for
each; names of networks choose some. Integers have to be equal, floats within the bounds below, also
beside PyTorch in float32 with weights and inputs of 16 bits; where a threshold turns on the last
bits, nearer to it than PyTorch in 16 bits is.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tosaic
import zoo
from judges.kept import Kept
from tosaic.front import torchapi

# dB between the interpreter and Vulkan, and between Vulkan and PyTorch.
LEAST = {"fp32": 110.0, "fp16": 60.0, "bf16": 40.0}
STEPS = 35.0  # dB, where some elements may be a step of int8 apart
WAYS = ("int8", "a16w8", "mixed", *LEAST)
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def compiled(name: str, way: str) -> tuple[Any, tuple[Any, ...]]:
    """A network for VGF, and an input of it."""
    net, example, calibration = zoo.build(name)
    if way in TYPES:
        net = net.to(TYPES[way])
        example = tuple(t.to(TYPES[way]) if t.is_floating_point() else t for t in example)
    if way in LEAST:
        return tosaic.compile(net, example, target="vgf"), example
    scheme: Any = "int8" if way == "mixed" else way
    if way == "mixed":  # the second half of the modules stays in float
        names = [n for n, m in net.named_modules() if _computes(m)]
        scheme = tosaic.Schemes("int8", module_names=dict.fromkeys(names[len(names) // 2 :]))
    return tosaic.compile(
        net, example, target="vgf", scheme=scheme, calibration=calibration
    ), example


def _computes(module: nn.Module) -> bool:
    is_whole = not list(module.children())
    return is_whole and not isinstance(module, (nn.Dropout, nn.Identity, nn.Sequential))


def compared(name: str, way: str) -> tuple[bool, str]:
    """Whether interpreter and Vulkan agree as they should, and a line about it."""
    start = time.process_time()
    made, example = compiled(name, way)
    took = time.process_time() - start
    ours, theirs = (
        [t for t in torchapi.flatten(made.run(*example, engine=e))[0] if isinstance(t, Tensor)]
        for e in ("vgf", "vulkan")
    )
    ran = time.process_time() - start - took
    found = decibels(ours, theirs)
    same = found == math.inf
    least = LEAST.get(way, float("inf"))
    if way == "mixed":
        least = STEPS if _quantizes_inside(made) else LEAST["fp32"]
    ops = sum(len(graph.ops) for graph in made.partition.graphs)
    told = f"{name:<20} {way:<6} {ops:>5} operators in {len(made.partition.graphs)} graphs, "
    told += (
        f"{len(made.report.refused)} calls in PyTorch, {'equal' if same else f'{found:.0f} dB'}, "
    )
    if way in LEAST:
        right = eager(name, way)
        beside = decibels(right, theirs)
        if beside < least:
            least = min(least, decibels(right, eager(name, way, TYPES.get(way, torch.float32))))
        found = min(found, beside)
        told += f"{beside:.0f} dB beside PyTorch, "
    return found >= least, f"{told}{took:.1f} and {ran:.1f} s"


def decibels(wanted: list[Tensor], given: list[Tensor]) -> float:
    """The signal of all tensors beside their differences; infinite where they are equal."""
    noise = signal = 0.0
    for a, b in zip(wanted, given, strict=True):
        noise += float((a.double() - b.double()).square().sum())
        signal += float(a.double().square().sum())
    return 10 * math.log10(signal / noise) if noise and signal else math.inf if not noise else 0.0


def eager(name: str, way: str, kind: torch.dtype = torch.float32) -> list[Tensor]:
    """PyTorch's results in a type, of weights and inputs rounded to the type of a way."""
    net, example, _ = zoo.build(name)
    held = TYPES.get(way, torch.float32)
    given = tuple(t.to(held).to(kind) if t.is_floating_point() else t for t in example)
    with torch.no_grad():
        made = net.to(held).to(kind)(*given)
    return [t for t in torchapi.flatten(made)[0] if isinstance(t, Tensor)]


def _quantizes_inside(made: Any) -> bool:
    """Whether floats of the graph become integers: where sums differ, a step may be another one."""
    graph = made.graph
    casts = [op for op in graph.ops if op.name == "CAST" and op.ins[0].dtype.is_float]
    return sum(op.outs[0].dtype.is_int for op in casts) > len(graph.inputs)


def judged(name: str, way: str) -> str:
    """A line about a network, which begins with WRONG where it is not as it should be."""
    try:
        right, told = compared(name, way)
    except tosaic.errors.TosaicError as problem:
        right, told = False, f"{name} {way}: {problem}"
    return told if right else f"WRONG {told}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--results", default="", help="a file that outcomes are kept in")
    options = parser.parse_args(argv)
    wrong, kept = 0, Kept(options.results)
    for way in options.way or WAYS:
        for name in options.names or zoo.ZOO:
            if package := zoo.missing(name):
                print(f"{name}: left out, {package} is not installed")
                continue
            if way == "mixed" and zoo.ZOO[name].extensions:
                continue  # modules inside of branches have no names to choose by
            told = kept.get(f"{name} {way}", partial(judged, name, way))
            wrong += told.startswith("WRONG")
            print(told, flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

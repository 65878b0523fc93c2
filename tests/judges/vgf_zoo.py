"""Networks of the zoo for VGF: the interpreter of the file beside Vulkan.

``python -m judges.vgf_zoo`` compiles all in int8, a16w8, mixed and float and prints a line for
each; names of networks choose some. Integers have to be equal, floats within the bounds below, also
beside PyTorch in float32 with weights and inputs of 16 bits; where a threshold turns on the last
bits, nearer to it than PyTorch in 16 bits is. Where a mixture rounds floats to integers inside, the
last bit of a sum may decide on a step, and layers of random weights make much of it: what lies
between two such casts is compared then, each part given the same integers.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tosaic
import zoo
from judges.kept import Kept
from tosaic.files.flatbuffer import read, write
from tosaic.front import torchapi
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph, Op
from tosaic.targets.vgf.converter import convert
from tosaic.targets.vgf.file import VgfFile

# dB between the interpreter and Vulkan, and between Vulkan and PyTorch.
LEAST = {"fp32": 110.0, "fp16": 60.0, "bf16": 40.0}
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
    least = LEAST["fp32"] if way == "mixed" else LEAST.get(way, math.inf)
    ops = sum(len(graph.ops) for graph in made.partition.graphs)
    told = f"{name:<20} {way:<6} {ops:>5} operators in {len(made.partition.graphs)} graphs, "
    told += (
        f"{len(made.report.refused)} calls in PyTorch, {'equal' if same else f'{found:.0f} dB'}, "
    )
    if way in LEAST:
        right = eager(name, way)
        beside = decibels(right, theirs)
        told += f"{beside:.0f} dB beside PyTorch, "
        if beside < least:
            own = decibels(right, eager(name, way, TYPES.get(way, torch.float32)))
            told += f"whose own {way} has {own:.0f}, "
            least = min(least, own)
        found = min(found, beside)
    elif way == "mixed" and found < least and _casts(made.graph):
        found = between_casts(made, example)
        told += f"{found:.0f} dB and more between casts, "
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


def between_casts(made: Any, example: tuple[Any, ...]) -> float:
    """Interpreter and Vulkan on a graph whose casts to integers are cut: they become inputs.

    Of the floats the least dB; 0 where integers differ.
    """
    graph = read(made.bytes)
    given = [t.numpy().astype(v.dtype.array) for t, v in zip(example, graph.inputs, strict=True)]
    casts = _casts(graph)
    rounded, before = [op.outs[0] for op in casts], dict.fromkeys(op.ins[0] for op in casts)
    given += Model(replace(graph, outputs=rounded)).run(*given)
    graph.inputs, graph.outputs = [*graph.inputs, *rounded], [*graph.outputs, *before]
    graph.ops = [op for op in graph.ops if op not in casts]
    for value in rounded:
        value.producer = None
    file = VgfFile(convert(write(graph)))
    sides = zip(file.run(*given), file.run(*given, engine="vulkan"), strict=True)
    pairs = [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in sides]
    told = [(a.is_floating_point(), decibels([a], [b])) for a, b in pairs]
    return min(found if is_float or found == math.inf else 0.0 for is_float, found in told)


def _casts(graph: Graph) -> list[Op]:
    """Casts of floats to integers inside of a graph: where floats differ, a step may be another."""
    return [
        op for op in graph.ops
        if op.name == "CAST" and op.ins[0].dtype.is_float and op.outs[0].dtype.is_int
    ]  # fmt: skip


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

"""Networks of the zoo with free sizes: one graph of unknown sizes beside a compile for each size.

``python -m judges.dynamic_zoo`` frees the batch, the length, or height and width of every network
that takes other sizes, compiles once and runs at five sizes; names of networks choose some. Each
size has the bits of its own compile with the same quantization, the reference model agrees at one
of them, and float is within rounding of eager.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim

import tosaic
import zoo
from judges.reference import run_reference
from tosaic.errors import TosaicError
from tosaic.files import flatbuffer
from tosaic.ir.specialize import specialize
from tosaic.pipeline.dynamic import DynamicArtifact, with_loops
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import Sizes, sizes_of
from tosaic.targets.catalog import target_of

TARGETS = {"int8": ("TOSA-1.1+INT+shape", "int8"), "float": ("TOSA-1.1+FP+shape", None)}
SIDE = 16  # what heights and widths are multiples of
NAMED = "+dynamic", "+cf"  # what a sentence tells to add to the target
LENGTHS = {"conformer": 2, "wav2letter": 2, "gru_classifier": 1, "lstm_classifier": 1,
           "bert": 1, "minilm": 1}  # fmt: skip


def kinds(name: str, example: tuple[Tensor, ...]) -> dict[str, tuple[Any, list[tuple[int, ...]]]]:
    """What may be free in a network: dynamic_shapes, and five sizes."""
    n = Dim("n", min=2, max=64)
    made: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
        "batch": (tuple({0: n} for _ in example), [(b,) for b in (2, 3, 5, 6, 9)])
    }
    if name in LENGTHS:
        axis = LENGTHS[name]
        size = example[0].shape[axis]
        length = Dim("length", min=max(2, size // 2), max=2 * size)
        lengths = [size // 2, size - 2, size + 5, size + 6, 2 * size]
        made["length"] = tuple({axis: length} for _ in example), [(v,) for v in lengths]
    elif example[0].dim() == 4:
        # Networks for pictures take multiples of the size of their smallest map.
        steps = [SIDE if side % SIDE == 0 else 1 for side in example[0].shape[2:]]
        h, w = (side // step for side, step in zip(example[0].shape[2:], steps))
        height, width = (Dim(n, min=2, max=2 * v) for n, v in (("height", h), ("width", w)))
        sides = [(h, w), (h + 1, w), (h, w + 2), (h + 2, w + 1), (2 * h, w)]
        made["height and width"] = ({2: steps[0] * height, 3: steps[1] * width},), sides
    return made


def is_free(net: torch.nn.Module, other: tuple[Tensor, ...]) -> str:
    """Why a network does not take inputs of another size; nothing where it does."""
    try:
        net(*other)
    except Exception as problem:  # noqa: BLE001  (torch raises many kinds)
        return str(problem).split("\n")[0][:90] or type(problem).__name__
    return ""


def judge(name: str, kind: str, way: str) -> str:
    """What was seen, beginning with "ok", "not free", "refused" or "WRONG"."""
    net, example, data = zoo.build(name)
    shapes, chosen = kinds(name, example)[kind]
    target, scheme = TARGETS[way]
    device = target_of(target + zoo.ZOO[name].extensions)
    sizes = sizes_of(net, example, shapes)
    assert sizes is not None
    if why := is_free(net, sizes.examples_at(chosen[2])):
        return f"not free: {why}"
    while True:
        try:
            looped = with_loops(device, sizes, chosen)
            stored = None
            if scheme is not None:
                stored = calibration_for(sizes, chosen, looped, scheme, data[:4])
            made = tosaic.compile(
                net, example, target=device, scheme=scheme, dynamic_shapes=shapes,
                calibration=stored, check=False,
            )  # fmt: skip
            break
        except TosaicError as refusal:
            lacks = [e for e in NAMED if e in refusal.reason and not device.env.has(e[1:])]
            if not lacks:
                return f"refused: {refusal}"
            device = target_of(f"{device.name}{lacks[0]}")
    assert isinstance(made, DynamicArtifact)
    if made.report.refused or not any(not v.type.is_known for v in made.graph.inputs):
        return f"WRONG: {made.report.refused or 'no size of the graph is unknown'}"
    return _at_sizes(made, sizes, chosen, device, scheme, stored, net)


def _at_sizes(
    made: DynamicArtifact, sizes: Sizes, chosen: list[tuple[int, ...]], device: Any, scheme: Any,
    stored: Any, net: torch.nn.Module,
) -> str:  # fmt: skip
    fixed = with_loops(device, sizes, chosen)
    if fixed is not device:  # a compile for a size writes out all steps
        fixed = replace(target_of(device.name.replace("+cf", "")), traits=fixed.traits)
    far, shapes = 0.0, list[list[tuple[int, ...]]]()
    for values in chosen:
        x = sizes.examples_at(values)
        alone = artifact_at(sizes, values, fixed, scheme, stored, None, {"check": False})
        shapes.append([value.shape for value in alone.graph.inputs])
        got, own = _listed(made.run(*x)), _listed(alone.run(*x))
        if scheme is None:
            far = max(far, *(_distance(a, b) for a, b in zip(got, own)))
            far = max(far, *(_distance(a, b) for a, b in zip(got, _listed(net(*x)))))
        elif not all(torch.equal(a, b) for a, b in zip(got, own, strict=True)):
            return f"WRONG: other bits than a compile for {sizes.told(values)}"
    if far > 1e-3:
        return f"WRONG: {far:.1e} of the largest from eager or a compile for the size"
    told = [name for name in NAMED if device.env.has(name[1:])]
    return f"ok: {', '.join([*told, ''])}{len(chosen)} sizes, {_reference(made, shapes[0])}" + (
        f", {far:.0e} from eager" if scheme is None else ""
    )


def _reference(made: DynamicArtifact, shapes: list[tuple[int, ...]]) -> str:
    """The reference model on the graph, which takes known sizes, beside the file's own run."""
    graph, random = specialize(made.graph, shapes), np.random.default_rng(0)
    given = []
    for value in graph.inputs:
        if value.dtype.is_float:
            given.append(random.standard_normal(value.shape).astype(value.dtype.array))
        else:
            is_index = value.quant is None and value.dtype.bits > 16
            low, high = (0, 1) if is_index else value.limits or value.dtype.range
            given.append(random.integers(low, high + 1, value.shape).astype(value.dtype.array))
    loaded: Any = tosaic.load(made.bytes)
    theirs = run_reference(flatbuffer.write(graph), given)
    for a, b in zip(loaded.run(*given), theirs, strict=True):
        near = np.abs(a.astype(np.float64) - b).max() <= 1e-3 * (np.abs(b).max() + 1e-6)
        if not (near if a.dtype.kind == "f" else np.array_equal(a, b)):
            return "WRONG beside the reference model"
    return "reference model agrees"


def _distance(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max() / (b.double().abs().max() + 1e-12))


def _listed(result: Any) -> list[Tensor]:
    flat: list[Tensor] = torch.utils._pytree.tree_flatten(result)[0]
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(zoo.ZOO))
    parser.add_argument("--way", choices=TARGETS, action="append")
    parser.add_argument("--kind", action="append")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts = dict.fromkeys(("ok", "not free", "refused", "WRONG"), 0)
    for name in options.names:
        if package := zoo.missing(name):
            print(f"{name}: needs {package}")
            continue
        for kind in kinds(name, zoo.samples(name, 1, 0)[0]):
            for way in options.way or TARGETS:
                if options.kind and kind not in options.kind:
                    continue
                start = time.process_time()
                try:
                    said = judge(name, kind, way)
                except Exception as problem:  # noqa: BLE001  (an end of one is no end of all)
                    said = f"WRONG: {type(problem).__name__}: {problem}"
                counts[next(c for c in reversed(counts) if c in said)] += 1
                print(f"{name:20} {kind:17} {way:6} {said} ({time.process_time() - start:.0f} s)",
                      flush=True)  # fmt: skip
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())

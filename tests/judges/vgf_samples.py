"""Every sample of every rule for VGF: what is called supported the model converter takes, the file
holds the graph, and Vulkan computes what the interpreter does.

``python -m judges.vgf_samples`` converts all of them; with ``--vulkan N`` every Nth is run. What is
refused counts as wrong: the converter takes all of them.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from judges.kept import Kept
from judges.rules import Case, cases
from tosaic.errors import TosaicError, Unsupported
from tosaic.interp.model import Model
from tosaic.ir.graph import Array, Graph
from tosaic.ir.verify import verify
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import lowered, operands
from tosaic.lowering.target import Target
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import target_of

KINDS: tuple[DType | None, ...] = (None, I8, I16)
LEAST = {"f32": 100.0, "f16": 50.0, "bf16": 30.0}  # dB between interpreter and Vulkan


@dataclass
class Count:
    """Samples of one type, and sentences about those that are not as they should be."""

    kind: DType | None
    all: int = 0
    supported: int = 0
    run: int = 0
    refused: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        name = self.kind or "float"
        line = f"{name}: {self.supported} of {self.all} samples supported, {self.run} on Vulkan"
        return f"{line}, {len(self.wrong)} wrong"


def part(share: int, seed: int) -> list[Case]:
    """One sample in ``share``, drawn by a seed."""
    chosen = list(cases())
    return random.Random(seed).sample(chosen, len(chosen) // share)


def graph_of(case: Case, target: Target, kind: DType | None) -> tuple[Graph, list[Array]]:
    """A sample's graph as the target would get it, and its inputs."""
    b = Lowering.of(target)
    made = operands(b, case, kind)
    result = lowered(b, case, made, kind)
    b.output(result if result.producer is not None else b.IDENTITY(result))
    graph = target.improve(b.graph)
    if target.workarounds is not None:
        target.workarounds(graph)
    verify(graph, target.env, target.constraints)
    return graph, made.arrays


def outcome(case: Case, kind: DType | None, runs: bool) -> str:
    """What became of a sample: right, refused with the reason, or what is wrong."""
    target = target_of("vgf")
    try:
        graph, arrays = graph_of(case, target, kind)
    except Unsupported as refusal:
        return f"refused: {refusal.reason}"
    assert target.emit is not None
    try:
        made = target.emit(graph, None, False)
        if not runs:
            return "right"
        theirs = target.engines["vulkan"](made).run(*arrays)
    except TosaicError as failure:
        return f"wrong: {failure.reason}"
    problem = _difference(theirs, Model(graph).run(*arrays))
    return f"wrong: {problem}" if problem else "right"


def count(
    chosen: Iterable[Case], kind: DType | None, vulkan: int = 0, kept: Kept | None = None
) -> Count:
    """Lower and convert each sample; every ``vulkan``-th also runs."""
    found, kept = Count(kind), kept or Kept()
    for case in chosen:
        if kind is not None and kind not in case.integers:
            continue
        found.all += 1
        runs = bool(vulkan) and found.all % vulkan == 0
        name = f"{kind or 'float'} {'vulkan' if runs else 'file'} {case}"
        what, _, reason = kept.get(name, partial(outcome, case, kind, runs)).partition(": ")
        if what == "refused":
            found.refused.setdefault(reason, []).append(str(case))
            continue
        found.supported += 1
        found.run += runs
        if what == "wrong":
            found.wrong.append(f"{case}: {reason}")
    return found


def _difference(found: Iterable[Array], wanted: Iterable[Array]) -> str:
    """How far results are apart; nothing if they are equal, or floats near enough."""
    for theirs, ours in zip(found, wanted, strict=True):
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            return f"{theirs.dtype}{theirs.shape} for {ours.dtype}{ours.shape}"
        if ours.dtype.kind in "iub":
            if not np.array_equal(theirs, ours):
                return "another result on Vulkan"
            continue
        real, other = ours.astype(np.float64), theirs.astype(np.float64)
        same = (real == other) | (np.isnan(real) & np.isnan(other))
        noise = float(np.square(np.where(same, 0, real - other)).sum())
        signal = float(np.square(np.where(np.isfinite(real), real, 0)).sum())
        least = LEAST.get({2: "f16", 4: "f32"}[ours.dtype.itemsize], 0.0)
        if not np.isfinite(noise) or 10 * np.log10(max(signal, 1e-12) / max(noise, 1e-30)) < least:
            return f"noise {noise:g} beside {signal:g} on Vulkan"
    return ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vulkan", type=int, default=0)
    parser.add_argument("--results", default="", help="a file that outcomes are kept in")
    parser.add_argument("--kind", choices=[str(kind or "float") for kind in KINDS])
    options = parser.parse_args(argv)
    wrong, kept = 0, Kept(options.results)
    for kind in KINDS:
        if options.kind not in (None, str(kind or "float")):
            continue
        found = count(cases(), kind, options.vulkan, kept)
        print(found, flush=True)
        for sentence in found.wrong:
            print(f"  WRONG {sentence}")
        for reason, names in found.refused.items():
            print(f"  refused {len(names)}: {reason} ({', '.join(names[:4])})")
        wrong += len(found.wrong) + len(found.refused)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

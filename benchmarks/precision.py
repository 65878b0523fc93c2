"""What accuracy costs: int8, a16w8 and automatic precision for 30 dB, network by network.

For each network of the zoo and each device: signal-to-noise ratio on inputs that calibration has
not seen, Vela's cycles, and how much of the extra cycles of a16w8 over int8 `auto` takes. Bounds:
`auto` reaches its goal on its held-out inputs wherever a16w8 does, and the geometric mean of its
share of a16w8's extra cycles is at most one half.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.remove(sys.path[0])  # beside this file lies one with the name of Vela's package
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import torch

import tosaic
import zoo

DEVICES = "ethos-u55-128", "ethos-u85-256"
GOAL, JUDGED, SHARE = 30.0, 16, 0.5
LEAST = 0.01  # of the extra cycles, so that none of them has a logarithm


@dataclass(frozen=True, slots=True)
class Row:
    """A network on a device: decibels and cycles by scheme, and what `auto` says."""

    decibels: dict[str, float]
    cycles: dict[str, int]
    reached: bool
    sentence: str
    seconds: float

    @property
    def share(self) -> float:
        """Of a16w8's extra cycles, those that `auto` takes."""
        extra = self.cycles["a16w8"] - self.cycles["int8"]
        taken = self.cycles["auto"] - self.cycles["int8"]
        return max(taken / extra, LEAST) if extra > 0 else LEAST


def decibels(got: list[Any], real: list[Any]) -> float:
    """The mean over a network's outputs."""
    lists = [
        [list(r) if isinstance(r, (tuple, list)) else [r] for r in side] for side in (got, real)
    ]
    found = []
    for ours, right in zip(zip(*lists[0], strict=True), zip(*lists[1], strict=True), strict=True):
        g, r = (torch.cat([t.double().flatten() for t in side]) for side in (ours, right))
        found.append(float(10 * torch.log10(r.square().sum() / (g - r).square().sum())))
    return sum(found) / len(found)


def measure(name: str, device: str, budget_s: float) -> Row:
    net, example, calibration = zoo.build(name)
    judged = zoo.samples(name, JUDGED, seed=5000)
    with torch.no_grad():
        real = [net.eval()(*each) for each in judged]
    figures, cycles = {}, {}
    for scheme in ("int8", "a16w8", "auto"):
        start = time.process_time()
        more = {"accuracy": tosaic.Goal(sqnr=GOAL), "budget_s": budget_s}
        made = tosaic.compile(
            net, example, target=device, scheme=scheme, calibration=calibration,
            **(more if scheme == "auto" else {}),
        )  # fmt: skip
        figures[scheme] = decibels([made.run(*each, engine="tosa") for each in judged], real)
        cycles[scheme] = sum(d.estimate.cycles for d in made.report.delegates if d.estimate)
    told = made.report.precision
    return Row(figures, cycles, told.reached, told.sentence, time.process_time() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="of the zoo; all if none is named")
    parser.add_argument(
        "--device", action="append", help=f"{' and '.join(DEVICES)} if none is named"
    )
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each search")
    options = parser.parse_args()
    names = [
        n for n in options.networks or zoo.ZOO if not zoo.missing(n) and not zoo.ZOO[n].extensions
    ]
    missed = 0
    for device in options.device or DEVICES:
        heads = [f"{'cycles ' + s:>16}" for s in ("int8", "a16w8", "auto")]
        print(f"{device:20}{'int8':>8}{'a16w8':>8}{'auto':>8}{''.join(heads)}   share   CPU s")
        shares = []
        for name in names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = measure(name, device, options.budget)
            if "calls have 16 bits" in row.sentence:
                shares.append(row.share)
            wrong = not row.reached and "out of reach" not in row.sentence
            missed += wrong
            figures = "".join(f"{value:8.1f}" for value in row.decibels.values())
            figures += "".join(f"{value:16,}" for value in row.cycles.values())
            print(
                f"{name:20}{figures}{row.share:8.2f}{row.seconds:8.0f}  {row.sentence}", flush=True
            )
        if shares:
            mean = math.exp(sum(map(math.log, shares)) / len(shares))
            missed += mean > SHARE
            print(f"{len(shares)} networks between the two: {mean:.2f} of a16w8's extra cycles")
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

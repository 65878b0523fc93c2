"""What accuracy costs: int8, a16w8 and automatic precision for 30 dB, network by network.

For each network of the zoo and each device: signal-to-noise ratio and Vela's cycles of the three,
all from the same calibration data and judged on the inputs that `auto` holds out, `auto` also on
inputs that nothing has seen, and how much of the extra cycles of a16w8 over int8 `auto` takes.
Bounds: `auto` reaches its goal wherever a16w8 does, never takes more cycles than a16w8, and the
geometric mean of its share of a16w8's extra cycles is at most one half.

What was measured is kept in build/precision.json: a run goes on where the last one of the same
sources ended.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from dataclasses import asdict, dataclass
from hashlib import sha256
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
ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "precision.json"


@dataclass(frozen=True, slots=True)
class Row:
    """A network on a device: decibels and cycles by scheme, and what `auto` says."""

    decibels: dict[str, float]
    cycles: dict[str, float]
    unseen: float
    reached: bool
    sentence: str
    seconds: float

    @property
    def share(self) -> float | None:
        """Of a16w8's extra cycles, those that `auto` takes; None where there is nothing between."""
        extra = self.cycles["a16w8"] - self.cycles["int8"]
        taken = self.cycles["auto"] - self.cycles["int8"]
        has_reached = self.reached and self.decibels["int8"] < GOAL
        return max(taken / extra, LEAST) if extra > 0 and has_reached else None

    @property
    def faults(self) -> int:
        """Bounds that it misses."""
        is_short = not self.reached and self.decibels["a16w8"] >= GOAL
        is_silent = not self.reached and "out of reach" not in self.sentence
        return is_short + is_silent + (self.reached and self.cycles["auto"] > self.cycles["a16w8"]
                                       and self.decibels["a16w8"] >= GOAL)  # fmt: skip


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
    start = time.process_time()
    made = tosaic.compile(
        net, example, target=device, scheme="auto", calibration=calibration,
        accuracy=tosaic.Goal(sqnr=GOAL), budget_s=budget_s,
    )  # fmt: skip
    seconds = time.process_time() - start
    told = made.report.precision
    *others, chosen = told.points
    points = {p.name: p for p in others}
    points = {name: points.get(name, chosen) for name in ("int8", "a16w8")} | {"auto": chosen}
    unseen = decibels([made.run(*each, engine="tosa") for each in judged], real)
    return Row(
        {name: p.sqnr for name, p in points.items()}, {name: p.cost for name, p in points.items()},
        unseen, told.reached, told.sentence, seconds,
    )  # fmt: skip


class Rows:
    """The rows of one state of the sources, kept in a file."""

    def __init__(self) -> None:
        files = sorted((ROOT / "src" / "tosaic").rglob("*.py")), [Path(__file__)]
        self.sources = sha256(b"".join(f.read_bytes() for each in files for f in each)).hexdigest()
        known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        self.rows = known.get("rows", {}) if known.get("sources") == self.sources else {}

    def row(self, name: str, device: str, budget_s: float) -> Row:
        key = f"{device} {name}"
        if key not in self.rows:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.rows[key] = asdict(measure(name, device, budget_s))
            KEPT.parent.mkdir(exist_ok=True)
            KEPT.write_text(json.dumps({"sources": self.sources, "rows": self.rows}, indent=1))
        return Row(**self.rows[key])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="of the zoo; all if none is named")
    parser.add_argument(
        "--device", action="append", help=f"{' and '.join(DEVICES)} if none is named"
    )
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for each search")
    options = parser.parse_args()
    names = [
        n for n in options.networks or zoo.ZOO if not zoo.missing(n) and not zoo.ZOO[n].extensions
    ]
    missed, rows = 0, Rows()
    for device in options.device or DEVICES:
        heads = [f"{'cycles ' + s:>15}" for s in ("int8", "a16w8", "auto")]
        print(
            f"{device:20}{'int8':>8}{'a16w8':>8}{'auto':>8}{'unseen':>8}{''.join(heads)}"
            "   share   CPU s"
        )
        shares = []
        for name in names:
            row = rows.row(name, device, options.budget)
            missed += row.faults
            if row.share is not None:
                shares.append(row.share)
            share = "" if row.share is None else f"{row.share:.2f}"
            figures = "".join(f"{value:8.1f}" for value in (*row.decibels.values(), row.unseen))
            figures += "".join(f"{value:15,.0f}" for value in row.cycles.values())
            print(f"{name:20}{figures}{share:>8}{row.seconds:8.0f}  {row.sentence}", flush=True)
        if shares:
            mean = math.exp(sum(map(math.log, shares)) / len(shares))
            missed += mean > SHARE
            print(f"{len(shares)} networks between the two: {mean:.2f} of a16w8's extra cycles")
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What Vela says of our graphs and of the peer's: cycles and memory on Ethos-U, side by side.

Both sides quantize the same network with the same calibration data; the same Vela compiles both,
with the same configuration, and its own estimate is what the table shows. A side that leaves calls
to the CPU has an easier task: it is compared with one that leaves as many or more. What the peer
dies of is a row of its own. `--keep FOLDER` keeps the peer's files, which take minutes each, and
takes them from there the next time.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import peer
import torch

sys.path.pop(0)  # this file must not be taken for Vela's package of the same name

import tosaic
from tosaic.errors import ToolFailed
from tosaic.files import flatbuffer
from tosaic.targets.ethosu.vela import VelaConfig, run_vela

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from zoo.photographs import photographs

import zoo

# Millions of cycles of the better of ExecuTorch and TFLite with Vela 5.2, for pictures of 224
# pixels and random weights: for orientation.
KNOWN = {
    "mobilenet_v2": {"ethos-u55-128": 7.81, "ethos-u85-256": 3.66},
    "resnet18": {"ethos-u55-128": 22.55, "ethos-u85-256": 11.17},
    "mobilenet_v3_small": {"ethos-u55-128": 4.47, "ethos-u85-256": 1.49},
    "squeezenet": {"ethos-u55-128": 4.78, "ethos-u85-256": 3.12},
}
# Cycles beside the peer's, at most, over the networks that have one of these parts.
SEQUENTIAL = frozenset({"attention", "recurrence", "normalisation"})
BOUNDS = {"ethos-u55-128": 0.90, "ethos-u85-256": 0.75}
# What the peer calls the specification of each product.
SPECS = {
    "ethos-u55-128": "TOSA-1.0+INT+int16+int4+u55",
    "ethos-u85-256": "TOSA-1.0+INT+int16+int4+cf",
}


@dataclass(frozen=True)
class Estimate:
    """Cycles and bytes of all graphs of a network, and calls that are left to the CPU."""

    cycles: int
    sram: int
    flash: int
    left: int


def estimate(files: list[bytes], accelerator: str, left: int) -> Estimate:
    found = [run_vela(file, VelaConfig(accelerator)).performance for file in files]
    return Estimate(
        sum(p.total_cycles for p in found),
        max((p.memories.get("Sram", 0) for p in found), default=0),
        sum(p.flash for p in found),
        left,
    )


def ours(name: str, accelerator: str, side: int = 0) -> Estimate:
    """Our side; with pictures of so many pixels a side instead of the network's own inputs."""
    net, examples, calibration = zoo.build(name)
    if side:
        pictures = photographs(4, 0, size=(side, side)).split(1)
        examples, calibration = (pictures[0],), [(each,) for each in pictures]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        art = tosaic.compile(net, examples, target=accelerator, calibration=calibration)
    files = [flatbuffer.write(graph) for graph in art.partition.graphs]
    return estimate(files, accelerator, len(art.report.refused))


def theirs(name: str, accelerator: str, python: str, folder: Path) -> Estimate | str:
    """The peer's side, or what it died of."""
    place = folder / accelerator
    place.mkdir(exist_ok=True, parents=True)
    made = place / f"{name}.graphs"
    try:
        if not made.exists():
            net, _, calibration = zoo.build(name)
            data = [each if isinstance(each, tuple) else (each,) for each in calibration]
            torch.save({"net": net.eval(), "calibration": data}, place / f"{name}.net")
            peer.run(python, "graphs", str(place), name, SPECS[accelerator])
        found = torch.load(made, weights_only=False)
        with ProcessPoolExecutor(1, get_context("fork")) as apart:  # Vela crashes on some
            arguments = (found["files"], accelerator, len(found["kept"]))
            return apart.submit(estimate, *arguments).result()
    except BrokenProcessPool:
        return "Vela crashes on the peer's graph"
    except (SystemExit, ToolFailed) as problem:
        return str(problem).strip().splitlines()[-1][:80]


@dataclass(frozen=True)
class Row:
    """A network on an accelerator, on both sides."""

    name: str
    accelerator: str
    mine: Estimate
    other: Estimate | str | None

    @property
    def ratios(self) -> tuple[float, float] | None:
        """Cycles and SRAM beside the peer's, where it does as much on the NPU."""
        if not isinstance(self.other, Estimate) or self.other.left > self.mine.left:
            return None
        if not self.other.cycles:
            return None
        return self.mine.cycles / self.other.cycles, self.mine.sram / max(self.other.sram, 1)

    def __str__(self) -> str:
        mine, other = self.mine, self.other
        text = f"{self.name:<22}{self.accelerator:<15}{mine.cycles / 1e6:>9.3f}"
        text += f"{mine.sram / 1024:>9.0f}{mine.flash / 1024:>9.0f}{mine.left:>6}"
        if isinstance(other, Estimate):
            text += f" |{other.cycles / 1e6:>9.3f}{other.sram / 1024:>9.0f}"
            text += f"{other.flash / 1024:>9.0f}{other.left:>6} |"
        elif other is not None:
            text += f" | {other}"
        if self.ratios is not None:
            text += "".join(f"{ratio:>7.2f}" for ratio in self.ratios)
            text += "  worse" if max(self.ratios) > 1 else ""
        elif isinstance(other, Estimate):
            text += "  the peer leaves more to the CPU"
        return text


def means(ratios: list[tuple[float, float]]) -> tuple[float, float]:
    """Geometric means of cycles and of SRAM."""
    logs = [[math.log(max(number, 1e-9)) for number in column] for column in zip(*ratios)]
    cycles, sram = (math.exp(sum(column) / len(column)) for column in logs)
    return cycles, sram


def verdict(rows: list[Row]) -> int:
    """Geometric means for each accelerator; how many rows and bounds are missed."""
    missed = 0
    sequential = {name for name in {row.name for row in rows if row.ratios} if is_sequential(name)}
    for accelerator in sorted({row.accelerator for row in rows}):
        mine = [row for row in rows if row.accelerator == accelerator]
        behind = [row.name for row in mine if row.ratios and max(row.ratios) > 1]
        missed += len(behind)
        if found := [row.ratios for row in mine if row.ratios]:
            cycles, sram = means(found)
            print(
                f"{accelerator}: geometric means of {len(found)} networks beside the peer: "
                f"cycles {cycles:.3f}, SRAM {sram:.3f}; worse: {', '.join(behind) or 'none'}"
            )
        if found := [row.ratios for row in mine if row.ratios and row.name in sequential]:
            cycles, sram = means(found)
            missed += cycles > BOUNDS[accelerator]
            print(
                f"{accelerator}: of the {len(found)} with attention, recurrence or normalisation: "
                f"cycles {cycles:.3f}, SRAM {sram:.3f}; cycles may be {BOUNDS[accelerator]:.2f}"
                f"{': missed' if cycles > BOUNDS[accelerator] else ''}"
            )
    return missed


def is_sequential(name: str) -> bool:
    """Whether a network has attention, recurrence or normalisation, by its program."""
    net, example, _ = zoo.build(name)
    with torch.no_grad():
        program = torch.export.export(net.eval(), example, strict=False)
    return not SEQUENTIAL.isdisjoint(zoo.parts(program))


def orientation(networks: list[str], targets: list[str]) -> int:
    """Where we stand beside the figures that are known; how many of them are not beaten."""
    missed = 0
    for name in networks:
        for accelerator in targets if name in KNOWN else ():
            mine, known = ours(name, accelerator, 224).cycles / 1e6, KNOWN[name][accelerator]
            missed += mine >= known
            note = "  not beaten" if mine >= known else ""
            print(f"{name + ' at 224':<26}{accelerator:<15}{mine:>9.2f} beside {known:>6.2f}: "
                  f"{mine / known:.2f}{note}", flush=True)  # fmt: skip
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=sorted(zoo.ZOO))
    parser.add_argument("--target", action="append", choices=sorted(SPECS))
    parser.add_argument("--keep", metavar="FOLDER", help="where the peer's files are kept")
    peer.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<37}{'Mcycles':>9}{'SRAM KiB':>9}{'flash':>9}{'left':>6} | the peer's"
          f"{'| ratios':>32}")  # fmt: skip
    rows = []
    with tempfile.TemporaryDirectory() as place:
        for name in options.networks:
            for accelerator in options.target or sorted(SPECS):
                mine, other = ours(name, accelerator), None
                if options.peer_python:
                    folder = Path(options.keep or place)
                    other = theirs(name, accelerator, options.peer_python, folder)
                rows.append(Row(name, accelerator, mine, other))
                print(rows[-1], flush=True)
    missed = orientation(options.networks, options.target or sorted(SPECS))
    if not options.peer_python:
        print(peer.ABSENT)
    return int(verdict(rows) + missed > 0)


if __name__ == "__main__":
    sys.exit(main())

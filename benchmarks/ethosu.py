"""What Vela says of our graphs and of the peer's: cycles and memory on Ethos-U, side by side.

Both sides quantize the same network with the same calibration data; the same Vela compiles both,
with the same configuration, and its own estimate is what the table shows.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import peer
import torch

sys.path.pop(0)  # this file must not be taken for Vela's package of the same name

import tosaic
from tosaic.errors import ToolFailed
from tosaic.files import flatbuffer
from tosaic.targets.vela import VelaConfig, run_vela

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import zoo

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


def ours(name: str, accelerator: str) -> Estimate:
    net, examples, calibration = zoo.build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        art = tosaic.compile(net, examples, target=accelerator, calibration=calibration)
    files = [flatbuffer.write(graph) for graph in art.partition.graphs]
    return estimate(files, accelerator, len(art.report.refused))


def theirs(name: str, accelerator: str, python: str, folder: Path) -> Estimate | str:
    net, _, calibration = zoo.build(name)
    data = [each if isinstance(each, tuple) else (each,) for each in calibration]
    torch.save({"net": net.eval(), "calibration": data}, folder / f"{name}.net")
    try:
        peer.run(python, "graphs", str(folder), name, SPECS[accelerator])
        found = torch.load(folder / f"{name}.graphs", weights_only=False)
        return estimate(found["files"], accelerator, len(found["kept"]))
    except (SystemExit, ToolFailed) as problem:
        return str(problem).strip().splitlines()[-1][:80]


def row(name: str, accelerator: str, mine: Estimate, other: Estimate | str | None) -> str:
    text = f"{name:<20}{accelerator:<15}{mine.cycles / 1e6:>9.2f}{mine.sram / 1024:>9.0f}"
    text += f"{mine.flash / 1024:>9.0f}{mine.left:>6}"
    if isinstance(other, Estimate):
        text += f" |{other.cycles / 1e6:>9.2f}{other.sram / 1024:>9.0f}{other.left:>6}"
        text += (
            f" |{mine.cycles / max(other.cycles, 1):>7.2f}{mine.sram / max(other.sram, 1):>7.2f}"
        )
    elif other is not None:
        text += f" | {other}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=sorted(zoo.ZOO))
    parser.add_argument("--target", action="append", choices=sorted(SPECS))
    peer.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<35}{'Mcycles':>9}{'SRAM KiB':>9}{'flash':>9}{'left':>6} | the peer's | ratios")
    worse, ratios = 0, []
    with tempfile.TemporaryDirectory() as place:
        for name in options.networks:
            for accelerator in options.target or sorted(SPECS):
                mine, other = ours(name, accelerator), None
                if options.peer_python:
                    other = theirs(name, accelerator, options.peer_python, Path(place))
                print(row(name, accelerator, mine, other), flush=True)
                if isinstance(other, Estimate) and other.left <= mine.left:
                    ratios.append(mine.cycles / max(other.cycles, 1))
                    worse += mine.cycles > other.cycles or mine.sram > other.sram
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of cycles beside the peer: {mean:.2f}; worse in {worse} rows")
    elif not options.peer_python:
        print(peer.ABSENT)
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())

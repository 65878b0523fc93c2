"""Accuracy by class of network and number of calibration inputs: int8 and int16 activations.

Five classes that lose accuracy in integers (`class_networks.py`): spectra inside of the model, few
calibration inputs, channels of uneven ranges, long sums and recurrences, detectors. The figure is
SQNR in decibels over inputs that calibration has not seen. `--peer` adds the peer's int8 column,
which takes minutes. Bounds: 16 bits are never worse than 8; from 64 calibration inputs to 2 a16w8
loses at most 3 dB; spectra have 40 dB in a16w8; int8 is at most 1 dB below the peer.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import class_networks
import peer

sys.path.remove(sys.path[0])  # beside this file lies one with the name of Vela's package

import torch
from torch import Tensor

import tosaic

COUNTS = 2, 8, 64
SCHEMES = "int8", "a16w8"
JUDGED = 16
DROP, SPECTRAL, BELOW_PEER = 3.0, 40.0, 1.0
TARGET = "TOSA-1.0+INT+int16"


def decibels(got: list[Tensor], real: list[Tensor], columns: tuple[int, ...]) -> float:
    """SQNR, the mean over the groups of columns that are judged apart."""
    found = []
    cuts = (0, *columns, real[0].shape[-1])
    for low, high in itertools.pairwise(cuts):
        r = torch.cat([t[..., low:high].double() for t in real])
        g = torch.cat([t[..., low:high].double() for t in got])
        found.append(10 * torch.log10(r.square().sum() / (g - r).square().sum().clamp(min=1e-30)))
    return float(torch.stack(found).mean())


def measure(name: str, scheme: Any, count: int, target: str) -> float:
    case, net = class_networks.CASES[name], class_networks.build(name)
    calibration = list(case.inputs(64, 100)[:count].split(1))
    judged = list(case.inputs(JUDGED, 7000).split(1))
    with torch.no_grad():
        real = [net(x) for x in judged]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = tosaic.compile(
            net, (judged[0],), target=target, scheme=scheme, calibration=calibration
        )
    return decibels([made.run(x) for x in judged], real, case.columns)


def peers(names: list[str], python: str) -> dict[tuple[str, int], float]:
    """The peer's int8 for the same networks and inputs."""
    found = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in names:
            case, net = class_networks.CASES[name], class_networks.build(name)
            judged = [(x,) for x in case.inputs(JUDGED, 7000).split(1)]
            exported = torch.export.export(net, judged[0], strict=False)
            for count in COUNTS:
                stem = f"{name}.{count}"
                calibration = [(x,) for x in case.inputs(64, 100)[:count].split(1)]
                torch.export.save(exported, folder / f"{stem}.pt2")
                inputs = {"calibration": calibration, "evaluation": judged}
                torch.save(inputs, folder / f"{stem}.inputs")
        peer.run(python, "accuracy", str(folder))
        for name in names:
            case, net = class_networks.CASES[name], class_networks.build(name)
            with torch.no_grad():
                real = [net(x) for x in case.inputs(JUDGED, 7000).split(1)]
            for count in COUNTS:
                theirs = torch.load(folder / f"{name}.{count}.peer")
                if "outputs" in theirs:
                    got = [r[0] if isinstance(r, (tuple, list)) else r for r in theirs["outputs"]]
                    found[name, count] = decibels(got, real, case.columns)
    return found


def misses(kind: str, row: dict[tuple[str, int], float]) -> list[str]:
    """Which bounds a network misses."""
    found = [f"16 bits below 8 with {n}" for n in COUNTS if row["a16w8", n] < row["int8", n]]
    if row["a16w8", 64] - row["a16w8", 2] > DROP:
        found.append(f"{row['a16w8', 64] - row['a16w8', 2]:.1f} dB lost with 2 inputs")
    if kind == "spectral" and row["a16w8", 64] < SPECTRAL:
        found.append(f"below {SPECTRAL:.0f} dB")
    found += [
        f"below the peer with {n}" for n in COUNTS
        if row["int8", n] < row.get(("peer", n), -1e9) - BELOW_PEER
    ]  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", help="or classes; all if none is named")
    peer.add_option(parser)
    parser.add_argument("--peer", action="store_true", help="the peer's int8 as well")
    parser.add_argument("--target", default=TARGET)
    options = parser.parse_args()
    cases = class_networks.CASES
    names = [
        n for n, c in cases.items() if not options.networks or {n, c.kind} & {*options.networks}
    ]
    theirs = peers(names, options.peer_python) if options.peer else {}
    heads = [f"{s} {n}" for s in SCHEMES for n in COUNTS]
    print(f"{'class':10}{'network':16}" + "".join(f"{h:>10}" for h in heads), flush=True)
    missed = 0
    for name in names:
        row = {(s, n): measure(name, s, n, options.target) for s in SCHEMES for n in COUNTS}
        figures = "".join(f"{value:10.1f}" for value in row.values())
        row |= {("peer", n): theirs[name, n] for n in COUNTS if (name, n) in theirs}
        beside = "".join(f"{row['peer', n]:8.1f}" for n in COUNTS if ("peer", n) in row)
        wrong = misses(cases[name].kind, row)
        missed += len(wrong)
        print(f"{cases[name].kind:10}{name:16}{figures}{beside}  {'; '.join(wrong)}", flush=True)
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

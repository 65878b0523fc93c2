"""Is int8 as near to float as the peer's? Every network of the zoo, and digits that people wrote.

Both sides get the same exported program, the same calibration data and the same inputs to be
judged by, which calibration has not seen. Ours is the run of the compiled bytes; the peer's is its
converted program in PyTorch. The figure is the power of the float result over the power of the
error, in decibels, for each output; of a network the outputs count together.

With ``--schemes`` it is int16 activations, int4 weights and block-scaled types beside int8 instead,
on our side alone: int16 has to gain, int4 may cost, and training with rounding has to win back what
it costs.
`--keep FOLDER` keeps the peer's answers, which take minutes each, and takes them from there the
next time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peer
import torch
from torch import Tensor, nn

import tosaic

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import qat_digits

import zoo
from zoo import digits, listening

JUDGED = 32  # inputs
LOST = 0.5  # percentage points of digits
AGREED = 95.0  # percent of frames of speech or none, where 16 bits are to be had
TARGET = "TOSA-1.0+INT"
AHEAD = 3.0  # decibels on average, over networks that have one of these
ATTENTIVE = frozenset({"attention", "normalisation", "softmax"})
GAIN = 6.0  # decibels of int16 activations over int8
SCHEMES = {"int8": TARGET, "a16w8": f"{TARGET}+int16", "a8w4": f"{TARGET}+int4"}
BLOCKS = dict.fromkeys(("mxfp8", "mxfp4"), "TOSA-1.1+FP+mxfp")  # which are not calibrated


@dataclass(frozen=True, slots=True)
class Row:
    """A network's decibels, ours and the peer's; why there are none."""

    name: str
    ours: float
    peers: float | None
    note: str = ""
    is_attentive: bool = False

    @property
    def missed(self) -> bool:
        return self.peers is not None and self.ours < self.peers


def outputs(results: list[Any]) -> list[Tensor]:
    """Each output over all inputs."""
    lists = [list(r) if isinstance(r, (tuple, list)) else [r] for r in results]
    return [torch.cat([one.double() for one in column]) for column in zip(*lists, strict=True)]


def decibels(got: list[Any], real: list[Any]) -> float:
    """The mean over a network's outputs: each has a scale of its own."""
    found = [
        10 * torch.log10(r.square().sum() / (g - r).square().sum())
        for g, r in zip(outputs(got), outputs(real), strict=True)
    ]
    return float(torch.stack(found).mean())


def prepare(name: str, folder: Path) -> nn.Module:
    """Leave a network and its inputs where both sides find them."""
    net, example, calibration = zoo.build(name)
    if (folder / f"{name}.peer").exists():
        return net
    with torch.no_grad():
        exported = torch.export.export(net.eval(), example, strict=False)
    torch.export.save(exported, folder / f"{name}.pt2")
    judged = zoo.samples(name, JUDGED, seed=5000)
    torch.save({"calibration": calibration, "evaluation": judged}, folder / f"{name}.inputs")
    return net


def measure(name: str, net: nn.Module, folder: Path, beside: bool) -> Row:
    """Ours now; the peer's from what it left."""
    inputs = torch.load(folder / f"{name}.inputs")
    exported = torch.export.load(folder / f"{name}.pt2")
    with torch.no_grad():
        real = [net(*each) for each in inputs["evaluation"]]
    example = inputs["evaluation"][0]
    art = tosaic.compile(exported, example, target=TARGET, calibration=inputs["calibration"])
    ours = decibels([art.run(*each) for each in inputs["evaluation"]], real)
    note = f"{len(art.report.refused)} calls stay in float" if art.report.refused else ""
    is_attentive = not ATTENTIVE.isdisjoint(zoo.parts(exported))
    if not beside:
        return Row(name, ours, None, note)
    theirs = torch.load(folder / f"{name}.peer")
    if "problem" in theirs:
        return Row(name, ours, None, f"the peer fails: {theirs['problem'][:60]}")
    return Row(name, ours, decibels(theirs["outputs"], real), note, is_attentive)


def compare(names: list[str], python: str | None, keep: Path | None) -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        folder = keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        nets = {name: prepare(name, folder) for name in names}
        if python:
            peer.run(python, "accuracy", str(folder))
        return [measure(name, net, folder, bool(python)) for name, net in nets.items()]


def show(rows: list[Row]) -> None:
    print(f"{'network':20}{'ours':>9}{'peer':>9}{'ahead':>9}")
    for row in rows:
        peers, ahead = "-", ""
        if row.peers is not None:
            peers, ahead = f"{row.peers:.1f}", f"{row.ours - row.peers:+.1f} dB"
        verdict = "below the peer" if row.missed else row.note
        print(f"{row.name:20}{row.ours:9.1f}{peers:>9}{ahead:>9}  {verdict}")


def lead(rows: list[Row]) -> int:
    """How far ahead we are with softmax, norms or attention; whether that is too little."""
    ahead = [row.ours - row.peers for row in rows if row.is_attentive and row.peers is not None]
    if not ahead:
        return 0
    mean = sum(ahead) / len(ahead)
    print(
        f"{mean:+.1f} dB on average over {len(ahead)} networks with {', '.join(sorted(ATTENTIVE))}"
    )
    return int(mean < AHEAD)


def by_scheme(names: list[str]) -> int:
    """A table of schemes, networks and digits; how many bounds are missed."""
    columns = {**SCHEMES, **BLOCKS}
    print(f"{'network':20}" + "".join(f"{name:>9}" for name in columns) + f"{'gain':>9}")
    missed = 0
    for name in names:
        if package := zoo.missing(name):
            print(f"{name:20}not measured: {package} is not installed")
            continue
        net, example, calibration = zoo.build(name)
        judged = zoo.samples(name, JUDGED, seed=5000)
        with torch.no_grad():
            real = [net.eval()(*each) for each in judged]
        found = {}
        for scheme, target in columns.items():
            data = None if scheme in BLOCKS else calibration
            art = tosaic.compile(net, example, target=target, scheme=scheme, calibration=data)
            found[scheme] = decibels([art.run(*each) for each in judged], real)
        gain = found["a16w8"] - found["int8"]
        missed += gain < GAIN
        figures = "".join(f"{value:9.1f}" for value in found.values())
        print(f"{name:20}{figures}{gain:+9.1f}{'' if gain >= GAIN else '  too little'}", flush=True)
    for name, percent in digits.by_scheme(SCHEMES).items():
        print(f"digits, {name:18}{percent:8.2f} %")
    small = qat_digits.results()
    for name, percent in small.items():
        print(f"fewer weights, {name:14}{percent:5.2f} %")
    learnt = small["a8w4, trained"]
    missed += learnt < small["float"] - 1 or learnt <= small["a8w4"]
    return missed


def listen() -> int:
    """Silero VAD over a recording; how many bounds are missed."""
    if package := zoo.missing("silero_vad"):
        print(f"speech: not measured, {package} is not installed")
        return 0
    found = listening.accuracy()
    print(f"{'speech':40}{'as float':>10}{'right':>10}")
    for name, (same, right) in found.items():
        print(f"{name:40}{same:8.1f} %{right:8.1f} %")
    return sum(found[name][0] < AGREED for name, (t, _) in listening.FORMS.items() if "int16" in t)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[], help="of the zoo; all if none is named")
    peer.add_option(parser)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the peer's answers")
    parser.add_argument("--schemes", action="store_true", help="int16 and int4 beside int8")
    options = parser.parse_args()
    names = options.networks or list(zoo.ZOO)
    if options.schemes:
        missed = by_scheme(names)
        print(f"{missed} bounds missed" if missed else "all bounds hold")
        return 1 if missed else 0
    rows = compare(names, options.peer_python, options.keep)
    show(rows)
    if not options.peer_python:
        print(f"not judged: {peer.ABSENT}")
    real, int8 = digits.accuracy()
    print(f"digits: {real:.2f} % in float, {int8:.2f} % in int8, {real - int8:.2f} points lost")
    missed = sum(row.missed for row in rows) + lead(rows) + (real - int8 > LOST) + listen()
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

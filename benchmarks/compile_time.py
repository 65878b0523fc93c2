"""How long compiling takes, beside the peer: CPU seconds of one thread, children included.

For each network, those for pictures at 224×224: from one and the same converted program to TOSA;
from an nn.Module to TOSA in a fresh process, with export, calibration on 4 inputs and all; and that
with the loading of Python modules counted too, most of which are PyTorch's. `--keep FOLDER` keeps
the peer's figures and programs, which take minutes each, and takes them from there the next time.
"""

from __future__ import annotations

import argparse
import compileall
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import peer
import torch
from networks import whole

import tosaic
import tosaic.quant  # registers what converted programs call
from tosaic.pipeline.artifact import Artifact

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from zoo.photographs import photographs

import zoo

PICTURES = ("mobilenet_v2", "resnet18")
NETWORKS = (*PICTURES, "minilm")
SIZE, CALIBRATION = (224, 224), 4
LOWERING, WHOLE = 40.0, 8.0  # times as fast as the peer
TARGET = "TOSA-1.0+INT"


def seconds(run: Callable[[], object]) -> float:
    start = whole.cpu()
    run()
    return whole.cpu() - start


def save(name: str, folder: Path, converted: bool) -> None:
    """Leave a network and its inputs where both sides find them; a program, if no peer does."""
    net, _, _ = zoo.build(name)
    calibration = zoo.samples(name, CALIBRATION, 7)
    if name in PICTURES:
        calibration = [(each,) for each in photographs(CALIBRATION, 7, SIZE).split(1)]
    torch.save({"net": net.eval(), "calibration": calibration}, folder / f"{name}.net")
    if converted:
        program = tosaic.quantize(net, calibration[0], calibration=calibration)
        with torch.no_grad():
            exported = torch.export.export(program, calibration[0], strict=False)
        torch.export.save(exported, folder / f"{name}.pt2")


def lowering(name: str, folder: Path) -> tuple[float, int]:
    """From the converted program to bytes, the best of three runs, and how many calls are left."""
    with suppress(ImportError):  # registers what the peer's programs call, if they take indices
        import executorch.exir.passes.dim_order_ops_registry  # noqa: F401
    example = torch.load(folder / f"{name}.net", weights_only=False)["calibration"][0]

    def once() -> tuple[float, int]:
        module = torch.export.load(folder / f"{name}.pt2").module(check_guards=False)
        made: list[Artifact] = []

        def run() -> None:
            made.append(tosaic.compile(module, example, target=TARGET))
            assert made[0].files

        return seconds(run), len(made[0].report.refused)

    return min(once() for _ in range(3))


def from_module(name: str, folder: Path) -> tuple[float, float]:
    """From an nn.Module to bytes in a process of its own: all of it, and imports alone."""
    command = [sys.executable, whole.__file__, str(folder / f"{name}.net")]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | peer.THREADS
    )
    everything, imports = map(float, done.stdout.split()[-2:])
    return everything, imports


def line(what: str, ours: float, peers: float | None, bound: float) -> bool:
    """Print a comparison; whether the bound is missed."""
    if peers is None:
        print(f"{what:42}{ours:9.2f} s{'-':>11}")
        return False
    ratio = peers / ours
    verdict = "" if ratio >= bound else "  MISSED"
    said = f" (bound {bound:.0f}){verdict}" if bound else ""
    print(f"{what:42}{ours:9.2f} s{peers:9.1f} s{ratio:8.1f} times{said}")
    return ratio < bound


def beside(names: list[str], python: str | None, folder: Path) -> int:
    theirs: dict[str, dict[str, float]] = {name: {} for name in names}
    for name in names:
        save(name, folder, converted=not python)
        for mode, suffix in (("lowering", ".peer"), ("whole", ".whole")) if python else ():
            if not (folder / f"{name}{suffix}").exists():
                peer.run(python, mode, str(folder), name)
            theirs[name] |= torch.load(folder / f"{name}{suffix}")
    print(f"{'':42}{'Tosaic':>11}{'peer':>11}")
    missed = 0
    for name in names:
        found = theirs[name]
        lower, left = lowering(name, folder)
        missed += line(f"{name}: converted program to TOSA", lower, found.get("seconds"), LOWERING)
        if left:
            print(f"  Tosaic leaves {left} calls of that program to the CPU")
        everything, imports = from_module(name, folder)
        whole = found.get("whole")
        rest = None if whole is None else whole - found["imports"]
        missed += line(f"{name}: nn.Module to TOSA", everything - imports, rest, WHOLE)
        line(f"{name}: the same with Python's imports", everything, whole, 0.0)
        if found.get("kept"):
            print(f"  the peer leaves {len(found['kept'])} calls to the CPU")  # type: ignore[arg-type]
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[], help=", ".join(NETWORKS))
    parser.add_argument("--keep", metavar="FOLDER", help="where the peer's files are kept")
    peer.add_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    compileall.compile_dir(Path(tosaic.__file__).parent, quiet=1)  # as what pip installs is
    for name in filter(zoo.missing, NETWORKS):
        print(f"{name} is left out: it needs {zoo.missing(name)}")
    names = options.networks or [name for name in NETWORKS if not zoo.missing(name)]
    with tempfile.TemporaryDirectory() as place:
        missed = beside(names, options.peer_python, Path(options.keep or place))
    if not options.peer_python:
        print(f"not judged: {peer.ABSENT}")
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

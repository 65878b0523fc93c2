"""From an nn.Module to a ``.vgf``: CPU seconds, operators and accuracy beside ExecuTorch's backend.

Each side runs in a process of its own, one thread, children counted: imports, export, calibration
on four inputs, lowering, the model converter and the file; both are bytecode already. What this
script does before, and reading the network, counts for neither. Operators are counted, and the
noise of int8 is measured on other inputs, in the files of both sides by Tosaic's own reader and
interpreter.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from peer.whole import cpu, measured, peer_program

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"]
NETWORKS = ("mobilenet_v2", "squeezenet", "resnet18", "ds_cnn", "unet")
TIMES, OPERATORS = 20.0, 0.9  # as fast with imports; of the other side's operators
TESTS = 64  # inputs that noise is measured on: among few, chance decides


def tosaic_side(net: Any, calibration: list[tuple[Any, ...]], path: str) -> None:
    import tosaic

    made = tosaic.compile(net, calibration[0], target="vgf", scheme="int8", calibration=calibration)
    made.save(path)


def peer_side(net: Any, calibration: list[tuple[Any, ...]], path: str) -> None:
    """The flow of the other backend's documentation; the file is its delegate."""
    from executorch.backends.arm.quantizer import VgfQuantizer
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner

    spec = VgfCompileSpec()
    ways = VgfQuantizer(spec), VgfPartitioner(spec)
    data = bytes(peer_program(net, calibration, *ways)[0].buffer)
    Path(path).write_bytes(data[data.index(b"VGF1") :])


def side(name: str, network: str, path: str) -> None:
    """One side in this process; prints what it took."""
    begun = cpu()
    import torch

    imported = cpu()
    saved = torch.load(network, weights_only=False)
    loaded = cpu()
    run = tosaic_side if name == "tosaic" else peer_side
    run(saved["net"], saved["calibration"], path)
    print(json.dumps(cpu() - loaded + imported - begun))


def measure(name: str, python: str, network: Path) -> tuple[float, Path]:
    """Seconds with imports, and the file."""
    path = network.with_suffix(f".{name}.vgf")
    return float(measured(__file__, name, python, str(network), str(path))), path


def figures(path: Path, net: Any, tests: list[tuple[Any, ...]]) -> tuple[int, float]:
    """Operators of a file, and its signal beside the noise of int8 in dB."""
    import numpy as np
    import torch

    import tosaic

    model = tosaic.load(path)
    noise = signal = 0.0
    for arguments in tests:
        with torch.no_grad():
            right = net(*arguments).numpy().astype(np.float64)
        ours = model.run(*(a.numpy().reshape(p.shape) for a, p in zip(arguments, model.inputs)))[0]
        noise += float(np.square(ours.reshape(right.shape) - right).sum())
        signal += float(np.square(right).sum())
    return len(model.graph.ops), 10 * float(np.log10(signal / max(noise, 1e-30)))


def compared(name: str, options: argparse.Namespace) -> bool:
    """Print a network's line; whether the bounds hold."""
    import torch

    import zoo

    net, _, _ = zoo.build(name)
    net, calibration, tests = net.eval(), zoo.samples(name, 4, 7), zoo.samples(name, TESTS, 77)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.net"
        torch.save({"net": net, "calibration": calibration}, file)
        runs = [measure("tosaic", sys.executable, file) for _ in range(options.runs)]
        seconds, path = min(runs)
        count, decibels = figures(path, net, tests)
        line = f"{name:<20}{f'{seconds:.2f} s, {count}, {decibels:.2f} dB':>26}"
        if options.alone:
            print(line, flush=True)
            return True
        other, path = measure("peer", options.peer_python, file)
        theirs, other_decibels = figures(path, net, tests)
    held = count <= OPERATORS * theirs and decibels >= other_decibels
    held &= name != "mobilenet_v2" or other >= TIMES * seconds
    told = f"{other:.1f} s, {theirs}, {other_decibels:.2f} dB"
    ratios = f"{other / seconds:.1f} times, {count / theirs:.2f}"
    print(f"{line}{told:>28}{ratios:>20}{'' if held else '  MISSED'}", flush=True)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", nargs=3, metavar=("NAME", "NETWORK", "PATH"))
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--peer-python", default=os.environ.get("PEER_PYTHON", sys.executable))
    parser.add_argument("--alone", action="store_true", help="measure Tosaic only")
    parser.add_argument("--runs", type=int, default=2, help="of Tosaic; the best counts")
    options = parser.parse_args()
    if options.side:
        side(*options.side)
        return 0
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "src")]
    compileall.compile_dir(ROOT / "src", quiet=1)  # as what pip installs is
    head = "CPU s, operators, dB"
    print(f"{'':<20}{'Tosaic: ' + head:>26}{'peer: ' + head:>28}")
    held = [compared(name, options) for name in options.networks]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

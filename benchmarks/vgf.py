"""From an nn.Module to a ``.vgf``: CPU seconds, operators and accuracy beside ExecuTorch's backend.

Each side runs in a process of its own, one thread, children counted: imports, export, calibration
on four inputs, lowering, the model converter and the file; both are bytecode already. Operators
are counted, and the noise of int8 is measured, in the files of both sides by Tosaic's own reader
and interpreter.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"]
NETWORKS = ("mobilenet_v2", "squeezenet", "resnet18", "ds_cnn", "unet")
THREADS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
TIMES, OPERATORS = 20.0, 0.9  # as fast with imports; of the other side's operators


def cpu() -> float:
    """CPU seconds of this process and of those that it started and that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def tosaic_side(net: Any, calibration: list[tuple[Any, ...]], path: str) -> None:
    import tosaic

    made = tosaic.compile(net, calibration[0], target="vgf", scheme="int8", calibration=calibration)
    made.save(path)


def peer_side(net: Any, calibration: list[tuple[Any, ...]], path: str) -> None:
    """The flow of the other backend's documentation; the file is its delegate."""
    import torch
    from executorch.backends.arm.quantizer import VgfQuantizer, get_symmetric_quantization_config
    from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    spec = VgfCompileSpec()
    quantizer = VgfQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    with torch.no_grad():
        exported = torch.export.export(net, calibration[0], strict=False)
        prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
        for arguments in calibration:
            prepared(*arguments)
        again = torch.export.export(convert_pt2e(prepared), calibration[0], strict=False)
        edge = to_edge_transform_and_lower(again, partitioner=[VgfPartitioner(spec)])
        data = bytes(edge.to_executorch().buffer)
    Path(path).write_bytes(data[data.index(b"VGF1") :])


def side(name: str, network: str, path: str) -> None:
    """One side in this process; prints what it took."""
    import torch

    saved = torch.load(network, weights_only=False)
    run = tosaic_side if name == "tosaic" else peer_side
    run(saved["net"], saved["calibration"], path)
    print(json.dumps(cpu()))


def measure(name: str, python: str, network: Path) -> tuple[float, Path]:
    """Seconds with imports, and the file."""
    path = network.with_suffix(f".{name}.vgf")
    search = os.pathsep.join([str(ROOT / "src"), str(ROOT / "examples")])
    command = [python, "-W", "ignore", __file__, "--side", name, str(network), str(path)]
    programs = os.pathsep.join([str(Path(python).parent), os.environ.get("PATH", "")])
    known = {**os.environ, **THREADS, "PYTHONPATH": search, "PATH": programs}
    done = subprocess.run(command, env=known, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])), path


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
    net, calibration, tests = net.eval(), zoo.samples(name, 4, 7), zoo.samples(name, 8, 77)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.net"
        torch.save({"net": net, "calibration": calibration}, file)
        runs = [measure("tosaic", sys.executable, file) for _ in range(options.runs)]
        seconds, path = min(runs)
        count, decibels = figures(path, net, tests)
        line = f"{name:<20}{f'{seconds:.1f} s, {count}, {decibels:.1f} dB':>26}"
        if options.alone:
            print(line, flush=True)
            return True
        other, path = measure("peer", options.peer_python, file)
        theirs, other_decibels = figures(path, net, tests)
    held = count <= OPERATORS * theirs and decibels >= other_decibels - 0.5
    held &= name != "mobilenet_v2" or other >= TIMES * seconds
    told = f"{other:.1f} s, {theirs}, {other_decibels:.1f} dB"
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

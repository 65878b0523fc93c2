"""From an nn.Module to a ``.pte`` for an Ethos-U: CPU seconds beside ExecuTorch's own backend.

Each side runs in a process of its own, one thread, children counted: imports, export, calibration
on four inputs, lowering, Vela and the file. Both get the same network and the same inputs, and are
bytecode already, as what pip installs is. Ours is the best of ``--runs``. `--keep FOLDER` keeps the
peer's figures, and takes them from there the next time.
"""

from __future__ import annotations

import argparse
import compileall
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from peer.whole import cpu, measured, peer_program

ROOT = Path(__file__).resolve().parent.parent
# Beside this file lies one with the name of Vela's package.
sys.path[:] = [path for path in sys.path if Path(path).resolve() != ROOT / "benchmarks"]
PICTURES = ("mobilenet_v2", "resnet18")
NETWORKS = (*PICTURES, "minilm")
U55, U85 = "ethos-u55-128", "ethos-u85-256"
TARGETS = {"minilm": (U85,)}  # the peer has no attention for the others
# Times as fast as the other side, with imports and without.
BOUNDS = {"mobilenet_v2": (5.0, 8.0), "resnet18": (5.0, 8.0), "minilm": (5.0, 5.0)}


def tosaic_side(net: Any, calibration: list[tuple[Any, ...]], target: str, path: str) -> float:
    """CPU seconds when everything is imported, the file written after them."""
    import tosaic
    from tosaic.runtime.gc import of_new_objects

    with of_new_objects():  # as tosaic.compile imports it
        import tosaic.executorch.package
        import tosaic.pipeline.driver
        import tosaic.quant

    from tosaic.targets.ethosu.vela_processes import stop

    imported = cpu()
    tosaic.compile(net, calibration[0], target=target, calibration=calibration).save(path)
    stop()  # seconds of processes count when they have ended
    return imported


def peer_side(net: Any, calibration: list[tuple[Any, ...]], target: str, path: str) -> float:
    """The flow of the other backend's documentation."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
    from executorch.backends.arm.quantizer import EthosUQuantizer

    spec = EthosUCompileSpec(target)
    ways = EthosUQuantizer(spec), EthosUPartitioner(spec)
    program, imported = peer_program(net, calibration, *ways)
    program.save(path)
    return imported


def side(name: str, network: str, target: str, path: str) -> None:
    """One side in this process; prints what it took."""
    import torch

    saved = torch.load(network, weights_only=False)
    loading = cpu()
    run = tosaic_side if name == "tosaic" else peer_side
    start = run(saved["net"], saved["calibration"], target, path)
    print(json.dumps({"whole": cpu(), "imported": start, "loading": loading}))


def measure(name: str, python: str, network: Path, target: str) -> tuple[float, float]:
    """Seconds with imports and without."""
    path = network.with_suffix(f".{name}.{target}.pte")
    found = measured(__file__, name, python, str(network), target, str(path))
    return found["whole"], found["whole"] - found["imported"]


def of_peer(python: str, network: Path, target: str, keep: str | None) -> tuple[float, float]:
    """The other side's seconds, or those of an earlier run."""
    kept = Path(keep or network.parent) / f"{network.stem}.{target}.seconds"
    if not kept.exists():
        kept.write_text(json.dumps(measure("peer", python, network, target)))
    whole, bare = json.loads(kept.read_text())
    return whole, bare


def save_network(name: str, file: Path) -> None:
    import torch

    import zoo

    net, _, _ = zoo.build(name)
    torch.manual_seed(7)
    calibration = zoo.samples(name, 4, 7)
    if name in PICTURES:
        calibration = [(torch.randn(1, 3, 224, 224),) for _ in range(4)]
    torch.save({"net": net.eval(), "calibration": calibration}, file)


def compared(name: str, target: str, options: argparse.Namespace) -> bool:
    """Print a network's line; whether the bounds hold."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.net"
        save_network(name, file)
        runs = [measure("tosaic", sys.executable, file, target) for _ in range(options.runs)]
        whole, bare = (min(run[i] for run in runs) for i in range(2))
        line = f"{name + ', ' + target:<40}{f'{whole:.1f} {bare:.1f}':>16}"
        if options.alone:
            print(line, flush=True)
            return True
        other, other_bare = of_peer(options.peer_python, file, target, options.keep)
    ratios = other / whole, other_bare / bare
    held = all(ratio >= bound for ratio, bound in zip(ratios, BOUNDS[name]))
    theirs, times = f"{other:.1f} {other_bare:.1f}", f"{ratios[0]:.1f} {ratios[1]:.1f}"
    print(f"{line}{theirs:>18}{times:>14}{'' if held else '  MISSED'}", flush=True)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", nargs=4, metavar=("NAME", "NETWORK", "TARGET", "PATH"))
    parser.add_argument("--networks", nargs="*")
    parser.add_argument("--targets", nargs="*", help="where not those of the network")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--keep", metavar="FOLDER", help="where the peer's figures are kept")
    parser.add_argument("--alone", action="store_true", help="measure Tosaic only")
    parser.add_argument("--runs", type=int, default=3, help="of Tosaic; the best counts")
    options = parser.parse_args()
    if options.side:
        side(*options.side)
        return 0
    sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "src")]
    import zoo

    for name in filter(zoo.missing, NETWORKS):
        print(f"{name} is left out: it needs {zoo.missing(name)}")
    compileall.compile_dir(ROOT / "src", quiet=1)
    names = options.networks or [name for name in NETWORKS if not zoo.missing(name)]
    print(f"{'CPU seconds, with and without imports':<40}{'Tosaic':>16}{'peer':>18}{'times':>14}")
    held = [
        compared(name, target, options)
        for name in names
        for target in options.targets or TARGETS.get(name, (U55, U85))
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

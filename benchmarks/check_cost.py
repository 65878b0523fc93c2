"""What checking costs: seconds of ``tosaic.compile`` with all checks, beside none of them.

With them, as users have it, every stream is compared with its TOSA graph, and Vela runs in a
process of its own, whose start counts; without, ``check=False`` and Vela in this process. Both run
in turn in one process; the best of ``--runs`` counts. The bound is for the time that a user waits;
the last column is the ratio of CPU seconds, children counted: the interpreter runs beside Vela.
``--profile`` prints where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.remove(sys.path[0])  # beside this file lies one with the name of Vela's package
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

import torch
from torch import Tensor, nn

import tosaic
import zoo
from tosaic.targets.ethosu import vela_processes, vela_worker

TARGETS = ("ethos-u55-128", "ethos-u85-256")
# Times as many seconds with the checks as without them.
BOUNDS = {"mobilenet_v2": 1.3, "resnet18": 1.3, "minilm": 1.3, "resnet50": 1.5}


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut."""

    def __init__(self, cin: int, width: int, stride: int) -> None:
        super().__init__()
        cout = 4 * width
        self.inner = nn.Sequential(
            nn.Conv2d(cin, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if cin != cout or stride > 1:
            conv = nn.Conv2d(cin, cout, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(cout))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.inner(x) + self.shortcut(x))


def resnet50() -> nn.Module:
    """25.5 million weights, and statistics of batch norms that keep values apart."""
    torch.manual_seed(0)
    parts: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    cin = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(count):
            parts.append(Bottleneck(cin, width, stride if index == 0 else 1))
            cin = 4 * width
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))
    with torch.no_grad():
        net(torch.randn(4, 3, 64, 64))
    return net.eval()


def network(name: str) -> tuple[nn.Module, list[tuple[Any, ...]]]:
    """A network, and inputs to calibrate it with."""
    net = resnet50() if name == "resnet50" else zoo.build(name)[0].eval()
    torch.manual_seed(7)
    if name == "minilm":
        return net, zoo.samples(name, 4, 7)
    return net, [(torch.randn(1, 3, 224, 224),) for _ in range(4)]


@contextmanager
def in_process() -> Iterator[None]:
    """Vela in this process, as it was before it had processes of its own."""
    from ethosu import regor

    def run(jobs: Sequence[vela_processes.Job]) -> list[Any]:
        return [vela_worker.compile_with(regor, dict(job.fields), job.file) for job in jobs]

    kept = vela_processes.run
    vela_processes.run = run  # type: ignore[assignment]
    try:
        yield
    finally:
        vela_processes.run = kept


def cpu() -> float:
    """CPU seconds of this process and of those that it started, all of which have ended."""
    vela_processes.stop()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """What a user waits, and the CPU seconds of it."""
    busy, start = cpu(), time.perf_counter()
    run()
    waited = time.perf_counter() - start
    return waited, cpu() - busy


def measured(name: str, target: str, runs: int, profile: bool) -> bool:
    """Print a network's line; whether its bound holds."""
    net, inputs = network(name)
    profiler = cProfile.Profile(time.process_time)

    def checked() -> None:
        tosaic.compile(net, inputs[0], target=target, calibration=inputs)

    def unchecked() -> None:
        with in_process():
            tosaic.compile(net, inputs[0], target=target, calibration=inputs, check=False)

    unchecked()  # what is made once is made
    pairs = [(seconds(checked), seconds(unchecked)) for _ in range(runs)]
    (ours, bare), (busy, bare_busy) = (
        [min(pair[side][kind] for pair in pairs) for side in range(2)] for kind in range(2)
    )
    held = ours / bare <= BOUNDS[name]
    line = f"{name + ', ' + target:<32}{ours:>10.2f}{bare:>10.2f}{ours / bare:>8.2f}"
    told = f"{BOUNDS[name]:>8.1f}{busy / bare_busy:>8.2f}"
    print(f"{line}{told}{'' if held else '  MISSED'}", flush=True)
    if profile:
        profiler.runcall(checked)
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", nargs="*", default=list(BOUNDS))
    parser.add_argument("--targets", nargs="*", default=TARGETS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [n for n in options.networks if n == "resnet50" or not zoo.missing(n)]
    print(f"{'seconds':<32}{'checked':>10}{'bare':>10}{'times':>8}{'bound':>8}{'CPU':>8}")
    held = [
        measured(name, target, options.runs, options.profile)
        for name in names
        for target in options.targets
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

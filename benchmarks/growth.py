"""Does the time of compiling grow in step with a network? CPU seconds of one thread.

Chains of convolutions, and of transformer layers, each several times as long as the one before:
milliseconds a layer to compile in float, to quantize, and to lower what was quantized. These should
not grow. Each figure is the best of ``--runs``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

import tosaic
import tosaic.quant  # registers what converted programs call

sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))

from zoo.tokens import Block

CONVOLUTIONS, TRANSFORMERS = (25, 50, 100, 200, 400), (24, 48)
STEPS = ("in float", "quantizing", "lowering")
# Milliseconds a layer, the longest chain beside the shortest.
GROWTH = {"convolutions": 1.5, "transformer layers": 1.2}
FLOAT, INT = "TOSA-1.0+FP", "TOSA-1.0+INT"


class Convolutions(nn.Module):
    """Convolutions with batch norms, and a sum now and then."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            x = layer(x) + x if index % 4 == 3 else layer(x)
        return x


def transformer(layers: int) -> nn.Module:
    return nn.Sequential(*(Block(64, 4, 256) for _ in range(layers)))


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def once(net: nn.Module, example: tuple[Tensor]) -> list[float]:
    """Seconds of each step."""
    made: list[torch.fx.GraphModule] = []
    return [
        seconds(lambda: tosaic.compile(net, example, target=FLOAT).bytes),
        seconds(lambda: made.append(tosaic.quantize(net, example, calibration=[example]))),
        seconds(lambda: tosaic.compile(made[0], example, target=INT).bytes),
    ]


def measure(
    make: Callable[[int], nn.Module], shape: tuple[int, ...], lengths: Sequence[int], runs: int
) -> list[list[float]]:
    """Milliseconds a layer, for each length."""
    found = []
    for layers in (2, *lengths):  # the first one warms up
        torch.manual_seed(0)
        net, example = make(layers).eval(), (torch.randn(shape),)
        best = [min(step) for step in zip(*(once(net, example) for _ in range(runs)))]
        found.append([1000 * step / layers for step in best])
    return found[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    runs = parser.parse_args().runs
    torch.set_num_threads(1)
    missed = 0
    for name, make, shape, lengths in (
        ("convolutions", Convolutions, (1, 8, 16, 16), CONVOLUTIONS),
        ("transformer layers", transformer, (1, 32, 64), TRANSFORMERS),
    ):
        print(f"{name:<24}{''.join(f'{step:>12}' for step in STEPS)}   milliseconds a layer")
        rows = measure(make, shape, lengths, runs)
        for layers, row in zip(lengths, rows):
            print(f"{layers:>24}{''.join(f'{step:12.2f}' for step in row)}")
        ratios = [last / first for first, last in zip(rows[0], rows[-1])]
        print(f"{'last beside first':>24}{''.join(f'{ratio:12.2f}' for ratio in ratios)}")
        missed += sum(ratio > GROWTH[name] for ratio in ratios)
    print(f"{missed} bounds missed" if missed else "all bounds hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

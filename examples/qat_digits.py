"""Four bits for a weight are few: training with rounding wins back what they cost.

A small network learns handwritten digits in float. Its weights are then rounded to int4, once as
they are and once after a few more epochs in which it computes with rounded numbers. What counts is
what the compiled bytes say about digits that no training has seen.

    python examples/qat_digits.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from zoo.digits import BATCH, data, learn

import tosaic

TRAINED = 1152  # of 1,797 pictures; what is left is 10 batches
EPOCHS, MORE = 25, 10
TARGET = "TOSA-1.0+INT+int4"


def network() -> nn.Module:
    """Few and small layers, so that every weight counts."""
    return nn.Sequential(
        *layer(1, 12, 3), *layer(12, 12, 3, groups=12), *layer(12, 24, 1), nn.MaxPool2d(2),
        *layer(24, 24, 3, groups=24), *layer(24, 24, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    )  # fmt: skip


def layer(inputs: int, outputs: int, size: int, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, padding="same", groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def judged(
    run: Callable[[Tensor], Tensor], pictures: Tensor, wanted: Tensor
) -> tuple[float, float]:
    """Percent of digits told right, and the cross-entropy, which tells smaller differences."""
    with torch.no_grad():
        scores = torch.cat([run(batch) for batch in pictures.split(BATCH)])
    percent = 100 * float((scores.argmax(1) == wanted).float().mean())
    return percent, float(nn.functional.cross_entropy(scores, wanted))


def results() -> dict[str, tuple[float, float]]:
    """How unseen digits are told: in float, in int4 after training, and trained in it."""
    torch.manual_seed(0)
    pictures, wanted = data()
    seen, known = pictures[:TRAINED], wanted[:TRAINED]
    end = TRAINED + BATCH * ((len(pictures) - TRAINED) // BATCH)
    unseen, answers = pictures[TRAINED:end], wanted[TRAINED:end]
    net = network().train()
    learn(net, seen, known, EPOCHS, 5e-3)
    net.eval()

    example, batches = (seen[:BATCH],), seen[: 4 * BATCH].split(BATCH)
    rounded = tosaic.compile(net, example, target=TARGET, scheme="a8w4", calibration=batches)

    prepared = tosaic.prepare_qat(net, example, scheme="a8w4")
    learn(prepared, seen, known, MORE, 1e-3)
    learnt = tosaic.compile(tosaic.convert(prepared), example, target=TARGET)
    runs = {"float": net, "a8w4": rounded.run, "a8w4, trained": learnt.run}
    return {name: judged(run, unseen, answers) for name, run in runs.items()}


def main() -> None:
    start = time.monotonic()
    for name, (percent, loss) in results().items():
        print(f"{name:14} {percent:6.2f} % of unseen digits right, cross-entropy {loss:.3f}")
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()

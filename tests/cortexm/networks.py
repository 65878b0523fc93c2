"""Networks of the zoo as C: all on the host, some on emulated cores, beside the interpreter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

import tosaic
import zoo
from tosaic.errors import TosaicError
from tosaic.front import torchapi

# ResNet-8 and an LSTM that gives all steps are among those of benchmarks/cortexm.py, which the
# long run measures on the same cores.
EMULATED = ("mobilenet_v2", "ds_cnn", "autoencoder", "lstm_classifier", "silero_vad", "vit_tiny",
            "yolo")  # fmt: skip
_DISTINCT = 4  # values that an output has at least


def compared(
    names: Iterable[str], target: str, engine: str, scheme: str = "int8"
) -> Iterator[tuple[str, str]]:
    """A line about each network, and what is wrong with it."""
    for name in names:
        start = time.process_time()
        net, example, calibration = zoo.build(name)
        try:
            made = tosaic.compile(
                net, example, target=target, scheme=scheme, calibration=calibration
            )
            ours, wanted = (
                [t for t in torchapi.flatten(made.run(*example, engine=e))[0]
                 if isinstance(t, Tensor)] for e in (engine, "tosa")
            )  # fmt: skip
        except TosaicError as problem:
            yield f"{name} {target} {engine} {scheme}", str(problem)
            continue
        same = all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
        values = max(len(torch.unique(t)) for t in ours)
        plans = [each.plan for each in made.delegates]
        wrong = [] if same else ["another result than the interpreter's"]
        wrong += [f"{values} distinct values"] * (values < min(_DISTINCT, ours[0].numel()))
        wrong += [f"{len(made.report.refused)} calls in PyTorch"] * bool(made.report.refused)
        wrong += [f"an arena of {p.size} for {p.bound}" for p in plans if p.size > p.bound]
        yield (
            f"{name:<20} {target} {engine} {scheme}: arena {sum(p.size for p in plans):,} bytes, "
            f"flash {sum(each.flash for each in made.delegates):,}, {values} distinct values, "
            f"{time.process_time() - start:.0f} s"
        ), "; ".join(wrong)  # fmt: skip

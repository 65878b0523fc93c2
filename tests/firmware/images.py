"""Images run under QEMU beside the artifacts that they were made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tosaic import firmware
from tosaic.firmware import emulation
from tosaic.firmware.emulation import Ran
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact

needs_qemu = pytest.mark.skipif(emulation.missing() is not None, reason=str(emulation.missing()))


class Recurrent(nn.Module):
    """A state that a run reads and replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("h", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.linear(x) + self.h)
        self.h.copy_(y)
        return y * 2


def check(
    artifacts: Mapping[str, Artifact], inputs: Mapping[str, Sequence[tuple[Any, ...]]],
    board: str = "corstone-300", **options: Any,
) -> Ran:  # fmt: skip
    """Every output of the image equals ``art.run`` bit for bit; what the image told."""
    found, ran = firmware.run(firmware.project(artifacts, board), inputs, **options)
    for name, runs in inputs.items():
        artifacts[name].reset()
        for number, (arguments, got) in enumerate(zip(runs, found[name], strict=True)):
            wanted, _ = torchapi.flatten(artifacts[name].run(*arguments))
            assert len(wanted) == len(got)
            for one, other in zip(wanted, got):
                assert torch.equal(one, other), f"{name}, inference {number}"
    assert not ran.findings
    return ran

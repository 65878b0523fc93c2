"""Images run under QEMU beside the artifacts that they were made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tosaic import firmware
from tosaic.firmware.emulation import Ran
from tosaic.firmware.toolchain import toolchain
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact


def needs(system: str, **options: str) -> pytest.MarkDecorator:
    reason = toolchain(system, options).missing
    return pytest.mark.skipif(reason is not None, reason=str(reason))


needs_qemu = needs("none")


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
    return compare(artifacts, inputs, expected(artifacts, inputs), board, **options)


def expected(
    artifacts: Mapping[str, Artifact], inputs: Mapping[str, Sequence[tuple[Any, ...]]]
) -> dict[str, list[list[Any]]]:
    """What ``art.run`` gives, inference by inference."""
    found = {}
    for name, runs in inputs.items():
        artifacts[name].reset()
        found[name] = [torchapi.flatten(artifacts[name].run(*each))[0] for each in runs]
    return found


def compare(
    artifacts: Mapping[str, Artifact], inputs: Mapping[str, Sequence[tuple[Any, ...]]],
    wanted: Mapping[str, Sequence[Sequence[Any]]], board: str, **options: Any,
) -> Ran:  # fmt: skip
    """An image gives what is expected of it, and its NPU finds nothing."""
    found, ran = firmware.run(firmware.project(artifacts, board), inputs, **options)
    for name in inputs:
        for number, (want, got) in enumerate(zip(wanted[name], found[name], strict=True)):
            assert len(want) == len(got)
            for one, other in zip(want, got):
                assert torch.equal(one, other), f"{name}, inference {number}"
    assert not ran.findings
    return ran

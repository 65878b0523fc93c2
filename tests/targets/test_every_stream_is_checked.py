"""Whatever kind of artifact a stream is part of, the very bytes that ship have been checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from tosaic.targets.ethosu import check
from tosaic.targets.ethosu.delegate import Delegate


class Recurrent(nn.Module):
    """A recurrence that is long enough for a stream of a few steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layer(x)[0])


class Sized(nn.Module):
    """A network for pictures of any height."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.conv(x)).mean((2, 3)))


class Hosted(nn.Module):
    """A call between two streams that the NPU refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(self.one(x), self.one(x).transpose(1, 2)).softmax(-1)
        return self.two(torch.matmul(y, x))


def _delegates(art: Any) -> Iterator[Delegate]:
    for each in (art, *getattr(art, "variants", {}).values()):
        yield from (made for made in each.delegates if isinstance(made, Delegate))


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[Delegate]:
    """The delegates that all checks let pass."""
    found, kept = list[Delegate](), check.check_stream

    def checked(made: Delegate, expected: check.Expected) -> list[str]:
        told = list(kept(made, expected))
        found.append(made)
        return told

    monkeypatch.setattr(check, "check_stream", checked)
    return found


CASES: dict[str, tuple[type[nn.Module], tuple[int, ...], str, str, dict[str, Any]]] = {
    "recurrence by the step": (Recurrent, (1, 64, 4), "ethos-u55-128", "int8", {}),
    "several sizes": (
        Sized, (1, 3, 16, 8), "ethos-u85-256", "int8",
        {"dynamic_shapes": ({2: Dim("h", min=8, max=32)},), "sizes": [{"h": 8}, {"h": 24}]},
    ),
    "an NPU and its core": (Hosted, (1, 5, 6), "ethos-u55-128+cortex-m55", "a16w8", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_stream_of_an_artifact_was_checked(name: str, passed: list[Delegate]) -> None:
    make, shape, target, scheme, options = CASES[name]
    torch.manual_seed(0)
    net, x = make().eval(), torch.randn(shape)
    art = tosaic.compile(net, (x,), target=target, scheme=scheme, calibration=[(x,)], **options)
    streams = [made.result for made in _delegates(art)]
    right = {(made.result.command_stream, made.result.weights) for made in passed}
    assert streams
    assert all((each.command_stream, each.weights) in right for each in streams)

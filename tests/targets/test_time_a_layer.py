"""Compiling costs the same for each layer, and a check of three runs prepares nothing for more."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.timing import seconds
from tosaic.interp.rescale import PAYS, Rescale


class Spectra(nn.Module):
    """Logarithms of magnitudes, with windows of so many sizes."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.windows = nn.ParameterList(torch.hann_window(32 + 8 * n) for n in range(count))

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for window in self.windows:
            size = len(window)
            z = torch.stft(x, size, size // 2, window=window, return_complex=True)
            found.append((z.abs() + 1e-3).log().mean((1, 2)))
        return torch.stack(found, -1)


class Suppressed(nn.Module):
    """The best boxes one after another, as loops of non-maximum suppression write it."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.head = count, nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        near, far, score = self.head(x).flatten(2)[0].sigmoid().unbind()
        kept = []
        for _ in range(self.count):
            best = score.argmax()
            kept.append(torch.stack([near[best], far[best], score[best]]))
            shared = (torch.minimum(far, far[best]) - torch.maximum(near, near[best])).clamp(min=0)
            score = torch.where(shared > 0.1, torch.zeros_like(score), score)
        return torch.stack(kept)


def recurrent(steps: int) -> tuple[nn.Module, Tensor]:
    return nn.GRU(8, 16, batch_first=True, bidirectional=True), torch.randn(1, steps, 8)


NETWORKS: dict[str, Any] = {
    "steps of a bidirectional GRU": recurrent,
    "spectra": lambda count: (Spectra(count), torch.randn(1, 512)),
    "boxes of an NMS": lambda count: (Suppressed(count), torch.randn(1, 3, 12, 12)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_three_times_the_layers_take_about_three_times_as_long(name: str) -> None:
    spent = {}
    for count in (6, 18):
        torch.manual_seed(0)
        net, x = NETWORKS[name](count)
        run = partial(
            tosaic.compile, net.eval(), (x,), target="TOSA-1.0+INT+int16", calibration=[(x,)]
        )
        spent[count] = seconds(run, runs=2)
    assert spent[18] < 6 * spent[6]  # 9 where each layer looks at all the others


def test_checking_a_stream_searches_no_coefficients_of_fast_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search takes 100 µs a channel: with many channels it was a third of a compile."""
    searched: list[Rescale] = []
    plain = Rescale.prepare

    def prepare(self: Rescale, float32: bool = True, fits: bool = True) -> None:
        if fits and not self._fitted:
            searched.append(self)
        plain(self, float32, fits)

    monkeypatch.setattr(Rescale, "prepare", prepare)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 32, 3)).eval()
    x = torch.randn(1, 3, 8, 8)
    art = tosaic.compile(net, (x,), target="ethos-u55-128", calibration=[(x,)])
    assert "equals its TOSA graph" in art.report.delegates[0].checks[-1]
    assert not searched
    model = art.delegates[0].model
    ports = [(port.shape, torch.int8) for port in model.inputs]
    for _ in range(PAYS // 36 // 256 + 2):  # values of a channel of 6 by 6, in batches
        model.run(*(torch.zeros((256 * s[0], *s[1:]), dtype=t) for s, t in ports))
    assert searched

"""Small networks that come with Tosaic, to try a target before one has a model at hand.

Their weights are seeded, not trained.
"""

from __future__ import annotations

from typing import Any

NAMES = ("cnn", "keywords", "encoder")


def example(name: str) -> tuple[Any, tuple[Any, ...], list[tuple[Any, ...]]]:
    """A network, an example input, and inputs to calibrate with."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    net, shape = _MAKERS[name](nn)
    data = [(torch.randn(shape),) for _ in range(9)]
    with torch.no_grad():
        for _ in range(10):  # gives batch norms the statistics of such inputs
            net.train()(torch.cat([each for (each,) in data]))
    return net.eval(), data[0], data[1:]


def _cnn(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Pictures of 32×32 in ten classes."""
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return net, (1, 3, 32, 32)


def _keywords(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Twelve keywords in a second of sound: 49 frames of 10 coefficients, depthwise layers."""

    def block() -> list[Any]:
        return [
            nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        ]  # fmt: skip

    stem = [nn.Conv2d(1, 64, (10, 4), (2, 2), (5, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers = [part for _ in range(4) for part in block()]
    net = nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))
    return net, (1, 1, 49, 10)


def _encoder(nn: Any) -> tuple[Any, tuple[int, ...]]:
    """Two layers of a transformer over 16 vectors of 32."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
    net = nn.Sequential(
        nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        nn.Flatten(),
        nn.Linear(512, 8),
    )
    return net, (1, 16, 32)


_MAKERS = dict(zip(NAMES, (_cnn, _keywords, _encoder)))

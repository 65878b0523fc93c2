"""A small network that has learnt the digits of scikit-learn, with the weights that it ships with.

Training gives other weights on other processors, so a test that measures accuracy takes these:
``python -m judges.digits`` trains them again and writes ``digits.npz``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

SEEN = 1000  # of 1,797 pictures
_FILE = Path(__file__).with_name("digits.npz")
_EPOCHS = 12


def data() -> tuple[Tensor, Tensor]:
    """All pictures and their digits, in one order."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = torch.from_numpy(found.images[order]).float()[:, None] / 16
    return images, torch.from_numpy(found.target[order])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


def trained() -> nn.Module:
    """The network with the weights of the file."""
    net = network()
    with np.load(_FILE) as stored:
        arrays = {name: torch.from_numpy(stored[name].astype(np.float32)) for name in stored}
    net.load_state_dict(arrays, strict=False)  # batch norms count their batches, too
    return net.eval()


def _train() -> nn.Module:
    torch.manual_seed(0)
    net, (images, labels) = network(), data()
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(_EPOCHS):
        for chosen in torch.randperm(SEEN).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(images[chosen]), labels[chosen]).backward()
            optimizer.step()
    return net.eval()


if __name__ == "__main__":
    stored = {n: t.numpy().astype(np.float16) for n, t in _train().state_dict().items() if t.dim()}
    np.savez_compressed(_FILE, **stored)

"""A small network trained on the handwritten digits of scikit-learn, and what int8 costs it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import tosaic

TRAINED, EPOCHS, BATCH = 1200, 25, 64  # of 1,797 pictures
CALIBRATION = 64


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def data() -> tuple[Tensor, Tensor]:
    """All pictures and their digits, in a seeded order."""
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    pictures = torch.from_numpy(found.images).float()[:, None] / 8 - 1
    return pictures[order], torch.from_numpy(found.target)[order]


def train(pictures: Tensor, wanted: Tensor) -> nn.Module:
    torch.manual_seed(0)
    net = network().train()
    learn(net, pictures, wanted, EPOCHS, 3e-3, decay=1e-4)
    return net.eval()


def learn(
    net: nn.Module, pictures: Tensor, wanted: Tensor, epochs: int, rate: float, decay: float = 0.0
) -> None:
    """Some epochs, slower and slower."""
    optimizer = torch.optim.Adam(net.parameters(), rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for chosen in torch.randperm(len(pictures)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(pictures[chosen]), wanted[chosen]).backward()
            optimizer.step()
        schedule.step()


def right(scores: Tensor, wanted: Tensor) -> float:
    return 100 * float((scores.argmax(1) == wanted).float().mean())


def accuracy() -> tuple[float, float]:
    """Percent of unseen digits told right, in float and by the compiled int8 bytes."""
    found = by_scheme({"int8": "TOSA-1.0+INT"})
    return found["float"], found["int8"]


def by_scheme(targets: Mapping[str, str]) -> dict[str, float]:
    """The same for schemes, each with the specification that it is compiled for."""
    pictures, wanted = data()
    net = train(pictures[:TRAINED], wanted[:TRAINED])
    unseen, digits = pictures[TRAINED:], wanted[TRAINED:]
    given = [(each,) for each in pictures[:CALIBRATION].split(1)]
    with torch.no_grad():
        found = {"float": right(net(unseen), digits)}
    for scheme, target in targets.items():
        art = tosaic.compile(net, (unseen[:1],), target=target, scheme=scheme, calibration=given)
        found[scheme] = right(torch.cat([art.run(each) for each in unseen.split(1)]), digits)
    return found

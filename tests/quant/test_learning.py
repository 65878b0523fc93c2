"""Networks that have learnt something keep it: digits in int8, and training with rounding."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

import tosaic
from tosaic.quant import TosaicQuantizer


def digits() -> tuple[Tensor, Tensor]:
    found = load_digits()
    order = torch.randperm(len(found.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    return images[order], torch.tensor(found.target)[order]


def trained(images: Tensor, labels: Tensor) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(6):
        for x, y in zip(images.split(64), labels.split(64)):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net.eval()


def test_digits_lose_half_a_point_at_most_in_int8() -> None:
    images, labels = digits()
    net = trained(images[:1000], labels[:1000])
    new, answers = images[1000:], labels[1000:]
    art = tosaic.compile(net, (new,), calibration=images[:128].split(16))
    with torch.no_grad():
        before = float((net(new).argmax(1) == answers).float().mean())
    after = float((art.run(new).argmax(1) == answers).float().mean())
    assert art.report.refused == []
    assert before > 0.95
    assert after >= before - 0.005


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_network_trained_with_rounding_lowers_to_what_it_learnt(scheme: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 1, 8, 8)
    y = (x[:, 0, :4].mean((1, 2)) > 0).long() + 2 * (x[:, 0, 4:].mean((1, 2)) > 0).long()
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 4)
    )
    quantizer = TosaicQuantizer(scheme, training=True)
    prepared = prepare_qat_pt2e(torch.export.export(net.train(), (x,)).module(), quantizer)
    optimizer = torch.optim.Adam(prepared.parameters(), 1e-2)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = F.cross_entropy(prepared(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    move_exported_model_to_eval(prepared)
    target = "TOSA-1.0+INT" if scheme == "int8" else "TOSA-1.0+INT+int16"
    with torch.no_grad():
        want = prepared(x)
        art = tosaic.compile(convert_pt2e(prepared), (x,), target=target)
    assert art.report.refused == []
    assert quantizer.refused == {}
    got = art.run(x)
    assert float((got - want).abs().max()) < 0.03 * float(want.abs().max())
    assert len(got.unique()) > 40

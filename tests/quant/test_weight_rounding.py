"""Weights rounded by what calibration saw of their inputs, and biases that make up for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tosaic
from tosaic.quant.weight_rounding import taps_inside

LAYERS = {
    "padded": nn.Conv2d(2, 3, 3, padding=1),
    "padded in one axis, in steps": nn.Conv2d(2, 3, (5, 2), stride=(2, 1), padding=(2, 0)),
    "gaps": nn.Conv2d(2, 3, 3, padding=3, dilation=2),
    "same": nn.Conv2d(2, 3, (4, 3), padding="same"),
    "valid": nn.Conv2d(2, 3, 3),
    "groups": nn.Conv2d(2, 4, 3, 2, 1, groups=2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_taps_count_as_often_as_they_are_inside_of_the_input(name: str) -> None:
    """The judge is PyTorch's convolution of ones with one tap at a time."""
    layer, x = LAYERS[name], torch.ones(1, 2, 6, 7)
    graph = torch.export.export(layer, (x,)).module().graph
    (node,) = [n for n in graph.nodes if "conv" in str(n.target)]
    sizes = tuple(layer.kernel_size)
    taps = torch.eye(sizes[0] * sizes[1]).reshape(-1, 1, *sizes)
    found = F.conv2d(x[:, :1], taps, None, layer.stride, layer.padding, layer.dilation)
    torch.testing.assert_close(taps_inside(node, sizes), found.mean((0, 2, 3)).double())


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("has_bias", [True, False])
def test_stored_and_live_calibration_give_the_same_bytes(
    scheme: str, has_bias: bool, tmp_path: Path
) -> None:
    """Of biases alone two inputs and more tell what was not stored: the mean error behind them."""
    for seed in (6, 7):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(8, 8, bias=has_bias), nn.ReLU())
        data = [torch.randn(1, 8) * s for s in ((3,) if has_bias else (1, 3))]
        tosaic.calibrate(net, (data[0],), calibration=data).save(tmp_path / "ranges.json")
        made = [
            tosaic.compile(
                net, (data[0],), target="TOSA-1.0+INT+int16", scheme=scheme, calibration=given
            )
            for given in (data, tmp_path / "ranges.json")
        ]
        assert made[0].bytes == made[1].bytes


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_results_that_see_padding_alone_stay_zero(scheme: str) -> None:
    """No bias makes up for weights there; inputs far from zero would make it a large one."""
    torch.manual_seed(3)
    layer = nn.Conv1d(3, 3, 1, stride=2, padding=1, bias=False)
    data = [torch.randn(1, 3, 5) - 8 for _ in range(4)]
    art = tosaic.compile(
        layer, (data[0],), target="TOSA-1.0+INT+int16", scheme=scheme, calibration=data
    )
    found = art.run(data[0])
    assert torch.count_nonzero(layer(data[0])[..., 0]) == 0
    assert torch.count_nonzero(found[..., 0]) == 0
    assert torch.count_nonzero(found[..., 1]) == 3

"""Whole networks become no more operators than they need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tosaic
import zoo
from judges.reference import run_reference


def compiled(name: str, target: str, **options: Any) -> dict[str, int]:
    net, example, calibration = zoo.build(name)
    data = calibration[:4] if "INT" in target else None
    art = tosaic.compile(net, example, target=target, calibration=data, **options)
    return art.report.ops


def test_mobilenet_v2_in_int8_has_no_operator_too_many() -> None:
    ops = compiled("mobilenet_v2", "TOSA-1.0+INT")
    assert ops["CONV2D"] == 36
    assert ops["DEPTHWISE_CONV2D"] == 17
    assert ops["ADD"] == 10
    # One for each convolution, three for each sum, two where the pool is not a pool.
    pools = ops.get("AVG_POOL2D", 0)
    assert ops["RESCALE"] <= 36 + 17 + 3 * 10 + (0 if pools else 2)
    assert ops["RESHAPE"] == ops["TRANSPOSE"] == 1
    rest = set(ops) - {"CONV2D", "DEPTHWISE_CONV2D", "ADD", "RESCALE", "RESHAPE", "TRANSPOSE"}
    assert rest in ({"AVG_POOL2D"}, {"REDUCE_SUM"})


def test_mobilenet_v2_in_float_is_convolutions_limits_and_sums() -> None:
    assert compiled("mobilenet_v2", "TOSA-1.0+FP") == {
        "CONV2D": 36, "CLAMP": 35, "DEPTHWISE_CONV2D": 17, "ADD": 10, "TRANSPOSE": 1,
        "AVG_POOL2D": 1, "RESHAPE": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "most"), [("yolo", 3), ("autoencoder", 2), ("super_resolution", 3), ("unet", 2)]
)
def test_pictures_are_transposed_at_the_boundary_and_where_the_network_does(
    name: str, most: int
) -> None:
    assert compiled(name, "TOSA-1.0+INT")["TRANSPOSE"] <= most


@pytest.mark.parametrize("slopes", [[0.25], [0.1, -0.5, 1.0], [0.5, 2.0, 0.1]])
def test_prelu_in_int8_is_exact_and_near(slopes: list[float]) -> None:
    """One slope is a table, slopes up to 1 a maximum, others a sum."""
    torch.manual_seed(1)
    act = nn.PReLU(len(slopes))
    act.weight.data = torch.tensor(slopes)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), act).eval()
    data = [(torch.randn(1, 2, 12, 12),) for _ in range(8)]
    art = tosaic.compile(net, data[0], target="TOSA-1.0+INT", calibration=data)
    names = set(art.report.ops)
    assert ("MAXIMUM" in names) == (len(slopes) > 1)
    assert ("MINIMUM" in names) == (max(slopes) > 1)
    quant = art.graph.inputs[0].quant
    steps = torch.round(data[1][0] / quant.scale) + quant.zero_point
    levels = steps.clamp(-128, 127).to(torch.int8).numpy()
    (ours,) = tosaic.load(art.bytes).run(levels)
    (theirs,) = run_reference(art.bytes, [levels])
    assert (ours == theirs).all()
    assert len(set(ours.reshape(-1).tolist())) > 40
    with torch.no_grad():
        real, got = net(data[1][0]), art.run(*data[1])
    assert float((got - real).abs().max()) < 4 * float(art.graph.outputs[0].quant.scale)

"""Whole networks become no more operators than they need."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
import zoo
from judges.reference import run_reference


def compiled(name: str, target: str, *, last: bool = False, **options: Any) -> dict[str, int]:
    net, example, calibration = zoo.build(name)
    if last:
        example = (example[0].to(memory_format=torch.channels_last),)
    data = calibration[:4] if "INT" in target else None
    art = tosaic.compile(net, example, target=target, calibration=data, **options)
    return art.report.ops


@pytest.mark.parametrize("last", [False, True])
def test_mobilenet_v2_in_int8_has_no_operator_too_many(last: bool) -> None:
    ops = compiled("mobilenet_v2", "TOSA-1.0+INT", last=last)
    assert (ops["CONV2D"], ops["DEPTHWISE_CONV2D"], ops["ADD"]) == (36, 17, 10)
    # One for each layer, of which ten go into a sum; two for each sum; two round a sum that pools.
    assert ops["RESCALE"] <= 36 + 17 + 2 * 10 + (0 if "AVG_POOL2D" in ops else 2) <= 79
    assert ops["RESHAPE"] == 1
    assert ops.get("TRANSPOSE", 0) == (0 if last else 1)
    rest = {"CONV2D", "DEPTHWISE_CONV2D", "ADD", "RESCALE", "RESHAPE", "TRANSPOSE"}
    assert {op: n for op, n in ops.items() if op not in rest} in (
        {"AVG_POOL2D": 1}, {"REDUCE_SUM": 1},
    )  # fmt: skip


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
    program = tosaic.quantize(net, data[0], calibration=data)
    art = tosaic.compile(program, data[0], target="TOSA-1.0+INT")
    names = set(art.report.ops)
    assert ("MAXIMUM" in names) == (len(slopes) > 1)
    assert ("MINIMUM" in names) == (max(slopes) > 1)
    judge(art, net, program, data)


@pytest.mark.parametrize("slopes", [[0.25], [0.1, -0.5, 1.0], [0.5, 2.0, -3.0], [0.0, 0.0, 0.3]])
@pytest.mark.parametrize("linear", [False, True])
def test_prelu_takes_the_accumulator_of_its_layer(slopes: list[float], linear: bool) -> None:
    torch.manual_seed(2)
    act = nn.PReLU(len(slopes))
    act.weight.data = torch.tensor(slopes)
    layer, shape = (nn.Linear(12, 3), (90, 12)) if linear else (nn.Conv2d(2, 3, 3), (1, 2, 12, 12))
    net = nn.Sequential(layer, act).eval()
    data = [(torch.randn(shape),) for _ in range(8)]
    program = tosaic.quantize(net, data[0], calibration=data)
    art = tosaic.compile(program, data[0], target="TOSA-1.0+INT")
    assert art.report.ops["RESCALE"] == 3
    judge(art, net, program, data)


def judge(art: Any, net: nn.Module, program: Any, data: list[tuple[Tensor]]) -> None:
    """Bit-equal with the reference model; as PyTorch runs the program; near the real network."""
    quant = art.graph.inputs[0].quant
    steps = torch.round(data[1][0] / quant.scale) + quant.zero_point
    levels = steps.clamp(-128, 127).to(torch.int8).numpy()
    (ours,) = tosaic.load(art.bytes).run(levels)
    (theirs,) = run_reference(art.bytes, [levels])
    assert (ours == theirs).all()
    assert len(set(ours.reshape(-1).tolist())) > 40
    with torch.no_grad():
        real, rounded, got = net(*data[1]), program(*data[1]), art.run(*data[1])
    # A tie that a layer breaks the other way moves a result behind a function by two steps.
    assert float((got - rounded).abs().max()) < 2.01 * float(art.graph.outputs[0].quant.scale)
    assert float((got - real).square().mean() / real.square().mean()) < 1e-3

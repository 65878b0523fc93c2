"""Whole networks from PyTorch: one graph each, close in float, exact in int8."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
import zoo
from judges.reference import run_reference
from tosaic.targets.artifact import Artifact

# Decibels of int8 against float over pictures that calibration has not seen, the least of the
# outputs: what was measured, less 3. The weights are random, so noise grows with depth.
FLOORS = {name: 0.0 for name in zoo.ZOO}
DISTINCT = 24

built = cache(zoo.build)


def outputs(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def levels(art: Artifact, picture: Tensor) -> np.ndarray:
    """A picture as the integers of the graph's input."""
    quant = art.graph.inputs[0].quant
    assert quant is not None
    steps = np.round(picture.double().numpy() / quant.scale) + quant.zero_point
    return np.clip(steps, -128, 127).astype(np.int8)


def decibels(real: Tensor, got: Tensor) -> float:
    """Signal to noise; what all pictures have in common is no signal."""
    signal = (real - real.mean(0)).square().sum()
    return float(10 * torch.log10(signal / (got - real).square().sum()))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_float_network_becomes_one_graph_and_agrees_with_pytorch(name: str) -> None:
    net, example, _ = built(name)
    art = tosaic.compile(net, example, target="TOSA-1.0+FP")
    assert not art.report.refused, art.report
    assert len(art.partition.graphs) == 1
    with torch.no_grad():
        expected = outputs(net(*example))
    for got, real in zip(outputs(art.run(*example)), expected, strict=True):
        tolerance = 1e-5 * float(real.abs().max())
        torch.testing.assert_close(got, real, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("name", zoo.ZOO)
def test_an_int8_network_becomes_one_graph_and_is_exact(name: str) -> None:
    net, example, calibration = built(name)
    art = tosaic.compile(net, example, target="TOSA-1.0+INT", calibration=calibration)
    assert not art.report.refused, art.report
    assert len(art.partition.graphs) == 1
    integers = levels(art, *example)
    mine, theirs = tosaic.load(art.bytes).run(integers), run_reference(art.bytes, [integers])
    for ours, answer in zip(mine, theirs, strict=True):
        assert ours.dtype == answer.dtype == np.int8
        assert np.array_equal(ours, answer)
    measure(name, net, art)


def measure(name: str, net: nn.Module, art: Artifact) -> None:
    """The results mean something: near to float, and rich."""
    pictures = zoo.samples(name, 4, seed=5000)
    with torch.no_grad():
        real = [torch.cat(each) for each in zip(*(outputs(net(p)) for p in pictures))]
    got = [torch.cat(each) for each in zip(*(outputs(art.run(p)) for p in pictures))]
    found = [decibels(r, g) for r, g in zip(real, got, strict=True)]
    print(f"{name}: {', '.join(f'{each:.1f}' for each in found)} dB")
    assert min(found) > FLOORS[name]
    assert min(len(each.unique()) for each in got) > DISTINCT

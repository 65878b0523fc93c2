"""Whole networks from PyTorch: one graph each, close in float, exact in int8."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from zoo.crepe_tiny import hertz
from zoo.sounds import notes

import tosaic
import zoo
from judges.programs import fed
from judges.reference import run_reference
from tosaic.pipeline.artifact import Artifact

# Decibels of int8 against float over pictures that calibration has not seen, about 3 below what
# was measured; of two outputs the lesser counts. Weights are random: noise grows with depth.
FLOORS = {
    "autoencoder": 23.0,
    "bert": 28.0,
    "conformer": 37.0,
    "crepe_tiny": 31.0,
    "decoder": 20.0,
    "deeplab": 27.0,
    "ds_cnn": 32.0,
    "early_exit": 20.0,
    "gru_classifier": 26.0,
    "lstm_classifier": 21.0,
    "minilm": 4.0,
    "mobilenet_v2": 19.0,
    "mobilenet_v3_small": 17.0,
    "onet": 15.0,
    "refinement": 29.0,
    "resnet18": 28.0,
    "silero_vad": 3.0,
    "squeezenet": 31.0,
    "ssd": 22.0,
    "super_resolution": 28.0,
    "swin": 26.0,
    "unet": 27.0,
    "vit_tiny": 22.0,
    "wav2letter": 37.0,
    "yolo": 12.0,
}
APART = 6.0  # the same with what all pictures have in common taken off the signal
# Networks that int8 is too coarse for without 16 bits at their magnitudes, which TOSA has with an
# extension: the floor of what differs is lower, and the test in a16w8 has the floors that count.
COARSE = {"minilm": 0.0, "silero_vad": 0.0}
# Decibels with int16 activations, in the same way.
FINE = {
    "bert": 42.0,
    "conformer": 48.0,
    "decoder": 28.0,
    "early_exit": 26.0,
    "gru_classifier": 38.0,
    "lstm_classifier": 43.0,
    "minilm": 24.0,
    "refinement": 34.0,
    "silero_vad": 11.0,
    "ssd": 24.0,
    "swin": 34.0,
    "vit_tiny": 34.0,
    "wav2letter": 47.0,
}
DISTINCT = 24

COUNT = 6  # inputs to measure with; more where one gives few numbers


@cache
def built(name: str) -> tuple[nn.Module, zoo.Inputs, list[zoo.Inputs]]:
    if package := zoo.missing(name):
        pytest.skip(f"{package} is not installed; `make install` has it")
    return zoo.build(name)


def outputs(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def decibels(signal: Tensor, noise: Tensor) -> float:
    return float(10 * torch.log10(signal.square().sum() / noise.square().sum()))


@pytest.mark.parametrize("name", zoo.ZOO)
def test_a_float_network_becomes_one_graph_and_agrees_with_pytorch(name: str) -> None:
    net, example, _ = built(name)
    target = "TOSA-1.0+INT+FP" if zoo.ZOO[name].extensions else "TOSA-1.0+FP"  # loops count
    art = tosaic.compile(net, example, target=target + zoo.ZOO[name].extensions)
    assert not art.report.refused, art.report
    assert len(art.partition.graphs) == 1
    with torch.no_grad():
        expected = outputs(net(*example))
    for got, real in zip(outputs(art.run(*example)), expected, strict=True):
        tolerance = 1e-5 * float(real.abs().max())
        torch.testing.assert_close(got, real, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("name", FLOORS)
def test_an_int8_network_becomes_one_graph_and_is_exact(name: str) -> None:
    judge(name, quantized(name), FLOORS[name], COARSE.get(name, APART))


@pytest.mark.parametrize("name", FINE)
def test_a_network_with_int16_activations_becomes_one_graph_and_is_exact(name: str) -> None:
    judge(name, quantized(name, "a16w8"), FINE[name], APART)


def judge(name: str, art: Artifact, floor: float, apart: float) -> None:
    """One graph, as the reference model runs it, near to float."""
    net, example, _ = built(name)
    assert not art.report.refused, art.report
    assert len(art.partition.graphs) == 1
    integers = fed(art, example)
    mine, theirs = tosaic.load(art.bytes).run(*integers), run_reference(art.bytes, integers)
    for ours, answer in zip(mine, theirs, strict=True):
        assert ours.dtype == answer.dtype
        assert np.array_equal(ours, answer)
    measure(name, net, art, floor, apart)


@cache
def quantized(name: str, scheme: str = "int8") -> Artifact:
    net, example, calibration = built(name)
    target = "TOSA-1.0+INT" + ("+int16" if scheme == "a16w8" else "") + zoo.ZOO[name].extensions
    return tosaic.compile(net, example, target=target, scheme=scheme, calibration=calibration)


def test_onet_in_int8_still_tells_faces_from_what_is_none() -> None:
    art = quantized("onet")
    scores = torch.cat([art.run(*cut)[2] for cut in zoo.samples("onet", 80, seed=5000)])[:, 1]
    portrait, none, colour = (scores[kind::4] for kind in range(3))
    assert (portrait > 0.5).all()
    assert (colour > 0.5).all()
    assert (none < 0.5).float().mean() >= 0.95


def test_crepe_in_int8_still_hears_the_pitch() -> None:
    art = quantized("crepe_tiny")
    frames, pitch = notes(40, seed=5000)
    heard = hertz(torch.cat([art.run(frame) for frame in frames.split(1)]))
    cents = 1200 * torch.log2(heard / pitch)
    assert (cents.abs() < 50).float().mean() >= 0.95
    assert cents.abs().median() < 10


def measure(name: str, net: nn.Module, art: Artifact, floor: float, least_apart: float) -> None:
    """The results mean something: near to float, telling inputs apart, and rich."""
    with torch.no_grad():
        (first,) = zoo.samples(name, 1, seed=5000)
        least = min(o.numel() for o in outputs(net(*first)))
        pictures = zoo.samples(name, max(COUNT, 200 // least), seed=5000)
        real = [torch.cat(each) for each in zip(*(outputs(net(*p)) for p in pictures))]
    got = [torch.cat(each) for each in zip(*(outputs(art.run(*p)) for p in pictures))]
    for mine, theirs in zip(got, real, strict=True):
        whole = decibels(theirs, mine - theirs)
        apart = decibels(theirs - theirs.mean(0), mine - theirs)
        print(f"{name}: {whole:.1f} dB, {apart:.1f} dB of what differs between pictures")
        assert whole > floor
        assert apart > least_apart
        assert len(mine.unique()) > DISTINCT


@pytest.mark.filterwarnings("ignore:The tensor attributes")  # what PyTorch says of its own GRU
def test_what_a_network_is_made_of_is_read_off_its_program() -> None:
    class Branch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda y: y.softmax(-1), lambda y: y + 1, (x,))

    x = torch.zeros(2, 3, 8)
    found = {
        "batch": (nn.BatchNorm1d(3), frozenset()),
        "layer": (nn.LayerNorm(8), {"normalisation"}),
        "heads": (nn.TransformerEncoderLayer(8, 2, batch_first=True),
                  {"attention", "normalisation"}),
        "steps": (nn.GRU(8, 4), {"recurrence"}),
        "branch": (Branch(), {"softmax"}),
    }  # fmt: skip
    for name, (net, parts) in found.items():
        program = torch.export.export(net.eval(), (x,), strict=False)
        assert zoo.parts(program) == parts, name

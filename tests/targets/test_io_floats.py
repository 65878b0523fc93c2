"""A boundary of floats where the specification has them beside integers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.reference import run_reference
from tosaic.pipeline.artifact import Artifact

BOTH = "TOSA-1.0+INT+FP"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.other = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, image: Tensor) -> Any:
        kept = self.conv(image).relu()
        return kept, self.other(kept), image.amax((2, 3))


@cache
def quantized() -> Any:
    torch.manual_seed(3)
    data = [(torch.rand(1, 4, 8, 8),) for _ in range(4)]
    return tosaic.quantize(Net(), data[0], calibration=data)


@cache
def compiled(target: str = BOTH, **options: Any) -> Artifact:
    return tosaic.compile(quantized(), (torch.rand(1, 4, 8, 8),), target=target, **options)


def types(art: Artifact) -> list[str]:
    return [value.dtype.name for value in (*art.graph.inputs, *art.graph.outputs)]


def test_floats_are_quantized_within_and_agree_with_the_reference_model() -> None:
    art, outside = compiled(), compiled("TOSA-1.0+INT")
    assert types(art) == ["f32"] * 4
    assert [piece.node for piece in art.partition.pieces] == [None]
    x = torch.randn(1, 4, 8, 8)
    expected = run_reference(art.bytes, [x.numpy()])
    for mine, theirs, same in zip(art.run(x), expected, outside.run(x), strict=True):
        assert np.array_equal(mine.numpy(), theirs)
        assert torch.equal(mine, same)
    assert len(np.unique(expected[1])) > 50


def test_a_preserved_boundary_stays_quantized() -> None:
    art, outside = compiled(preserve_io_quantization=True), compiled("TOSA-1.0+INT")
    assert types(art) == ["i8"] * 4
    x = torch.randn(1, 4, 8, 8)
    assert all(torch.equal(*pair) for pair in zip(art.run(x), outside.run(x), strict=True))
    assert [p.dtype for p in art.boundary.inputs] == ["float32"]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_integers_are_there_when_they_are_asked_for(kind: str) -> None:
    art = compiled(io=kind)
    assert types(art) == ["i8"] * 4
    assert [p.dtype for p in art.boundary.outputs] == [kind] * 3
    half = compiled(io=(kind, "float"))
    assert types(half) == ["i8", "f32", "f32", "f32"]
    codes = art.boundary.inputs[0].quantize(torch.rand(1, 4, 8, 8))
    (expected,) = [run_reference(half.bytes, [codes.view(torch.int8).numpy()])]
    for mine, real, theirs in zip(art.run(codes, raw=False), half.run(codes), expected):
        assert torch.equal(mine, real)
        assert np.array_equal(real.numpy(), theirs)

"""Random programs of layers, transpositions and constants compute the same when simplified."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

from tosaic.passes.importer import import_model
from tosaic.quant.flow import float_module
from tosaic.quant.quantizer import TosaicQuantizer

STEPS = (
    "layer",
    "matrix",
    "order",
    "copy",
    "by channel",
    "by place",
    "number",
    "relu",
    "join",
    "sum",
)


class Random(nn.Module):
    """Steps that a seed chooses, with constants that the first run makes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.constants, self.used = seed, list[Tensor](), 0

    def constant(self, *shape: int) -> Tensor:
        if self.used == len(self.constants):
            self.constants.append(torch.rand(shape) + 0.5)
        self.used += 1
        return self.constants[self.used - 1]

    def forward(self, x: Tensor) -> Tensor:
        choose, self.used = random.Random(self.seed), 0
        for _ in range(8):
            x = self.step(x, choose.choice(STEPS), choose)
        return x

    def step(self, x: Tensor, name: str, choose: random.Random) -> Tensor:
        axis, rank = choose.randrange(1, x.dim()), x.dim()
        if name == "layer" and rank == 4:
            return nn.functional.conv2d(x, self.constant(4, x.shape[1], 1, 1))
        if name in ("layer", "matrix"):
            matrix = self.constant(x.shape[-1], 5)
            return nn.functional.linear(x, matrix.T) if name == "layer" else x @ matrix
        if name == "order":
            return x.permute(0, *choose.sample(range(1, rank), rank - 1))
        if name == "by channel":
            shape = [x.shape[axis] if a == axis else 1 for a in range(rank)]
            number = self.constant(*shape)
            return choose.choice([x * number, x / number, number + x, x - number, number - x])
        if name == "by place":
            return x * self.constant(*x.shape[1:])
        if name in ("join", "sum"):
            joined = torch.cat([x, torch.sigmoid(x)], axis)
            others = [a for a in range(1, rank) if a != axis]
            if name == "join" or not others:
                return joined
            means = choose.choice([joined.mean(others, True), joined.amax(others, True)])
            return x + means.narrow(axis, 1, x.shape[axis])
        number = choose.choice([2.0, -0.5])
        return {"copy": x.contiguous().clone(), "relu": x.relu()}.get(name, number * x + 1.5)


@pytest.mark.parametrize("seed", range(60))
def test_a_simpler_program_computes_the_same(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(1, 3, 4, 6) if seed % 3 else torch.randn(1, 4, 6)
    net = Random(seed).eval()
    expected = net(x)
    module = float_module(import_model(net, (x,)), TosaicQuantizer("int8"))
    (made,) = module(x) if isinstance(module(x), (list, tuple)) else (module(x),)
    torch.testing.assert_close(made, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))

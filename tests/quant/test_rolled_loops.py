"""Rounds of Python loops become one step, with the bits of the rounds written out."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from zoo.silero_vad import SileroVAD
from zoo.voices import CONTEXT, FRAME

import tosaic
from judges.cells import Cells
from tosaic.executorch.package import LinuxOptions, plain_file
from tosaic.front import torchapi
from tosaic.passes.importer import import_model
from tosaic.passes.roll_loops import roll_loops

ROUNDS = 9


class Scan(nn.Module):
    """A state-space layer as Mamba's plain form computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.decay = nn.Parameter(-torch.rand(8, 4) - 0.1)
        self.step, self.b, self.c, self.out = (nn.Linear(8, n) for n in (8, 4, 4, 8))

    def forward(self, x: Tensor) -> Tensor:
        step, c = nn.functional.softplus(self.step(x)), self.c(x)
        kept = torch.exp(step.unsqueeze(-1) * self.decay)
        came = step.unsqueeze(-1) * self.b(x).unsqueeze(2) * x.unsqueeze(-1)
        state, seen = torch.zeros(x.shape[0], 8, 4), []
        for i in range(x.shape[1]):
            state = kept[:, i] * state + came[:, i]
            seen.append((state * c[:, i].unsqueeze(1)).sum(-1))
        y: Tensor = self.out(torch.stack(seen, 1))
        return y


class Backwards(nn.Module):
    """From the last element to the first, with what every round reads."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        state, bias, seen = x[:, -1], x.mean(1), []
        for i in reversed(range(x.shape[1])):
            state = torch.tanh(self.layer(state) + bias) * 0.9 + x[:, i] * 0.1
            seen.append(state.unsqueeze(1))
        return torch.cat(seen[::-1], 1)


class Decoder(nn.Module):
    """Generates tokens with a cache, one position after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, token: Tensor) -> Tensor:
        keys, values, seen = torch.zeros(1, ROUNDS, 8), torch.zeros(1, ROUNDS, 8), []
        for i in range(ROUNDS):
            x = self.words(token)
            here = nn.functional.one_hot(torch.tensor([i]), ROUNDS).to(x.dtype).unsqueeze(-1)
            keys = keys * (1 - here) + here * self.k(x)
            values = values * (1 - here) + here * self.v(x)
            mask = torch.where(torch.arange(ROUNDS) <= i, 0.0, -30.0)
            found = torch.softmax(self.q(x) @ keys.transpose(1, 2) + mask, -1) @ values
            token = self.head(x + found).argmax(-1)
            seen.append(token)
        return torch.cat(seen, 1)


class Windows(nn.Module):
    """Silero VAD over the windows of a recording."""

    def __init__(self) -> None:
        super().__init__()
        self.net = SileroVAD()

    def forward(self, windows: Tensor) -> tuple[Tensor, Tensor]:
        h, c, seen = torch.zeros(1, 128), torch.zeros(1, 128), []
        for window in windows.unbind(1):
            speech, h, c = self.net(window, h, c)
            seen.append(speech)
        return torch.cat(seen, 1), h


NETS = {"decoder": Decoder, "scan": Scan, "cells": partial(Cells, 8, 8), "backwards": Backwards,
        "windows": Windows}  # fmt: skip


def net(name: str, rounds: int = ROUNDS) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    made = NETS[name]().eval()
    if name == "windows":
        return made, torch.randn(1, rounds, CONTEXT + FRAME) * 0.1
    return made, torch.tensor([[3]]) if name == "decoder" else torch.randn(1, rounds, 8)


def several(result: Any) -> tuple[Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@pytest.mark.parametrize("name", NETS)
def test_a_rolled_program_computes_the_same(name: str) -> None:
    model, x = net(name)
    module = torchapi.module_of(import_model(model, (x,)).model)  # type: ignore[arg-type]
    assert roll_loops(module, 10) == 1
    module.recompile()
    (call,) = [n for n in module.graph.nodes if torchapi.is_scan(n)]
    assert torchapi.scan_of(call).count == ROUNDS
    with torch.no_grad():
        for ours, right in zip(several(module(x)), several(model(x)), strict=True):
            torch.testing.assert_close(ours, right)


def test_layers_of_other_weights_are_no_rounds() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(8))).eval()
    module = torchapi.module_of(import_model(model, (torch.randn(1, 32),)).model)  # type: ignore[arg-type]
    assert roll_loops(module, 1) == 0


@pytest.mark.parametrize("name", NETS)
def test_a_rolled_loop_has_the_bits_of_its_rounds(name: str, tmp_path: Any) -> None:
    model, x = net(name)
    made = {
        unroll: tosaic.compile(model, (x,), target="ethos-u85-256", calibration=[x], unroll=unroll)
        for unroll in (True, False)
    }
    ours, written = (several(made[u].run(x)) for u in (False, True))
    assert all(map(torch.equal, ours, written))
    assert [piece.count for piece in made[False].partition.pieces if piece.parts] == [ROUNDS]
    made[False].save(tmp_path / "net.pte")
    assert all(map(torch.equal, ours, several(tosaic.load(tmp_path / "net.pte").run(x))))
    with torch.no_grad():
        for one, real in zip(ours, several(model(x))):
            assert (one - real).abs().max() < 0.06 * real.abs().max()


@pytest.mark.parametrize("name", ["scan", "cells", "backwards", "windows"])
def test_a_file_is_as_large_for_any_number_of_rounds(name: str) -> None:
    sizes = []
    for rounds in (ROUNDS, 4 * ROUNDS):
        model, x = net(name, rounds)
        art: Any = tosaic.compile(
            model, (x,), target="ethos-u85-256", calibration=[x], unroll=False
        )
        data = plain_file(art, LinuxOptions())
        assert data is not None
        sizes.append(len(data))
    assert abs(sizes[1] - sizes[0]) < 0.02 * sizes[0]


class OwnScan(nn.Module):
    """PyTorch's own scan."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.scan import scan

        def step(state: Tensor, element: Tensor) -> tuple[Tensor, Tensor]:
            state = torch.tanh(self.layer(state) + element)
            return state, state * 0.5

        last, seen = scan(step, torch.zeros(1, 8), x, dim=0)
        return seen, last


def test_scans_of_pytorch_compile_as_loops_and_written_out() -> None:
    torch.manual_seed(5)
    model, x = OwnScan().eval(), torch.randn(6, 1, 8)
    with torch.no_grad():
        right = model(x)
    real = tosaic.compile(model, (x,), target="TOSA-1.0+FP")
    for ours, one in zip(real.run(x), right):
        torch.testing.assert_close(ours, one, atol=1e-5, rtol=1e-5)
    art = tosaic.compile(model, (x,), target="ethos-u55-128", calibration=[x])
    assert [piece.count for piece in art.partition.pieces if piece.parts] == [6]
    for ours, one in zip(art.run(x), right):
        assert (ours - one).abs().max() < 0.03 * one.abs().max()


class Counted(nn.Module):
    """Many calls, some of whose results have a size that only a run knows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            x = self.layer(x).tanh()
            found = torch.bincount((x.flatten() * 4).int().abs(), minlength=4)
            x = x + found.float().mean() + x[x > 0].mean()
        return x


def test_calls_with_sizes_that_only_a_run_knows_are_no_rounds() -> None:
    model, x = Counted().eval(), torch.rand(4, 8)
    module = torchapi.module_of(import_model(model, (x,)).model)  # type: ignore[arg-type]
    assert roll_loops(module, 10) == 0
    with torch.no_grad():
        assert torch.equal(module(x), model(x))

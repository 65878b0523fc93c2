"""Calls without a rule become their parts, in place, and mean the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

import tosaic
import tosaic.rules  # (fills the registry)
from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.passes.decompose import expand

ELEMENTARY = {
    "aten.relu.default", "aten.sigmoid.default", "aten.tanh.default", "aten.mul.Tensor",
    "aten.add.Tensor", "aten.sub.Tensor", "aten.slice.Tensor", "aten.split.Tensor", "getitem",
    "aten.linear.default", "aten.select.int", "aten.stack.default", "aten.cat.default",
    "aten.unsqueeze.default", "aten.squeeze.dim", "aten.unbind.int", "aten.transpose.int",
    "aten.addmm.default", "aten.t.default", "aten.view.default", "aten.chunk.default",
    "aten.zeros.default", "aten.split_with_sizes.default", "aten.flip.default",
    "aten.unsafe_chunk.default", "aten.exp.default", "aten.amax.default", "aten.sum.dim_IntList",
    "aten.log.default", "aten.abs.default", "aten.eq.Scalar", "aten.where.self",
    "aten.full_like.default", "aten.scalar_tensor.default", "aten.squeeze.dims",
}  # fmt: skip


class Gated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.glu(torch.relu(x), 1)


class Two(nn.Module):
    """A call with several results, of which two are read."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (h, _) = self.cells(x)
        return y, h


def refuses(node: fx.Node) -> bool:
    return torchapi.target_name(node) not in ELEMENTARY


def expanded(model: nn.Module, *inputs: Tensor) -> tuple[fx.GraphModule, int]:
    module = torchapi.module_of(torchapi.export(model.eval(), inputs))
    return module, expand(module, refuses)


def targets(module: fx.GraphModule) -> set[str]:
    return {torchapi.target_name(n) for n in module.graph.nodes if n.op == "call_function"}


@pytest.mark.parametrize(("model", "shape"), [(Gated(), (2, 6, 4)), (Two(), (2, 3, 6))])
def test_parts_mean_what_the_whole_means(model: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    module, count = expanded(model, x)
    assert count == 1
    assert targets(module) <= ELEMENTARY
    for ours, theirs in zip(_flat(module(x)), _flat(model(x)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_parts_keep_the_users_line_and_types() -> None:
    module, _ = expanded(Gated(), torch.randn(2, 6, 4))
    parts = [n for n in module.graph.nodes if n.op == "call_function"]
    assert all(torchapi.location(n).file == __file__ for n in parts)
    assert all("val" in n.meta for n in parts)


def test_a_call_whose_parts_are_refused_stays_whole() -> None:
    class Uses(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(F.layer_norm(x, (4,)))

    module, count = expanded(Uses(), torch.randn(2, 4))
    assert count == 0
    assert targets(module) == {"aten.layer_norm.default", "aten.special_bessel_j0.default"}


def test_named_operators_are_expanded_though_they_are_taken() -> None:
    module = torchapi.module_of(torchapi.export(Gated(), (torch.randn(2, 6, 4),)))
    taken = {*RULES, "getitem", "aten.glu.default"}

    def never(node: fx.Node) -> bool:
        return torchapi.target_name(node) not in taken

    assert expand(module, never) == 0
    assert expand(module, never, frozenset({"aten.glu.default"})) == 1


def _flat(value: Any) -> list[Tensor]:
    return list(torchapi.flatten(value)[0])


class Contraction(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return torch.einsum("bik,bki->bi", a.int(), b.int()), a + 1


def test_a_call_that_stays_says_which_part_of_it_is_refused() -> None:
    """An einsum of int32 lacks the product of matrices inside of it, not a rule of its own."""
    torch.manual_seed(0)
    data = [(torch.randn(1, 4, 8) * 5, torch.randn(1, 8, 4) * 5) for _ in range(2)]
    art = tosaic.compile(
        Contraction(), data[0], target="ethos-u55-128", scheme="a16w8", calibration=data
    )
    (refused,) = art.partition.refused
    assert refused.op == "aten.einsum.default"
    assert refused.reason.startswith("its part aten.bmm.default: ")
    assert "no rule" not in refused.reason

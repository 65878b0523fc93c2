"""Quantizing after training has a flow of its own, and gives what torchao's flow gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from tosaic.front import torchapi
from tosaic.passes.importer import import_model
from tosaic.quant import TosaicQuantizer
from tosaic.quant.calibrate import calibrate
from tosaic.quant.convert import convert
from tosaic.quant.flow import float_module
from tosaic.quant.prepare import prepare


class Shared(nn.Module):
    """Values with one meaning and with several, fixed ones, and weights that are computed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.table = nn.Parameter(torch.randn(1, 8, 1, 1))
        self.out = nn.Linear(12, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.first(x))
        gate = torch.sigmoid(self.norm(self.second(y)))
        both = torch.cat([y * gate, gate, y + self.table], 1)
        parts = torch.split(nn.functional.max_pool2d(both, 2), 8, 1)
        up = self.up(parts[0] + parts[1])
        flat = torch.cat([parts[2].mean([2, 3]), up.amax([2, 3])], 1)
        return self.out(flat), torch.softmax(flat @ self.out.weight.t(), -1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.qkv, self.out = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(1, -1, 3, 12).unbind(2)
        y = torch.softmax(q @ k.transpose(1, 2) / 3.5, -1) @ v
        return x + self.out(nn.functional.gelu(y))


def programs(net: nn.Module, data: list[tuple[Tensor]], scheme: str) -> list[fx.GraphModule]:
    """The converted program of torchao's flow, and of our own."""
    found = []
    for own in (False, True):
        exported = torchapi.export(net, data[0])
        quantizer = TosaicQuantizer(scheme)
        module = float_module(import_model(exported, data[0]), quantizer)
        with torch.no_grad():
            prepared: Any = prepare(module, quantizer) if own else prepare_pt2e(module, quantizer)
            calibrate(prepared, data[0], data)
            found.append(convert(prepared) if own else convert_pt2e(prepared))
    return found


def described(module: fx.GraphModule) -> list[str]:
    """Every call with its numbers, tensors by their values, independent of names and order."""
    names: dict[fx.Node, str] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = torchapi.attribute(module, str(node.target))
            names[node] = f"{value.dtype} {tuple(value.shape)} {value.double().sum():.17g}"
        elif node.op == "placeholder":
            names[node] = node.name
        elif node.op == "call_function":
            args = fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Name(names[n]))
            names[node] = str(hash(f"{node.target} {args}"))
    return sorted(names.values())


class _Name(str):
    def __repr__(self) -> str:
        return str(self)


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("kind", [Shared, Attention], ids=lambda k: k.__name__)
def test_the_program_is_the_one_that_torchao_makes(kind: Any, scheme: str) -> None:
    net = kind().eval()
    torch.manual_seed(2)
    size = (1, 3, 8, 8) if kind is Shared else (1, 5, 12)
    data = [(torch.randn(size),) for _ in range(3)]
    theirs, ours = programs(net, data, scheme)
    assert described(ours) == described(theirs)
    torch.manual_seed(3)
    for _ in range(2):
        x = torch.randn(size)
        mine, others = (torchapi.flatten(module(x))[0] for module in (ours, theirs))
        assert all(torch.equal(a, b) for a, b in zip(mine, others, strict=True))
        assert all(len(a.unique()) > 4 for a in mine)

"""float32 as C: conformance tests by the generator's rules, networks, cores without an FPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from cortexm.build import has_compiler
from cortexm.compare import conformance, differences
from judges.recipes import FLOAT
from tosaic.errors import InvalidInput
from tosaic.sim.cortexm import qemu

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
needs_gcc = pytest.mark.skipif(not has_compiler(), reason="gcc is not installed")
needs_qemu = pytest.mark.skipif(qemu.missing() is not None, reason=qemu.missing() or "")


class Mixed(nn.Module):
    """Convolutions, pools, a resize, a recurrent layer, attention, and functions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2)
        self.depth = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.last = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.depth(nn.functional.gelu(self.conv(x))))
        x = self.up(x)
        x = nn.functional.max_pool2d(x, 2) + nn.functional.avg_pool2d(x, 2)
        x = nn.functional.interpolate(x, size=(8, 8), mode="bilinear").mean(1)
        x = self.lstm(x)[0]
        x = self.attention(x, x, x)[0]
        return torch.softmax(self.last(self.norm(x)) ** 3, -1)


def compiled(target: str, **options: Any) -> tuple[Any, nn.Module, Tensor]:
    torch.manual_seed(0)
    net, x = Mixed().eval(), torch.randn(1, 2, 10, 10)
    return tosaic.compile(net, (x,), target=target, **options), net, x


@needs_gcc
def test_float32_conformance_tests_comply_and_sanitizers_find_nothing() -> None:
    agreed, wrong = differences(conformance(24, recipes=FLOAT))
    assert not wrong, wrong[0]
    assert agreed >= 25


@needs_gcc
def test_a_float_network_is_as_pytorch_has_it() -> None:
    art, net, x = compiled("cortex-m4", floats="fpu")
    assert not art.report.refused
    assert torch.allclose(art.run(x), net(x), atol=1e-6)


@needs_qemu
@pytest.mark.parametrize(("target", "floats"), [("cortex-m55", "fpu"), ("cortex-m3", "soft")])
def test_the_emulated_core_computes_the_same_floats(target: str, floats: str) -> None:
    art, net, x = compiled(target, floats=floats)
    assert torch.allclose(art.run(x, engine="qemu"), net(x), atol=1e-6)


@needs_gcc
def test_integers_and_floats_in_one_network() -> None:
    torch.manual_seed(0)
    net, x = Mixed().eval(), torch.randn(1, 2, 10, 10)
    scheme = tosaic.Schemes("int8", module_names={"lstm": None, "norm": None})
    art = tosaic.compile(
        net, (x,), target="cortex-m4", floats="fpu", scheme=scheme, calibration=[(x,)]
    )
    assert not art.report.refused
    assert torch.allclose(art.run(x), art.run(x, engine="tosa"), atol=1e-2)
    assert torch.allclose(art.run(x), net(x), atol=0.1)


def test_a_core_without_an_fpu_is_asked_for_soft_floats() -> None:
    with pytest.raises(InvalidInput, match="cortex-m3 has no FPU; floats='soft'"):
        compiled("cortex-m3", floats="fpu")

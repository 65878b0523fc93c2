"""Free sizes on targets with shape operators: one graph, the same bits as one for each size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from judges.reference import run_reference
from tosaic.files import flatbuffer
from tosaic.files.parse import parse
from tosaic.files.text import print_graph
from tosaic.ir.specialize import specialize
from tosaic.pipeline.dynamic import DynamicArtifact
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import sizes_of
from tosaic.targets.catalog import target_of


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(8, 16, 5, padding=2), nn.LayerNorm(16)
        self.second, self.last = nn.Conv1d(16, 16, 3, stride=2, padding=1), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.second(torch.relu(self.first(x)))).transpose(1, 2)
        out: Tensor = self.last(self.norm(y)).log_softmax(-1)
        return out


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.Hardswish(), nn.Upsample(scale_factor=2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Strided(nn.Module):
    """Windows that leave over another part of each size, in paddings or behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.ReLU6(), nn.Conv2d(8, 8, 2, 2, bias=False),
        )  # fmt: skip
        self.patches, self.last = nn.Conv2d(3, 8, 5, 3, 1), nn.Linear(8, 10)
        self.pools = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1))
        self.whole = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.whole(self.layers(x)) + self.whole(self.pools(self.patches(x)))
        out: Tensor = self.last(y.flatten(1))
        return out


class Attention(nn.Module):
    """Positions that are trained for the longest input, of which a shorter one reads fewer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.positions = nn.Parameter(torch.randn(1, 32, 16))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x + self.positions[:, : x.shape[1]])
        return out


K, W = Dim("k", min=2, max=32), Dim("w", min=2, max=32)
CASES: dict[str, tuple[Callable[[], nn.Module], Any, Callable[..., tuple[int, ...]], list[Any]]] = {
    "length": (Speech, {2: 2 * K}, lambda k: (1, 8, 2 * k), [(3,), (5,), (12,), (20,), (32,)]),
    "batch": (Pictures, {0: K}, lambda k: (k, 3, 8, 8), [(2,), (5,), (9,), (16,), (31,)]),
    "height and width": (
        Pictures, {2: 2 * K, 3: 2 * W}, lambda k, w: (1, 3, 2 * k, 2 * w),
        [(3, 4), (9, 5), (4, 11), (16, 16), (20, 7)],
    ),
    "any height and width": (
        Strided, {2: K + 28, 3: W + 25}, lambda k, w: (1, 3, k + 28, w + 25),
        [(3, 4), (10, 5), (4, 11), (17, 32), (21, 6)],
    ),
    "attention": (Attention, {1: K}, lambda k: (2, k, 16), [(2,), (5,), (11,), (19,), (32,)]),
}  # fmt: skip
TARGETS = {
    "float": ("TOSA-1.1+FP+shape", None), "int8": ("TOSA-1.1+INT+shape", "int8"),
    "int16": ("TOSA-1.1+INT+int16+shape", "a16w8"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"), [(n, k) for n in CASES for k in TARGETS if (n, k) != ("attention", "int16")]
)
def test_a_graph_of_any_size_gives_the_bits_of_one_for_each(name: str, kind: str) -> None:
    torch.manual_seed(0)
    make, shapes, shape_of, sizes = CASES[name]
    target, scheme = TARGETS[kind]
    net, example = make().eval(), (torch.randn(shape_of(*[8] * len(sizes[0]))),)
    data = [torch.randn(shape_of(*size)) for size in sizes[:3]]
    device, free = target_of(target), sizes_of(net, example, (shapes,))
    assert free is not None
    stored = calibration_for(free, sizes, device, scheme, data) if scheme else None
    made = tosaic.compile(
        net, example, target=target, scheme=scheme, dynamic_shapes=(shapes,), calibration=stored
    )
    assert isinstance(made, DynamicArtifact)
    assert any(not v.type.is_known for v in made.graph.inputs)
    loaded: Any = tosaic.load(made.bytes)  # the file has unknown sizes
    assert print_graph(parse(print_graph(made.graph))) == print_graph(made.graph)
    for number, size in enumerate(sizes):
        x = torch.randn(shape_of(*size))
        alone = artifact_at(free, size, device, scheme, stored, None, {})
        got = made.run(x)
        if scheme is None:  # libraries sum in an order that depends on addresses
            torch.testing.assert_close(got, alone.run(x), rtol=1e-6, atol=2e-6)
            torch.testing.assert_close(got, net(x))
            continue
        assert torch.equal(got, alone.run(x))
        if number < 2:  # the reference model takes known sizes
            port = made.graph.inputs[0]
            low, high = port.dtype.range
            given = torch.randint(low, high + 1, x.shape).numpy().astype(port.dtype.array)
            at = flatbuffer.write(specialize(made.graph, [given.shape]))
            np.testing.assert_array_equal(loaded.run(given)[0], run_reference(at, [given])[0])


def test_what_a_program_does_not_take_gets_a_sentence() -> None:
    made = tosaic.compile(
        Speech().eval(), (torch.randn(1, 8, 16),), target="TOSA-1.1+FP+shape",
        dynamic_shapes=({2: 2 * K},),
    )  # fmt: skip
    with pytest.raises(tosaic.InvalidInput, match="k is from 1 to 32, not 33"):
        made.run(torch.randn(1, 8, 66))
    with pytest.raises(tosaic.InvalidInput, match=r"takes no inputs of \[1, 8, 15\]"):
        made.run(torch.randn(1, 8, 15))
    with pytest.raises(tosaic.InvalidInput, match=r"was given shape \[2, 8, 16\]"):
        tosaic.load(made.bytes).run(np.zeros((2, 8, 16), np.float32))


def test_a_softmax_of_16_bits_has_other_numbers_for_longer_rows() -> None:
    with pytest.raises(tosaic.InvalidInput, match="numbers of a constant depend on the size"):
        tosaic.compile(
            Attention().eval(), (torch.randn(2, 8, 16),), target="TOSA-1.1+INT+int16+shape",
            scheme="a16w8", dynamic_shapes=({1: K},), calibration=[torch.randn(2, 9, 16)],
        )  # fmt: skip


def test_the_least_size_of_a_range_is_fitted_too() -> None:
    """A pool over all that is left: at other sizes than the least, other quotients fit as well."""
    torch.manual_seed(0)
    pool = nn.MaxPool2d(3, 2, ceil_mode=True)
    layers = nn.Conv2d(3, 8, 3, 2), pool, nn.Conv2d(8, 8, 1), pool, pool, nn.AdaptiveAvgPool2d(1)
    net, side = nn.Sequential(*layers).eval(), {2: 16 * Dim("h", min=3, max=10)}
    made = tosaic.compile(
        net, (torch.randn(1, 3, 96, 96),), target="TOSA-1.1+FP+shape", dynamic_shapes=(side,)
    )
    for height in (48, 64, 112, 160):
        x = torch.randn(1, 3, height, 96)
        torch.testing.assert_close(made.run(x), net(x))


class Halves(nn.Module):
    """A python branch on the size: other operators for long inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x) if x.shape[1] < 12 else torch.sigmoid(x)


def test_programs_that_are_not_the_same_at_all_sizes_are_refused() -> None:
    with pytest.raises(tosaic.InvalidInput, match="it differs in CLAMP, SIGMOID"):
        tosaic.compile(
            Halves(), (torch.randn(1, 8),), target="TOSA-1.1+FP+shape", dynamic_shapes=({1: K},)
        )

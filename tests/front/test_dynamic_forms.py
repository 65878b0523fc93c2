"""Free sizes within branches, of indices, in means and pyramids: the bits of a compile for each."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from judges.reference import run_reference
from tosaic.files import flatbuffer
from tosaic.ir.specialize import specialize
from tosaic.pipeline.dynamic import DynamicArtifact
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import sizes_of
from tosaic.targets.catalog import target_of

N, M = Dim("n", min=2, max=40), Dim("m", min=2, max=40)


class Means(nn.Module):
    """A mean over a length, which is another factor for each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.relu(self.first(x)).mean(1))
        return out


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def plain(x: Tensor) -> Tensor:
            return torch.relu(x) + 1

        def other(x: Tensor) -> Tensor:
            return torch.sigmoid(x).flatten(1).reshape(x.shape) * 2

        out: Tensor = torch.cond(x.amax() > 1.5, plain, other, (x,))
        return out


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(30, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.table(x).flatten(0, 1))
        return out


class Pyramid(nn.Module):
    """What one pixel says of the whole picture, beside each of its pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        one = F.adaptive_avg_pool2d(y, 1)
        up = F.interpolate(one, y.shape[2:], mode="bilinear")
        return torch.cat([torch.relu(y), up], 1)


class Two(nn.Module):
    """Two inputs of sizes of their own: every row of one beside every row of the other."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.softmax(x @ y.transpose(1, 2), 1)


class Heads(nn.Module):
    """Windows with a stride, and the heads of attention over what they see, of two in a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(4, 8, 5, 2, 2), nn.Conv1d(8, 8, 3, 2, 1)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.last(torch.relu(self.first(x))).transpose(1, 2)
        out: Tensor = self.attention(y, y, y, need_weights=False)[0]
        return out


class Padded(nn.Module):
    """A length is filled up to a multiple of four, and cut off again."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv1d(4, 8, 4, 4), nn.ConvTranspose1d(8, 4, 4, 4)

    def forward(self, x: Tensor) -> Tensor:
        filled = F.pad(x, (0, -x.shape[-1] % 4))
        return self.up(torch.relu(self.down(filled)))[..., : x.shape[-1]]


CASES: dict[str, tuple[nn.Module, tuple[Tensor, ...], Any, str]] = {
    "means": (Means(), (torch.randn(2, 12, 8),), ({1: N},), "dynamic"),
    "branches": (Branches(), (torch.randn(3, 6, 4),), ({0: N},), "cf"),
    "words": (Words(), (torch.randint(0, 30, (3, 5)),), ({0: N, 1: M},), ""),
    "pyramid": (Pyramid(), (torch.randn(1, 3, 8, 10),), ({2: N, 3: M},), ""),
    "heads": (Heads(), (torch.randn(2, 4, 14),), ({2: N},), ""),
    "padded": (Padded(), (torch.randn(1, 4, 14),), ({2: N},), ""),
    "two": (Two(), (torch.randn(2, 6, 8), torch.randn(2, 9, 8)), ({1: N}, {1: M}), ""),
}


@pytest.mark.parametrize("profile", ["FP", "INT"])
@pytest.mark.parametrize("name", CASES)
def test_forms_of_any_size_give_the_bits_of_one_for_each(name: str, profile: str) -> None:
    torch.manual_seed(0)
    net, example, shapes, extension = CASES[name]
    target = "+".join(filter(None, ("TOSA-1.1", profile, "shape", extension)))
    scheme = "int8" if profile == "INT" else None
    device, free = target_of(target), sizes_of(net.eval(), example, shapes)
    assert free is not None
    sizes = [(n, n + 4)[: len(free.free.free)] for n in (2, 7, 13, 22, 36)]
    stored = calibration_for(free, sizes, device, scheme, [example]) if scheme else None
    made = tosaic.compile(
        net, example, target=target, scheme=scheme, dynamic_shapes=shapes, calibration=stored
    )
    assert isinstance(made, DynamicArtifact)
    assert not made.report.refused
    loaded: Any = tosaic.load(made.bytes)
    for number, size in enumerate(sizes):
        x = free.examples_at(size)
        alone = artifact_at(free, size, device, scheme, stored, None, {})
        got, wanted = made.run(*x), alone.run(*x)
        if scheme is None:
            torch.testing.assert_close(got, wanted, rtol=1e-6, atol=2e-6)
            torch.testing.assert_close(got, net(*x))
            continue
        assert torch.equal(got, wanted)
        if number < 2:
            ports = [port.dtype for port in made.graph.inputs]
            given = [
                torch.randint(0, 30, t.shape).numpy().astype(kind.array)
                for t, kind in zip(x, ports, strict=True)
            ]
            at = flatbuffer.write(specialize(made.graph, [t.shape for t in x]))
            assert (loaded.run(*given)[0] == run_reference(at, given)[0]).all()


def test_a_quantized_mean_over_a_free_size_names_the_extension_that_it_needs() -> None:
    net, example, shapes, _ = CASES["means"]
    with pytest.raises(tosaic.InvalidInput, match=r"factor of a mean .* which \+dynamic allows"):
        tosaic.compile(
            net, example, target="TOSA-1.1+INT+shape", dynamic_shapes=shapes, calibration=[example]
        )

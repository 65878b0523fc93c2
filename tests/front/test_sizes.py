"""Free sizes on targets with fixed ones: one artifact, a graph a size, one calibration."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from tosaic.pipeline.sized import SizedArtifact
from tosaic.sim.ethosu.share import share
from tosaic.targets.cortexm.host import Host


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(8, 32, 5, padding=2), nn.BatchNorm1d(32)
        self.second, self.last = nn.Conv1d(32, 32, 3, stride=2, padding=1), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.first(x)))
        out: Tensor = self.last(torch.relu(self.second(y)).transpose(1, 2)).log_softmax(-1)
        return out


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def frames(count: int) -> Tensor:
    return torch.randn(1, 8, 2 * count)


def speech(target: str = "TOSA-1.0+INT", **more: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    net = Speech().eval()
    more.setdefault("calibration", [frames(n) for n in (10, 16, 25)])
    more.setdefault("sizes", [8, 16, 32])
    shapes = ({2: 2 * Dim("half", min=4, max=64)},)
    made = tosaic.compile(net, (frames(16),), target=target, dynamic_shapes=shapes, **more)
    return net, made


def decibels(wanted: Tensor, got: Tensor) -> float:
    wanted = wanted.detach()
    return float(10 * torch.log10(wanted.pow(2).mean() / (wanted - got).pow(2).mean()))


def meanings(artifact: Any) -> list[Any]:
    values = [v for op in artifact.graph.ops for v in op.outs]
    return [None if v.quant is None else (v.quant.scale, v.quant.zero_point) for v in values]


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_one_quantization_holds_for_all_sizes(scheme: str) -> None:
    net, made = speech("TOSA-1.0+INT+int16", scheme=scheme)
    assert made.sizes == ["half=8", "half=16", "half=32"]
    assert len({str(meanings(each)) for each in made.variants.values()}) == 1
    for size in (8, 16, 32):
        x = frames(size)
        assert decibels(net(x), made.run(x)) > 35
        assert made.at(x) is made.variants[f"half={size}"]
    assert "half=8; half=16; half=32" in made.report.settings["sizes"]


def test_several_sizes_are_pickled_together() -> None:
    _, made = speech(sizes=[8, 16])
    copy, x = pickle.loads(pickle.dumps(made)), frames(16)
    assert copy.sizes == made.sizes
    assert torch.equal(copy.run(x), made.run(x))


def test_what_fits_no_size_is_told_those_there_are() -> None:
    _, made = speech(sizes=[8, 16])
    with pytest.raises(tosaic.InvalidInput, match=r"\[1, 8, 20\]; there is half=8; half=16"):
        made.run(frames(10))
    assert made.run(torch.cat([frames(8), frames(8)])).shape[0] == 2  # part by part
    with pytest.raises(tosaic.InvalidInput, match="a .tosa file holds one size"):
        made.save("never.tosa")


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ([65], "half is from 4 to 64, and 65 is not"),
        ([{"length": 8}], "sized by 'length', but by half"),
        ([(8, 8)], "a number for half"),
        ([], "sizes is empty"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(sizes: list[Any], told: str) -> None:
    with pytest.raises(tosaic.InvalidInput, match=told):
        speech(sizes=sizes)


def test_sizes_are_for_what_is_free() -> None:
    with pytest.raises(tosaic.InvalidInput, match="no size of this model is free"):
        tosaic.compile(Speech().eval(), (frames(8),), sizes=[8])
    with pytest.raises(tosaic.InvalidInput, match=r"input 2 is \[1, 8, 21\]"):
        speech(calibration=[frames(8), torch.randn(1, 8, 21)])


def test_a_few_sizes_are_chosen_and_named() -> None:
    with pytest.warns(UserWarning, match="half=4; half=16; half=64"):
        _, made = speech(sizes=None)
    assert isinstance(made, SizedArtifact)
    assert len(made.sizes) == 3


def test_other_sizes_lie_in_memory_as_the_example_does() -> None:
    x = torch.randn(1, 16, 8).transpose(1, 2)
    made: Any = tosaic.compile(
        Speech().eval(), (x,), target="TOSA-1.0+FP", sizes=[4, 8],
        dynamic_shapes=({2: 2 * Dim("half", min=4, max=64)},),
    )  # fmt: skip
    orders = [each.partition.pieces[0].input_orders for each in made.variants.values()]
    assert orders[0] == orders[1]


def test_an_exported_program_has_sizes_too() -> None:
    net = Pictures().eval()
    shapes = ({2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=64)},)
    example = (torch.randn(1, 3, 32, 24),)
    program = torch.export.export(net, example, dynamic_shapes=shapes)
    made: Any = tosaic.compile(program, example, target="TOSA-1.0+FP", sizes=[(16, 8), (40, 32)])
    for height, width in ((16, 8), (40, 32)):
        x = torch.randn(1, 3, height, width)
        torch.testing.assert_close(made.run(x), net(x))


class Steps(nn.Module):
    """A loop over the frames in Python: each length is another program."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(8, 12, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.cell(x)[0]
        return out


def test_recurrences_of_other_lengths_than_the_data_compile() -> None:
    torch.manual_seed(0)
    net, example = Steps().eval(), torch.randn(1, 6, 8)
    shapes = ({1: Dim("length", min=2, max=16)},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = tosaic.compile(
            net, (example,), dynamic_shapes=shapes, sizes=[3, 9],
            calibration=[torch.randn(1, 6, 8) for _ in range(4)],
        )  # fmt: skip
    for length in (3, 9):
        x = torch.randn(1, length, 8)
        assert decibels(net(x)[0], made.run(x)[0]) > 25


def test_a_pte_has_a_method_for_each_size(tmp_path: Path) -> None:
    _, made = speech("ethos-u55-128", sizes=[8, 16])
    made.save(tmp_path / "net.pte")
    loaded = tosaic.load(tmp_path / "net.pte")
    assert loaded.methods == ["forward_half_8", "forward_half_16"]
    for size in (8, 16):
        x = frames(size)
        wanted = made.run(x)
        assert torch.equal(loaded.run(x), wanted)
        assert torch.equal(loaded.method(f"forward_half_{size}").run(x), wanted)
    with pytest.raises(tosaic.InvalidInput):
        loaded.run(frames(9))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-512"])
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_streams_of_four_sizes_read_one_set_of_weights(target: str, scheme: str) -> None:
    """Blocks of other depths and other parts of weights at a time, as Vela chooses by the size."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(8, 96, 5, padding=2), nn.BatchNorm1d(96), nn.ReLU(),
        nn.Conv1d(96, 200, 3, stride=2, padding=1), nn.Tanh(),
        nn.Conv1d(200, 40, 4), nn.Conv1d(40, 40, 3, groups=40), nn.Conv1d(40, 29, 1),
    ).eval()  # fmt: skip
    shapes, sizes = ({2: 2 * Dim("half", min=4, max=200)},), [10, 24, 60, 110]

    def compiled(**more: Any) -> tuple[Any, int]:
        made: Any = tosaic.compile(
            net, (frames(24),), target=target, scheme=scheme, dynamic_shapes=shapes, sizes=sizes,
            calibration=[frames(n) for n in (10, 60, 80)], **more,
        )  # fmt: skip
        streams = [each.delegates[0].result.stream for each in made.variants.values()]
        return made, sum(map(len, {stream.weights for stream in share(streams)}))

    made, shared = compiled()
    one = max(len(each.delegates[0].result.weights) for each in made.variants.values())
    assert shared <= 1.1 * one
    assert compiled(share_weights=False, check=False)[1] > 1.7 * one
    x = frames(60)
    assert decibels(net(x), made.run(x)) > 30


def test_c_has_a_function_for_each_size_over_one_set_of_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, example = Pictures().eval(), torch.randn(1, 3, 32, 32)
    side = Dim("side", min=8, max=64)
    made: Any = tosaic.compile(
        net, (example,), target="c", dynamic_shapes=({2: side, 3: side},), sizes=[16, 24, 32],
        calibration=[torch.randn(1, 3, n, n) for n in (16, 20, 32)],
    )  # fmt: skip
    made.save(tmp_path / "net")
    one = tmp_path / "one"
    made.variants["side=32"].save(one)
    folder = tmp_path / "net"
    files = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    assert len(files["net_weights.bin"]) < 1.15 * (one / "net_weights.bin").stat().st_size
    for side_, each in zip((16, 24, 32), made.variants.values()):
        network = each.delegates[0]
        sizes = [size for _, size in network.plan.memories]
        graph = network.graph
        host = Host(files, f"net_side_{side_}", sizes, graph.inputs, graph.outputs)
        x = torch.randint(-128, 128, (1, 3, side_, side_), dtype=torch.int8).numpy()
        given = x.reshape(graph.inputs[0].shape)
        (wanted,) = network.model.run(given)
        assert (host.run(given)[0].reshape(-1) == wanted.reshape(-1)).all()

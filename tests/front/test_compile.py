"""From an nn.Module to a graph that runs: structure, refusals, mixed programs, wrong uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import Function
from judges.reference import run_reference
from tosaic.errors import InvalidInput

FLOAT = "TOSA-1.0+FP"


class Net(nn.Module):
    """Convolutions with batch norm, a residual, a pool and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8))
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.stem(x))
        y = y + self.point(torch.relu(self.depthwise(y)))
        return self.head(y.mean((2, 3)))


class Mixed(nn.Module):
    """One operator in the middle that no rule takes, and a nested output."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, object]:
        y = torch.relu(self.conv(x))
        z = torch.special.bessel_j0(y)
        return {"a": self.head(z.mean((2, 3))), "b": (torch.sigmoid(y) + z, y)}


def settled(net: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """Batch norms with real statistics."""
    torch.manual_seed(0)
    net.train()
    for _ in range(4):
        net(torch.randn(8, *shape[1:]))
    return net.eval()


def test_a_float_network_agrees_with_pytorch_and_the_reference_model() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    x = torch.randn(1, 3, 8, 8)
    art = tosaic.compile(net, (x,), target=FLOAT)
    expected = net.eval()(x).detach()
    torch.testing.assert_close(art.run(x), expected, rtol=1e-4, atol=1e-5)
    (theirs,) = run_reference(art.bytes, [x.numpy()])
    np.testing.assert_allclose(theirs, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert not art.report.refused


def test_an_int8_network_is_close_to_float_and_equal_to_the_reference_model() -> None:
    net = settled(Net(), (1, 3, 32, 32))
    torch.manual_seed(1)
    data = [torch.randn(1, 3, 32, 32) for _ in range(8)]
    art = tosaic.compile(net, (data[0],), calibration=[(x,) for x in data])
    assert not art.report.refused
    outputs, expected = [], []
    for x in data:
        outputs.append(art.run(x))
        expected.append(net(x).detach())
    got, real = torch.cat(outputs), torch.cat(expected)
    noise = 10 * torch.log10(real.square().sum() / (got - real).square().sum())
    assert noise > 20, f"{noise:.1f} dB"
    assert len(got.unique()) > 12
    quant = art.graph.inputs[0].quant
    assert quant is not None
    levels = np.round(data[0].double().numpy() / quant.scale) + quant.zero_point
    integers = np.clip(levels, -128, 127).astype(np.int8)
    (ours,) = tosaic.load(art.bytes).run(integers)
    (theirs,) = run_reference(art.bytes, [integers])
    assert np.array_equal(ours, theirs)


def test_a_mixed_program_runs_in_both_places_and_keeps_its_structure() -> None:
    net, x = Mixed().eval(), torch.randn(1, 3, 8, 8)
    art = tosaic.compile(net, (x,), target=FLOAT)
    got, expected = art.run(x), net(x)
    assert set(got) == {"a", "b"}
    torch.testing.assert_close(got["a"], expected["a"].detach(), rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(got["b"], expected["b"], strict=True):
        torch.testing.assert_close(mine, theirs.detach(), rtol=1e-4, atol=1e-5)
    assert len(art.partition.graphs) == 2
    (refusal,) = art.report.refused
    assert refusal.op == "aten.special_bessel_j0.default"
    assert refusal.reason == "there is no rule for aten.special_bessel_j0.default"
    line = next(
        number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if "z = torch.special" in text
    )  # fmt: skip
    assert refusal.where.endswith(f"test_compile.py:{line}")


def test_an_exported_program_is_taken_too(tmp_path: Path) -> None:
    x = torch.randn(1, 8, 4, 4)
    exported = torch.export.export(nn.Conv2d(8, 8, 1).eval(), (x,))
    art = tosaic.compile(exported, (x,), target=FLOAT)
    assert art.report.ops["CONV2D"] == 1
    art.save(tmp_path / "net.tosa")
    art.save(tmp_path / "net.mlir")
    assert tosaic.load(tmp_path / "net.tosa").inputs[0].shape == (1, 8, 4, 4)
    with pytest.raises(InvalidInput, match="the suffixes are .tosa, .mlir, .pte"):
        art.save(tmp_path / "net.xyz")


def test_wrong_uses_get_a_sentence() -> None:
    net, x = nn.ReLU(), torch.randn(2, 3)
    with pytest.raises(
        InvalidInput,
        match="example_inputs must be a tensor or a tuple of the model's arguments, not a list",
    ):
        tosaic.compile(net, [x], target=FLOAT)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'TOSA-7' is no TOSA specification"):
        tosaic.compile(net, (x,), target="TOSA-7")
    with pytest.raises(InvalidInput, match="a model is an nn.Module"):
        tosaic.compile(3, (x,), target=FLOAT)
    with pytest.raises(InvalidInput, match="a scheme needs a target with integers"):
        tosaic.compile(net, (x,), target=FLOAT, scheme="int8")
    art = tosaic.compile(net, (x,), target=FLOAT)
    with pytest.raises(InvalidInput, match="the program takes 1 input, not 2"):
        art.run(x, x)


def test_a_tensor_alone_is_the_one_example() -> None:
    x = torch.randn(2, 3)
    assert torch.equal(tosaic.compile(nn.ReLU(), x, target=FLOAT).run(x), x.relu())


def test_a_tensor_that_is_given_twice_is_two_inputs() -> None:
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    art = tosaic.compile(Function(torch.sub), (x, x), target=FLOAT)
    assert torch.equal(art.run(x, y), x - y)
    assert not art.run(x, x).any()


def test_a_model_is_compiled_in_inference_mode_and_left_as_it_was() -> None:
    net, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout(0.5)).train(), torch.randn(1, 3, 4, 4)
    art = tosaic.compile(net, (x,), target=FLOAT)
    assert net.training
    assert net[1].training
    torch.testing.assert_close(art.run(x), net.eval()(x).detach(), rtol=1e-4, atol=1e-5)
    assert not art.report.refused


def test_threads_that_compile_at_once_give_what_each_gives_alone() -> None:
    from concurrent.futures import ThreadPoolExecutor

    torch.manual_seed(0)
    x, nets = torch.randn(1, 3, 8, 8), [nn.Conv2d(3, size, 3) for size in (2, 3, 4, 5)]
    data = [(x,), (x / 2,), (-x,)]

    def made(net: nn.Module) -> bytes:
        return tosaic.compile(net, (x,), calibration=data).bytes

    alone = [made(net) for net in nets]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(made, nets * 3)) == alone * 3

"""Networks compiled for VGF: the file's graph by the interpreter, and the file on Vulkan."""

import copy
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import tosaic
from judges.vulkan import needs_converter, needs_vulkan
from tosaic.cli import app
from tosaic.errors import InvalidInput, ToolMissing, Unsupported
from tosaic.files.flatbuffer import write
from tosaic.ir.build import Builder
from tosaic.sim.vulkan import Session
from tosaic.targets.vgf.converter import convert


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.fc = nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        return self.fc(torch.relu(self.conv(image)).mean((2, 3)))


def _model() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return Small().eval(), torch.randn(1, 3, 16, 16)


SCHEMES = [{"scheme": "int8"}, {"scheme": "a16w8"}, {"scheme": "a8w4"}, {"spec": "TOSA-1.0+INT"}]


@needs_converter
@pytest.mark.parametrize("options", SCHEMES, ids=lambda o: next(iter(o.values())))
def test_integers_are_the_same_in_the_file_on_vulkan_and_in_tosa(options: dict[str, str]) -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", calibration=[(x,)], **options)
    ours = made.run(x)
    assert torch.equal(ours, made.run(x, engine="tosa"))
    assert float((ours - model(x).detach()).abs().max()) < 0.1


@needs_vulkan
@pytest.mark.parametrize("options", SCHEMES[:2], ids=lambda o: next(iter(o.values())))
def test_vulkan_gives_the_bytes_of_the_interpreter(options: dict[str, str]) -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", calibration=[(x,)], **options)
    for each in (x, -x):  # one session, run twice
        assert torch.equal(made.run(each), made.run(each, engine="vulkan"))


@needs_vulkan
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_floats_agree_on_vulkan(kind: torch.dtype) -> None:
    model, x = _model()
    model, x = model.to(kind), x.to(kind)
    made = tosaic.compile(model, (x,), target="vgf")
    ours, theirs = made.run(x), made.run(x, engine="vulkan")
    assert ours.dtype == theirs.dtype == kind
    least = {torch.float32: 110, torch.float16: 60, torch.bfloat16: 60}[kind]
    noise = float((ours.double() - theirs.double()).square().sum())
    signal = float(ours.double().square().sum())
    assert 10 * np.log10(signal / max(noise, 1e-30)) > least


@needs_converter
def test_a_file_has_its_names_runs_when_loaded_and_is_the_same_each_time(tmp_path: Path) -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", scheme="int8", calibration=[(x,)])
    made.save(tmp_path / "net.vgf")
    made.save(tmp_path / "again.vgf")
    data = (tmp_path / "net.vgf").read_bytes()
    assert data == (tmp_path / "again.vgf").read_bytes()
    assert b"/tmp" not in data
    assert str(tmp_path).encode() not in data
    for source in (tmp_path / "net.vgf", data):
        loaded = tosaic.load(source)
        assert [port.name for port in loaded.inputs] == ["image"]
        assert np.array_equal(loaded.run(x.numpy())[0], made.run(x).numpy())


@needs_vulkan
def test_a_saved_file_runs_on_vulkan(tmp_path: Path) -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", scheme="int8", calibration=[(x,)])
    made.save(tmp_path / "net.vgf")
    loaded, many = tosaic.load(tmp_path / "net.vgf"), torch.cat([x, -x]).numpy()
    assert np.array_equal(loaded.run(many, engine="vulkan")[0], loaded.run(many)[0])
    with pytest.raises(InvalidInput, match="a .vgf has no engine 'gpu': vgf, vulkan"):
        loaded.run(many, engine="gpu")
    np.save(tmp_path / "x.npy", x.numpy())
    made.save(tmp_path / "net.pte")
    program = tosaic.load(tmp_path / "net.pte")
    assert torch.equal(program.run(x, engine="vulkan"), made.run(x))
    with pytest.raises(InvalidInput, match="no engine 'npu': it has delegates that run by vgf"):
        program.run(x, engine="npu")
    for file in ("net.vgf", "net.pte"):
        command = ["run", f"{tmp_path}/{file}", "-i", f"{tmp_path}/x.npy", "-o", f"{tmp_path}"]
        assert CliRunner().invoke(app, [*command, "--engine", "vulkan"]).exit_code == 0
        assert np.array_equal(np.load(tmp_path / "output_0.npy"), made.run(x).numpy())


@needs_converter
def test_the_report_says_that_the_file_was_read_back() -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf")
    assert re.search(
        r"the file was read back and holds the graph: \d+ operators",
        str(made.report).replace("\n", " "),
    )


def test_a_specification_beyond_the_converter_is_refused() -> None:
    model, x = _model()
    with pytest.raises(InvalidInput, match="does not take cf"):
        tosaic.compile(model, (x,), target="vgf", spec="TOSA-1.0+INT+cf")


def test_a_device_that_nothing_is_known_of_is_refused_before_compiling() -> None:
    model, x = _model()
    for device, reason in (("gpu", "no Vulkan device 'gpu'"), ("no.json", "no manifest")):
        with pytest.raises(InvalidInput, match=reason):
            tosaic.compile(model, (x,), target="vgf", device=device)


def test_without_a_converter_compiling_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = _model()
    monkeypatch.setenv("MODEL_CONVERTER_PATH", "no-such-program")
    with pytest.raises(ToolMissing, match="MODEL_CONVERTER_PATH names 'no-such-program'"):
        tosaic.compile(model, (x,), target="vgf")


class Odd(nn.Module):
    """Outputs that are zeros whatever comes in, and a maximum of infinities."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        low = torch.full_like(x, -torch.inf)
        pooled = nn.functional.max_pool2d(torch.where(x > 0, low, x), 2)
        return x.argmax(1), torch.zeros(3, dtype=torch.float16), (x > 9).to(x.dtype), pooled


@needs_vulkan
def test_zeros_are_written_and_infinities_stay() -> None:
    x = torch.rand(1, 1, 4, 4, dtype=torch.float16) + 0.1
    made = tosaic.compile(Odd(), (x,), target="vgf")
    assert not made.report.refused
    for engine in ("vgf", "vulkan", "vulkan"):
        for ours, right in zip(made.run(x, engine=engine), Odd()(x)):
            assert torch.equal(ours, right), (engine, ours, right)
    assert bool(made.run(x, engine="vulkan")[3].isinf().all())


class Products(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return 0.0 * x, x * -0.0, x[:1] * torch.tensor([0.0, -0.0, 0.0], dtype=x.dtype)


@needs_vulkan
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_products_with_zero_keep_signs_infinities_and_nan(kind: torch.dtype) -> None:
    numbers = [1.0, -2.0, float("inf"), float("-inf"), float("nan"), 0.0, -0.0]
    made = tosaic.compile(Products(), (torch.ones(7, dtype=kind),), target="vgf")
    assert not made.report.refused
    for x in (torch.tensor(numbers, dtype=kind), torch.tensor(numbers[::-1], dtype=kind)):
        for engine in ("vgf", "vulkan"):
            for ours, right in zip(made.run(x, engine=engine), Products()(x), strict=True):
                torch.testing.assert_close(ours, right, rtol=0, atol=0, equal_nan=True)
                defined = ~right.isnan()
                assert torch.equal(ours.signbit()[defined], right.signbit()[defined])


@needs_vulkan
def test_a_profile_has_milliseconds_by_module_and_line() -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", profile=True)
    (delegate,) = made.delegates
    assert len(delegate.estimate.operators) == len(made.graph.ops)
    assert {cost.loc.module for cost in delegate.estimate.operators if cost.loc} >= {"conv", "fc"}
    assert made.report.milliseconds > 0
    assert " ms" in str(made.report)


@needs_converter
def test_the_report_says_what_int4_does_not_save() -> None:
    model, x = _model()
    made = tosaic.compile(model, (x,), target="vgf", scheme="a8w4", calibration=[(x,)])
    told = " ".join(str(made.report).split())
    assert "int4 weights are stored as int8, so they save nothing here" in told
    assert "constants take" in told


class Fire(nn.Module):
    """Convolutions side by side, whose results are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.three = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


@needs_vulkan
@pytest.mark.parametrize("scheme", ["int8", "float"])
def test_joined_convolutions_share_what_follows_them(scheme: str) -> None:
    torch.manual_seed(0)
    net, x = Fire().eval(), torch.randn(1, 3, 8, 8)
    known = {"scheme": "int8", "calibration": [(x,)]} if scheme == "int8" else {}
    made = tosaic.compile(net, (x,), target="vgf", **known)
    names = [op.name for op in made.graph.ops]
    assert names[names.index("CONCAT") + 1] in ("RESCALE", "CLAMP")
    assert names.count("CONV2D") == 2
    tosa = tosaic.compile(net, (x,), target="TOSA-1.0+INT+FP", **known)
    assert len(names) == len(tosa.graph.ops) - 1
    assert torch.equal(made.run(x), tosa.run(x))
    if scheme == "int8":
        assert torch.equal(made.run(x), made.run(x, engine="vulkan"))


class Deep(nn.Module):
    """Layers whose results the emulation would truncate in bf16, and sums that fp16 loses."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = nn.functional.silu(conv(x))
        wide = nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        return nn.functional.avg_pool2d(wide, 2).flatten(2).softmax(2)


def _noise(ours: Tensor, right: Tensor) -> float:
    return float((ours.double() - right.double()).square().sum())


@needs_vulkan
@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_stored_and_computed_in_32(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    net, x = Deep().eval().to(kind), torch.randn(1, 16, 6, 6).to(kind)
    right = copy.deepcopy(net).float()(x.float()).detach()
    made = tosaic.compile(net, (x,), target="vgf")
    native = tosaic.compile(net, (x,), target="vgf", widen=False)
    assert native.run(x).dtype == made.run(x).dtype == kind
    assert _noise(made.run(x), right) < _noise(net(x).detach(), right)
    apart = [_noise(m.run(x), m.run(x, engine="vulkan")) for m in (made, native)]
    assert apart[0] < apart[1]
    assert 10 * np.log10(float(right.square().sum()) / max(apart[0], 1e-30)) > 60
    assert {op.outs[0].dtype for op in native.graph.ops} > {made.graph.inputs[0].dtype}
    narrow = [op for op in made.graph.ops if op.outs[0].dtype is made.graph.inputs[0].dtype]
    assert [op.name for op in narrow[-1:]] == ["CAST"]
    assert {op.name for op in narrow[:-1]} <= {"TRANSPOSE", "RESHAPE"}
    assert len(made.delegates[0].data) < 0.7 * len(
        tosaic.compile(copy.deepcopy(net).float(), (x.float(),), target="vgf").delegates[0].data
    )


class Constants(nn.Module):
    """Numbers that 16 bits do not hold: PyTorch multiplies with them, and chooses rounded ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm(self.conv(x)) * 0.37 + 0.01, torch.where(x >= 0.1, x, 0.1)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
def test_constants_of_16_bit_networks_are_not_rounded_before_they_are_computed_with(
    kind: torch.dtype,
) -> None:
    torch.manual_seed(0)
    net, x = Constants().eval().to(kind), torch.randn(1, 3, 12, 12).to(kind)
    x[0, 0, 0, 0] = 0.1
    right = copy.deepcopy(net).float()(x.float())[0].detach()
    scaled, chosen = tosaic.compile(net, (x,), target="vgf").run(x)
    assert torch.equal(chosen, net(x)[1])
    assert torch.equal(scaled, right.to(kind))


class Rounds(nn.Module):
    """Roundings that the network asks for, and one at the end of a call."""

    def forward(self, x: Tensor) -> Tensor:
        return (x * 3.7).half().float() + (x / 3).bfloat16().type_as(x) + x.half().exp().float()


@needs_vulkan
def test_a_cast_that_the_network_asks_for_rounds() -> None:
    x = torch.linspace(-2, 2, 64)
    made = tosaic.compile(Rounds(), (x,), target="vgf")
    right = (x * 3.7).half().float() + (x / 3).bfloat16().type_as(x) + x.half().float().exp()
    for engine in ("vgf", "vulkan"):
        torch.testing.assert_close(made.run(x, engine=engine), right, rtol=1e-5, atol=1e-6)


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (torch.fft.rfft(x).abs() + 1.0).log()


@needs_vulkan
def test_a_spectrum_runs_on_vulkan_and_fft_operators_do_not_end_the_process() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 16)
    made = tosaic.compile(Spectrum(), (x,), target="vgf")
    assert not made.report.refused
    for engine in ("vgf", "vulkan"):
        torch.testing.assert_close(made.run(x, engine=engine), Spectrum()(x), rtol=1e-4, atol=1e-5)
    b = Builder("TOSA-1.0+FP+fft")
    real, imaginary = b.results("RFFT2D", b.input("f32", (2, 1, 16), "x"))
    b.output(b.ADD(real, imaginary))
    with pytest.raises(Unsupported, match="RFFT2D runs on Vulkan only where the graph gives"):
        Session(convert(write(b.graph)))

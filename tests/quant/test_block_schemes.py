"""Block-scaled (MX) schemes: layers in blocks of 32 channels, beside torchao's own emulation."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from judges.reference import run_reference
from torch import Tensor, nn
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.constants import DTYPE_FP6_E2M3, DTYPE_FP6_E3M2
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

import tosaic
from tosaic.errors import InvalidInput

TARGET = "TOSA-1.1+FP+mxfp"
FORMATS = {
    "mxfp8": torch.float8_e4m3fn,
    "mxfp8_e5m2": torch.float8_e5m2,
    "mxfp6_e2m3": DTYPE_FP6_E2M3,
    "mxfp6_e3m2": DTYPE_FP6_E3M2,
    "mxfp4": torch.float4_e2m1fn_x2,
    "mxint8": "mxint8",
}


class Emulated(nn.Module):
    """A layer as torchao rounds it; MXINT8, which it lacks, by the format's definition."""

    def __init__(self, layer: nn.Module, kind: object) -> None:
        super().__init__()
        self.layer, self.kind = layer, kind

    def rounded(self, x: Tensor) -> Tensor:
        whole = F.pad(x, (0, -x.shape[-1] % 32)).contiguous()
        if self.kind == "mxint8":
            blocks = whole.unflatten(-1, (-1, 32))
            step = torch.exp2(torch.floor(torch.log2(blocks.abs().amax(-1, True) + 1e-30)) - 6)
            real = ((blocks / step).round().clamp(-127, 127) * step).flatten(-2)
        else:
            scale, data = to_mx(whole, self.kind, 32, ScaleCalculationMode.RCEIL)
            real = to_dtype(data, scale, self.kind, 32, torch.float32)
        return real[..., : x.shape[-1]]

    def forward(self, x: Tensor) -> Tensor:
        own = self.layer
        if isinstance(own, nn.Linear):
            return F.linear(self.rounded(x), self.rounded(own.weight), own.bias)
        image = self.rounded(x.movedim(1, -1)).movedim(-1, 1)
        kernel = self.rounded(own.weight.movedim(1, -1)).movedim(-1, 1)
        return F.conv2d(image, kernel, own.bias, own.stride, own.padding, own.dilation)


def emulated(model: nn.Sequential, kind: object) -> nn.Sequential:
    layers = (nn.Linear, nn.Conv2d)
    made = [Emulated(m, kind) if isinstance(m, layers) else m for m in copy.deepcopy(model)]
    return nn.Sequential(*made).eval()


def linears() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(0)
    layers = nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 40)
    return nn.Sequential(*layers).eval(), torch.randn(64, 64)


def convolutions() -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(1)
    layers = (
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1, 2, 2), nn.SiLU(),
        nn.Conv2d(64, 48, 1), nn.ReLU(), nn.Conv2d(48, 24, 2, 2),
    )  # fmt: skip
    return nn.Sequential(*layers).eval(), torch.randn(2, 3, 24, 20)


def decibels(right: Tensor, made: Tensor) -> float:
    return float(10 * torch.log10(right.square().sum() / (right - made).square().sum()))


def ran(model: nn.Module, x: Tensor, scheme: object, target: str = TARGET) -> Tensor:
    artifact = tosaic.compile(model, (x,), target=target, scheme=scheme)
    assert not artifact.report.refused
    return artifact.run(x)


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize("network", [linears, convolutions])
def test_a_network_is_as_near_as_torchao_emulates_it(network, scheme) -> None:
    model, x = network()
    with torch.no_grad():
        right, theirs = model(x), emulated(model, FORMATS[scheme])(x)
    assert decibels(right, ran(model, x, scheme)) >= decibels(right, theirs) - 0.5


@pytest.mark.parametrize("scheme", FORMATS)
@pytest.mark.parametrize("network", [linears, convolutions])
def test_the_reference_model_agrees(network, scheme) -> None:
    model, x = network()
    layer, given = nn.Sequential(model[0]), x[:2]
    artifact = tosaic.compile(layer, (given,), target=TARGET, scheme=scheme)
    (theirs,) = run_reference(artifact.bytes, [given.numpy()])
    assert decibels(torch.from_numpy(theirs), artifact.run(given)) > 120


def test_operators_are_those_of_block_scaled_types() -> None:
    model, x = convolutions()
    names = [op.name for op in tosaic.compile(model, (x,), target=TARGET, scheme="mxfp4").graph.ops]
    assert names.count("CONV2D_BLOCK_SCALED") == 4 == names.count("CAST_TO_BLOCK_SCALED")
    assert "CONV2D" not in names
    model, x = linears()
    names = [op.name for op in tosaic.compile(model, (x,), target=TARGET, scheme="mxfp8").graph.ops]
    assert names.count("MATMUL_T_BLOCK_SCALED") == 3 == names.count("CAST_TO_BLOCK_SCALED")


def test_a_convolution_without_its_operator_is_a_product_for_each_tap() -> None:
    model, x = convolutions()
    whole = ran(model, x, "mxfp4")
    taps = ran(model, x, "mxfp4", "TOSA-1.1+FP+mx+mxfp4e2m1")
    assert decibels(whole, taps) > 100


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(40, 64, 5, 2, 2), nn.Conv1d(64, 32, 4, padding="same"),
        nn.Conv2d(64, 96, 3, padding=1, groups=2), nn.Conv2d(3, 8, (1, 4), padding="same"),
        nn.Conv2d(33, 8, 3, padding="valid", dilation=2, bias=False),
    ],
)  # fmt: skip
def test_every_form_of_convolution(layer: nn.Module) -> None:
    size = (20,) if isinstance(layer, nn.Conv1d) else (9, 10)
    x = torch.randn(2, layer.in_channels, *size)
    with torch.no_grad():
        assert decibels(layer(x), ran(layer.eval(), x, "mxint8")) > 36


def test_batch_norms_go_into_the_layer_before_them() -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(32, 32, 3), nn.BatchNorm2d(32), nn.ReLU())
    x = torch.randn(4, 32, 9, 9)
    model(x)
    artifact = tosaic.compile(model.eval(), (x,), target=TARGET, scheme="mxint8")
    assert {op.name for op in artifact.graph.ops}.isdisjoint({"RSQRT", "SUB", "MUL"})
    with torch.no_grad():
        assert decibels(model(x), artifact.run(x)) > 36


def test_layers_that_have_no_such_form_stay_in_float_and_say_why() -> None:
    model = nn.Sequential(nn.Conv2d(32, 32, 3, groups=32), nn.ConvTranspose2d(32, 8, 2))
    found = tosaic.compile(model.eval(), (torch.randn(1, 32, 8, 8),), target=TARGET, scheme="mxfp8")
    assert not found.report.refused
    assert "BLOCK" not in " ".join(op.name for op in found.graph.ops)
    grouped, transposed = (call.reason for call in found.report.quantization.floats)
    assert grouped == "its groups have 1 channels, and 32 of them share a scale"
    assert transposed == "TOSA has no transposed convolution in block-scaled types"


def test_parts_of_a_model_have_schemes_of_their_own() -> None:
    model, x = linears()
    schemes = tosaic.Schemes(None, module_names={"2": "mxfp4"}, module_types={nn.GELU: "mxfp8"})
    artifact = tosaic.compile(model, (x,), target=TARGET, scheme=schemes)
    assert [op.name for op in artifact.graph.ops].count("MATMUL_T_BLOCK_SCALED") == 1
    assert artifact.report.quantization.schemes["mxfp4"] == 1
    with pytest.raises(InvalidInput, match="no module '9'"):
        tosaic.compile(model, (x,), target=TARGET, scheme=tosaic.Schemes(None, {"9": "mxfp4"}))


def test_blocks_beside_integers() -> None:
    model, x = linears()
    schemes = tosaic.Schemes("int8", module_names={"4": "mxint8"})
    target = "TOSA-1.1+INT+FP+mxfp"
    artifact = tosaic.compile(model, (x,), target=target, scheme=schemes, calibration=[x])
    assert artifact.report.quantization.schemes["mxint8"] == 1
    assert artifact.report.quantization.schemes["int8"] >= 2
    with torch.no_grad():
        assert decibels(model(x), artifact.run(x)) > 28


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_models_of_16_bits(kind: torch.dtype) -> None:
    model, x = linears()
    with torch.no_grad():
        right = model(x)
    made = ran(model.to(kind), x.to(kind), "mxfp8", "TOSA-1.1+FP+bf16+mxfp")
    assert made.dtype is kind
    assert decibels(right, made.float()) > 24


def test_a_file_gives_the_same(tmp_path: Path) -> None:
    model, x = convolutions()
    for scheme in FORMATS:
        artifact = tosaic.compile(model, (x,), target=TARGET, scheme=scheme)
        path = tmp_path / f"{scheme}.tosa"
        artifact.save(path)
        (read,) = tosaic.load(path).run(x.numpy())
        assert torch.equal(torch.as_tensor(read), artifact.run(x))


def test_free_sizes() -> None:
    model, x = linears()
    free = ({0: torch.export.Dim("n", min=2, max=64)},)
    for target in (f"{TARGET}+shape", "TOSA-1.1+INT+FP+mxfp"):
        artifact = tosaic.compile(
            model, (x,), target=target, scheme="mxfp8", dynamic_shapes=free, sizes=[2, 64]
        )
        for count in (2, 64):
            assert torch.equal(artifact.run(x[:count]), ran(model, x[:count], "mxfp8"))


@pytest.mark.parametrize(
    ("target", "lacks"),
    [
        ("ethos-u55-128", "FP, fp8e4m3, mx, mxfp8e4m3"),
        ("TOSA-1.0+FP", "fp8e4m3, mx, mxfp8e4m3"),
        ("TOSA-1.1+FP", "fp8e4m3, mx, mxfp8e4m3"),
        ("TOSA-1.1+FP+mx+mxfp4e2m1", "fp8e4m3, mxfp8e4m3"),
        ("vgf", "mx, mxfp8e4m3"),
    ],
)
def test_a_target_without_such_types_is_refused(target: str, lacks: str) -> None:
    model, x = linears()
    with pytest.raises(InvalidInput, match=f"mxfp8 is for TOSA 1.1 .* has no {lacks}: compile"):
        tosaic.compile(model, (x,), target=target, scheme="mxfp8")


def test_observers_have_nothing_to_do() -> None:
    model, x = linears()
    for quantize in (tosaic.quantize, tosaic.prepare_qat):
        with pytest.raises(InvalidInput, match="give them to tosaic.compile"):
            quantize(model, (x,), scheme="mxfp8")


@pytest.mark.parametrize(("kind", "near"), [(torch.float8_e4m3fn, 60), (torch.float4_e2m1fn_x2, 20)])
def test_what_torchao_has_converted_is_taken_as_it_is(kind: torch.dtype, near: int) -> None:
    from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    model, x = linears()
    with torch.no_grad():
        right = model(x)
    config = MXDynamicActivationMXWeightConfig(
        activation_dtype=kind, weight_dtype=kind, kernel_preference=KernelPreference.EMULATED
    )
    model, x = model.bfloat16(), x.bfloat16()
    quantize_(model, config)
    with torch.no_grad():
        theirs = model(x)
    weight = model[0].weight
    artifact = tosaic.compile(model, (x,), target="TOSA-1.1+FP+bf16+mxfp")
    assert [op.name for op in artifact.graph.ops].count("MATMUL_T_BLOCK_SCALED") == 3
    made = artifact.run(x)
    assert decibels(theirs.float(), made.float()) > near
    assert decibels(right, made.float()) > decibels(right, theirs.float()) - 0.5
    assert model[0].weight is weight
    with torch.no_grad():
        assert torch.equal(model(x), theirs)

"""Block-scaled layers by the names of ExecuTorch's Arm backend."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_dtype, to_mx

import tosaic
from tosaic.executorch import MXFPOpConfig, TosaCompileSpec, TOSAPartitioner, to_mxfp

TARGET = "TOSA-1.1+FP+mxfp"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding="same", dilation=2),
        nn.Conv2d(64, 64, (3, 1), padding=(1, 0), groups=2),
        nn.Conv2d(64, 8, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(512, 40),
    ).eval()  # fmt: skip


@pytest.mark.parametrize("mode", [ScaleCalculationMode.RCEIL, ScaleCalculationMode.FLOOR])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2])
def test_converted_models_compile_to_what_they_compute(
    kind: torch.dtype, mode: ScaleCalculationMode
) -> None:
    real, x = network(), torch.randn(2, 3, 16, 16)
    model = copy.deepcopy(real)
    to_mxfp(model, MXFPOpConfig(kind, mode))
    made = tosaic.compile(model, (x,), target=TARGET)
    assert not made.report.refused
    torch.testing.assert_close(made.run(x), model(x), rtol=1e-5, atol=1e-6)
    weight = real[-1].weight.detach()
    scale, data = to_mx(weight, kind, 32, mode)
    assert torch.equal(model[-1].layer.weight, to_dtype(data, scale, kind, 32, torch.float32))


def test_a_filter_chooses_layers_and_the_partitioner_takes_them() -> None:
    model, x = network(), torch.randn(2, 3, 16, 16)
    to_mxfp(model, MXFPOpConfig(), lambda layer, name: isinstance(layer, nn.Linear))
    assert [type(m).__name__ for m in model[-1:]] == ["MXFPLayer"]
    assert all(isinstance(m, nn.Conv2d | nn.ReLU | nn.Flatten) for m in model[:-1])
    from executorch.exir import to_edge_transform_and_lower

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        edge = to_edge_transform_and_lower(
            torch.export.export(model, (x,)), partitioner=[TOSAPartitioner(TosaCompileSpec(TARGET))]
        )
    names = [node.name for node in edge.exported_program().graph.nodes]
    assert "executorch_call_delegate" in names
    assert not any("mx_" in name for name in names)


def test_types_that_tosa_lacks_get_a_sentence() -> None:
    with pytest.raises(tosaic.InvalidInput, match="TOSA has no blocks of torch.float16"):
        MXFPOpConfig(torch.float16)
    with pytest.raises(tosaic.InvalidInput, match="is no ScaleCalculationMode"):
        MXFPOpConfig(weight_scaling_mode="rceil")
    with pytest.raises(tosaic.InvalidInput, match="give a module that holds it"):
        to_mxfp(nn.Linear(4, 4), MXFPOpConfig())


def test_the_path_of_the_backend_has_the_names() -> None:
    from tosaic.executorch.ao_ext.mxfp import MXFPOpConfig as ByPath

    assert ByPath is MXFPOpConfig

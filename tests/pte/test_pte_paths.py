"""Scripts of the Arm backend's users: its submodule paths, reports, warnings and Vela's summary."""

from __future__ import annotations

import csv
import importlib
import re
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import tosaic
import tosaic.executorch
from judges.etorch import executorch_or_skip
from tosaic.executorch.api import quiet
from tosaic.executorch.paths import PATHS
from tosaic.executorch.summary import summary

executorch_or_skip()

with quiet():
    from executorch.exir import to_edge_transform_and_lower


@pytest.mark.parametrize("path", [*PATHS, "quantizer"])
def test_a_path_of_the_arm_backend_has_our_names(path):
    module = importlib.import_module(f"tosaic.executorch.{path}")
    for name in PATHS.get(path, ("EthosUQuantizer", "get_symmetric_quantization_config")):
        assert getattr(module, name) is getattr(tosaic.executorch, name)
    with pytest.raises((AttributeError, ImportError)):
        getattr(module, "NoSuchName")  # noqa: B009


class Middle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(8, 8, 1)

    def forward(self, x):
        return torch.sigmoid(self.layer(x))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Conv2d(3, 8, 3), Middle(), nn.Conv2d(8, 4, 3)

    def forward(self, x):
        return self.last(self.middle(self.first(x)))


def lowered(module, x, partitioner):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", message="nothing of the model")
        program = torch.export.export(module, x)
        return to_edge_transform_and_lower(program, partitioner=[partitioner])


def test_a_module_without_config_stays_in_float32_and_the_partitioner_tells(capsys):
    from tosaic.executorch.ethosu import EthosUCompileSpec, EthosUPartitioner

    from tosaic.executorch.quantizer import EthosUQuantizer, get_symmetric_quantization_config

    x, spec = (torch.randn(1, 3, 12, 12),), EthosUCompileSpec("ethos-u55-128")
    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
    quantizer.set_module_type(Middle, None)
    prepared = prepare_pt2e(torch.export.export(Net().eval(), x).module(), quantizer)
    prepared(*x)
    partitioner = EthosUPartitioner(spec)
    made = lowered(convert_pt2e(prepared), x, partitioner)
    values = [n.meta.get("val") for n in made.exported_program().graph.nodes]
    kinds = {v.dtype for v in values if isinstance(v, torch.Tensor)}
    assert torch.float64 not in kinds
    assert {r.op for r in partitioner.refused} == {"aten.conv2d.default", "aten.sigmoid.default"}
    assert len(partitioner.report.delegates) == 2
    told = capsys.readouterr().out
    for words in ("2 delegate(s)", "Core clock", "500 MHz", "Sram traffic"):
        assert words in told
    report = partitioner.report
    assert figure(told, "NPU cycles") == report.cycles
    assert figure(told, "Batch inference time") == pytest.approx(report.milliseconds, abs=6e-4)


def figure(text: str, name: str) -> float:
    """The first number of a line of the summary."""
    (found,) = re.findall(rf"^{name} +([\d,.]+)", text, re.MULTILINE)
    return float(found.replace(",", ""))


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_the_summary_has_the_figures_of_velas_own(target, tmp_path):
    x = (torch.randn(1, 3, 24, 24),)
    made = tosaic.compile(Net().eval(), x, target=target, calibration=[x])
    (tmp_path / "net.tosa").write_bytes(made.delegates[0].tosa)
    words = [f"--accelerator-config={target}", "--config=Arm/vela.ini"]
    words += [f"--{k.replace('_', '-')}={v}" for k, v in made.report.settings.items()]
    subprocess.run(
        [sys.executable, "-c", "from ethosu.vela.vela import main; main()", "net.tosa", *words],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    (file,) = (tmp_path / "output").glob("*_summary_*.csv")
    (real,) = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    told = summary(made)
    for name, key, unit, step in (
        ("Core clock", "core_clock", 1e6, 1),
        ("SRAM used", "sram_memory_used", 1, 0.01),
        ("Sram traffic", "sram_total_bytes", 1e6, 0.001),
        ("Neural network MACs", "nn_macs", 1, 1),
        ("NPU cycles", "cycles_total", 1, 1),
        ("Batch inference time", "inference_time", 1e-3, 0.001),
    ):
        assert figure(told, name) == pytest.approx(float(real[key]) / unit, abs=step), name
    rate = float(re.findall(r" ms, ([\d,.]+) inferences/s", told)[0].replace(",", ""))
    assert rate == pytest.approx(float(real["inferences_per_second"]), abs=0.01)


def test_a_float_model_of_which_nothing_is_delegated_is_warned_about():
    from tosaic.executorch.ethosu import EthosUCompileSpec, EthosUPartitioner

    with pytest.warns(UserWarning, match="nothing of the model is quantized"):
        lowered(Net().eval(), (torch.randn(1, 3, 12, 12),),
                EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")))  # fmt: skip

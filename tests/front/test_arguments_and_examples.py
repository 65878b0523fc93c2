"""How users give examples, calibration data and arguments, and what they read of an artifact."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

import tosaic
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput

A, B = torch.randn(2, 8), torch.randn(2, 8)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # the size of encoded weights depends on their values
        self.layer = nn.Linear(8, 8)

    def forward(self, image, mask):
        return self.layer(image) * mask


class KeywordOnly(nn.Module):
    def forward(self, x, *, scale, bias=None):
        return x * scale if bias is None else x * scale + bias


@pytest.fixture(scope="module")
def gated():
    return tosaic.compile(Gated(), (A, B), target="ethos-u55-128", calibration=[(A, B)])


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"foo": A, "bar": B}, "nothing is named 'foo', 'bar'; the model takes image, mask"),
        ({"image": A}, "mask is missing; the model takes image, mask"),
        ({"image": A, "mask": B, "y": B}, "nothing is named 'y'"),
    ],
)
def test_a_calibration_dict_with_other_names_is_refused_with_the_names_there_are(given, sentence):
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        tosaic.compile(Gated(), (A, B), calibration=[given])


def test_a_calibration_dict_binds_by_name_not_by_order():
    net = Gated()
    plain = tosaic.compile(net, (A, B), calibration=[(A, 3 * B)])
    named = tosaic.compile(net, (A, B), calibration=[{"mask": 3 * B, "image": A}])
    assert plain.bytes == named.bytes


class OfTwo(nn.Module):
    def forward(self, first, second):
        return first - second


class OfDict(nn.Module):
    def forward(self, parts):
        return parts["a"] * 2 + parts["b"]


@pytest.mark.parametrize("wrap", [lambda d: {"parts": d}, lambda d: (d,), lambda d: d])
def test_dicts_within_calibration_inputs_bind_by_name(wrap):
    net, example = OfDict(), ({"a": A, "b": 9 * B},)
    plain = tosaic.compile(net, example, calibration=[example])
    named = tosaic.compile(net, example, calibration=[wrap({"b": 9 * B, "a": A})])
    assert plain.bytes == named.bytes
    with pytest.raises(InvalidInput, match="calibration input 1"):
        tosaic.compile(net, example, calibration=[wrap({"b": 9 * B, "c": A})])


def test_a_calibration_dict_in_a_tuple_stands_for_no_tensor():
    sentence = "input 1 is not nested like the example: image is one value, not dict"
    with pytest.raises(InvalidInput, match=sentence):
        tosaic.compile(Gated(), (A, B), calibration=[({"foo": A}, B)])


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (A.double(), r"input is float64\[2,8\] there, and float32\[2,8\] in the example"),
        (A.long(), r"input is int64\[2,8\] there"),
        (A.T, r"input is float32\[8,2\] there, and float32\[2,8\] in the example inputs"),
    ],
)
def test_calibration_inputs_that_do_not_run_are_told_beside_the_example(given, found):
    with pytest.raises(InvalidInput, match=f"calibration input 2 does not run: {found}"):
        tosaic.compile(nn.Linear(8, 8), (A,), calibration=[(A,), (given,)])


def test_inputs_to_compare_on_are_given_by_name_and_have_no_nan():
    net = Gated()
    art = tosaic.compile(net, (A, B), calibration=[(A, B)])
    assert tosaic.compare(net, art, [{"mask": B, "image": A}]) == tosaic.compare(net, art, [(A, B)])
    with pytest.raises(InvalidInput, match="input 2 to compare on has NaN in it"):
        tosaic.compare(net, art, [(A, B), (A * torch.nan, B)])
    with pytest.raises(InvalidInput, match="it is of another model"):
        tosaic.compare(OfTwo(), art, [(A, B)])


def test_a_model_whose_only_call_is_lowered_by_its_parts_is_compared_at_its_end():
    net = nn.Bilinear(4, 5, 3)
    x = torch.randn(1, 4), torch.randn(1, 5)
    told = tosaic.compare(net, tosaic.compile(net, x, target="TOSA-1.0+FP"), [x])
    assert [layer.sqnr > 100 for layer in told.outputs] == [True]


def test_labels_of_a_loader_are_left_out_with_a_note():
    net = nn.Sequential(nn.Linear(8, 8))
    pairs = torch.utils.data.TensorDataset(A, torch.tensor([1, 0]))
    loader = torch.utils.data.DataLoader(pairs, batch_size=2)
    left_out = "the first is taken, the rest is left out as labels"
    with pytest.warns(UserWarning, match=left_out) as seen:
        art = tosaic.compile(net, (A,), calibration=loader)
    assert {warning.filename for warning in seen} == {__file__}  # the user's line
    plain = tosaic.compile(net, (A,), calibration=[(A,)])
    assert art.bytes == plain.bytes
    with pytest.warns(UserWarning, match=left_out):
        boxes = tosaic.compile(net, (A,), calibration=[(A, {"boxes": B, "labels": B})])
    assert boxes.bytes == plain.bytes


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_weights_that_are_no_numbers_are_refused(value):
    net = Gated()
    net.layer.weight.data[0, 0] = float(value)
    what = "NaN" if value == "nan" else "infinity"
    with pytest.raises(InvalidInput, match=f"layer.weight has {what} in it"):
        tosaic.compile(net, (A, B), calibration=[(A, B)])


@pytest.mark.parametrize("name", ["ETHOS-U55-128", "Ethos_U55_128"])
def test_a_target_may_be_spelled_in_capitals(name):
    art = tosaic.compile(Gated(), (A, B), target=name, calibration=[(A, B)])
    assert art.target == "ethos-u55-128"


def test_examples_and_arguments_may_be_given_by_name():
    net = Gated()
    art = tosaic.compile(net, {"mask": B, "image": A}, target="TOSA-1.0+FP")
    with torch.no_grad():
        real = net(A, B)
    for found in (art.run(A, B), art.run(image=A, mask=B), art.run(A, mask=B)):
        assert torch.allclose(found, real, atol=1e-5)
    for given, sentence in (
        ({"image": A}, "the argument mask is missing"),
        ({"image": A, "mask": B, "x": B}, "takes no argument named x; it takes image, mask"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            art.run(**given)
    with pytest.raises(InvalidInput, match="forward has no argument 'foo'; it has image, mask"):
        tosaic.compile(net, {"foo": A}, target="TOSA-1.0+FP")


@pytest.mark.parametrize("examples", [(A, B), {"scale": B, "x": A}])
def test_keyword_only_arguments_are_compiled(examples):
    art = tosaic.compile(KeywordOnly(), examples, target="TOSA-1.0+FP")
    assert torch.allclose(art.run(A, scale=B), A * B)
    assert torch.allclose(art.run(x=A, scale=B), A * B)


def test_a_batch_is_run_part_by_part(gated):
    many = [torch.cat([x, 0.5 * x, -x]) for x in (A, B)]
    parts = [gated.run(*(m[n : n + 2] for m in many)) for n in (0, 2, 4)]
    assert torch.equal(gated.run(*many), torch.cat(parts))
    assert torch.equal(gated.run(*(np.asarray(m) for m in many)), torch.cat(parts))
    with pytest.raises(InvalidInput, match=r"must be float32\[2,8\]"):
        gated.run(torch.cat([A, A]), B)
    with pytest.raises(InvalidInput, match=r"must be float32\[2,8\]"):
        gated.run(torch.randn(3, 8), torch.randn(3, 8))


@pytest.mark.parametrize("suffix", [".pt", ".onnx", ".tflite", ".safetensors"])
def test_files_of_other_tools_have_a_sentence_each(suffix, tmp_path):
    file = tmp_path / f"net{suffix}"
    file.write_bytes(b"\0\0\0\0")
    words = {".onnx": "is ONNX", ".tflite": "is TensorFlow's"}.get(suffix, "torch.export.save")
    for use in (tosaic.load, lambda f: tosaic.compile(f, (A,))):
        with pytest.raises(InvalidInput, match=words):
            use(file)


def test_an_artifact_prints_in_a_line_and_as_a_short_table(gated):
    assert "\n" not in repr(gated)
    assert len(repr(gated)) < 300
    assert "ethos-u55-128" in repr(gated)
    assert gated._repr_html_().count("<tr>") < 12


def test_plain_numbers_over_all_graphs(gated):
    report, (made,) = gated.report, gated.delegates
    assert report.cycles == made.result.performance.total_cycles
    assert report.sram == made.result.scratch_size
    assert report.flash == len(made.result.weights) + len(made.result.command_stream)
    assert report.milliseconds == pytest.approx(1e3 * report.cycles / 500e6)  # 500 MHz in vela.ini
    assert tosaic.compile(Gated(), (A, B), target="TOSA-1.0+FP").report.cycles is None


def test_sram_that_caches_an_arena_in_dram_is_counted():
    net, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.MaxPool2d(2)).eval(), (torch.randn(1, 3, 32, 32),)
    art = tosaic.compile(net, x, target="ethos-u65-256", calibration=[x])
    told = art.report.delegates[0].estimate
    assert art.report.sram == told.memories["Sram"] > told.scratch


def test_the_limit_of_flash_counts_the_command_stream(gated):
    need = gated.report.flash
    options = {"target": "ethos-u55-128", "calibration": [(A, B)]}
    with pytest.raises(InvalidInput, match=f"needs {need:,} bytes of flash"):
        tosaic.compile(Gated(), (A, B), max_flash_bytes=need - 1, **options)


def test_multiplications_of_the_headline_and_of_the_modules_agree():
    net, inputs, data = example("cnn")
    report = tosaic.compile(net, inputs, target="ethos-u55-128", calibration=data).report
    (told,) = (delegate.estimate for delegate in report.delegates)
    assert sum(cost.macs for cost in told.modules) == report.macs
    assert {cost.bound for cost in told.modules} <= {"MACs", "elements", "SRAM", "flash"}
    assert "elements" in {cost.bound for cost in told.modules if not cost.macs}  # its pool
    assert {bool(cost.macs) for cost in told.modules if cost.bound == "MACs"} == {True}
    assert f"{report.macs:,} multiply-accumulates" in str(report)
    assert "inferences a second" in str(report)


def test_json_has_versions_configuration_sizes_and_how_many_scales(gated, tmp_path):
    gated.save(tmp_path / "net.tosa")
    told = json.loads(json.dumps(gated.report.data()))
    assert told["versions"]["torch"] == torch.__version__
    assert told["settings"]["system_config"] == "Ethos_U55_High_End_Embedded"
    assert told["settings"]["memory_mode"] == "Shared_Sram"
    assert told["file_sizes"]["net.tosa"] == (tmp_path / "net.tosa").stat().st_size
    weights = [call["weight"] for call in told["quantization"]["calls"] if call["weight"]]
    assert [weight["channels"] for weight in weights] == [8]
    for name in ("cycles", "sram", "flash", "milliseconds", "macs"):
        assert told[name] == getattr(gated.report, name)


def test_compiled_files_hold_no_absolute_path(gated, tmp_path):
    gated.save(tmp_path / "net.tosa")
    gated.save(tmp_path / "net.mlir")
    here = str(tmp_path.anchor).encode() + __file__.lstrip("/").split("/")[0].encode() + b"/"
    for name in ("net.tosa", "net.mlir"):
        data = (tmp_path / name).read_bytes()
        assert here not in data
        assert b"test_arguments_and_examples.py" in data
        assert b"layer" in data


def test_any_artifact_is_a_c_array(gated, tmp_path):
    gated.save(tmp_path / "my-net.h", of=".tosa")
    text = (tmp_path / "my-net.h").read_text()
    found = bytes(int(byte, 16) for byte in re.findall(r"0x[0-9a-f]{2}", text))
    assert found == gated.bytes
    assert f"my_net[{len(found)}]" in text
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source = tmp_path / "main.c"
    source.write_text('#include "my-net.h"\nint main(void) { return my_net[my_net_size - 1]; }\n')
    subprocess.run([compiler, "-Wall", "-Werror", "-c", source, "-o", tmp_path / "m.o"], check=True)


def test_phases_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="tosaic"):
        tosaic.compile(Gated(), (A, B), calibration=[(A, B)])
    said = [record.message for record in caplog.records]
    assert [s for s in said if ":" not in s] == ["exporting the model", "quantizing",
                                                 "lowering to TOSA"]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_traced_module_is_compiled_whole():
    net = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ConvTranspose1d(4, 2, 3), nn.ReLU()).eval()
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))
    art = tosaic.compile(torch.jit.trace(net, x), (x,), target="TOSA-1.0+FP")
    assert not art.report.refused
    torch.testing.assert_close(art.run(x), net(x).detach())


def test_an_exported_program_brings_its_example_inputs():
    x = torch.randn(2, 4)
    program = torch.export.export(nn.Linear(4, 3).eval(), (x,))
    art = tosaic.compile(program, target="TOSA-1.0+FP")
    assert art.bytes == tosaic.compile(program, (x,), target="TOSA-1.0+FP").bytes


def test_options_on_the_command_line_have_their_types():
    from tosaic.targets.catalog import target_of

    assert target_of("ethos-u55-128", {"check": "false"}).check is False
    assert target_of("cortex-m4", {"check": "False"}).check is False
    assert target_of("vgf", {"converter_seconds": "5"}).check is True

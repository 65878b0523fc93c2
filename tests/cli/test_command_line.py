"""The command line: good paths, wrong uses, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tosaic.cli import main

MODEL = """
import torch
from torch import nn


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return torch.special.bessel_j0(torch.relu(self.layer(x)))


def model():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    return net, (torch.randn(1, 3, 8, 8),)


mixed = Mixed()
number = 3
data = [torch.randn(1, 3, 8, 8) for _ in range(2)]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "network_of_the_cli.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def tosaic(*words: object) -> int:
    """The exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    return int(stop.value.code or 0)


def test_compile_writes_a_file_that_run_runs(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, given = tmp_path / "m.tosa", tmp_path / "x.npy"
    assert tosaic("compile", file, "--calibration", f"{file}:data", "-o", made) == 0
    assert "CONV2D" in capsys.readouterr().out
    np.save(given, np.random.default_rng(0).integers(-128, 128, (1, 3, 8, 8)).astype(np.int8))
    assert tosaic("run", made, "-i", given, "-o", tmp_path / "out") == 0
    result = tmp_path / "out" / "output_0.npy"
    assert np.load(result).shape == (1, 4)
    assert tosaic("run", made, "-i", given, "--expect", result) == 0
    np.save(result, np.load(result) + 1)
    assert tosaic("run", made, "-i", given, "--expect", result) == 1


def test_json_is_data_for_machines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", f"{file}:mixed", "--shape", "1,3,8,8", "--json")
    assert tosaic(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [call["compiled"] for call in told["calls"]] == [True, True, False]
    assert tosaic(*words, "--strict") == 1


def test_compare_prints_decibels(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tosaic("compare", file, "--calibration", f"{file}:data") == 0
    assert "SQNR dB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["compile", "absent.py"], "there is no file 'absent.py'"),
        (["compile", "absent.pt2"], "there is no file 'absent.pt2'"),
        (["compile", "model.onnx"], "'model.onnx' is no model"),
        (["compile", "{file}:nothing"], "has no 'nothing'"),
        (["compile", "{file}:number"], "is a int, no torch.nn.Module"),
        (["compile", "{file}:mixed"], "gives no example inputs"),
        (["compile", "{file}:mixed", "--shape", "a"], "'a' is no shape"),
        (["compile", "{file}", "-t", "TOSA-9"], "'TOSA-9' is no"),
        (["compile", "{file}", "-o", "/absent/m.tosa"], "there is no folder '/absent'"),
        (["compile", "{file}", "-o", "m.bin", "--calibration", "{file}:data"], "m.bin"),
        (["compile", "{file}", "--calibration", "absent.npz"], "there is no file 'absent.npz'"),
        (["compile", "{file}", "--shape", "1,5,8,8"], "torch.export does not take"),
        (["run", "absent.tosa"], "absent.tosa"),
    ],
    ids=str,
)
def test_a_wrong_use_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tosaic(*[word.format(file=file) for word in words]) == 2
    told = capsys.readouterr().err
    assert sentence in told.replace("\n", " ")
    assert "Traceback" not in told


def test_help_needs_no_torch() -> None:
    code = (
        "import sys, tosaic.cli as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"compile" in done.stdout


def test_io_chooses_the_types_at_the_boundary(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, data = tmp_path / "m.tosa", f"{file}:data"
    words = ("compile", file, "--calibration", data, "-o", made, "--json")
    assert tosaic(*words, "--io", "uint8") == 0
    told = json.loads(capsys.readouterr().out)["boundary"]
    assert [t["dtype"] for t in (*told["inputs"], *told["outputs"])] == ["uint8", "uint8"]
    assert tosaic(*words, "--io", "inputs=int16:1/4096", "--io", "outputs=int8") == 0
    told = json.loads(capsys.readouterr().out)["boundary"]
    assert told["inputs"][0]["scale"] == 1 / 4096
    assert [t["dtype"] for t in (*told["inputs"], *told["outputs"])] == ["int16", "int8"]
    assert tosaic(*words, "--io", "0=uint8:0.03:128") == 0
    told = json.loads(capsys.readouterr().out)["boundary"]
    assert (told["inputs"][0]["scale"], told["inputs"][0]["zero_point"]) == (0.03, 128)
    assert told["outputs"][0]["dtype"] == "float32"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["uint4"], "io has no type 'uint4'"),
        (["picture=uint8"], "no input or output named 'picture'"),
        (["uint8", "linear=int8"], "--io uint8 is for all, so it is the only one"),
        (["inputs=uint8", "linear=int8"], "either inputs= and outputs=, or single tensors"),
        (["uint8:a"], "--io uint8:a: write a meaning as uint8:1/255:0"),
        (["uint8:1/0"], "write a meaning as uint8:1/255:0"),
        (["uint8:1:2:3"], "write a meaning as uint8:1/255:0"),
        (["uint8:0.1:300"], "the zero point of uint8 is 0 to 255"),
    ],
)
def test_a_wrong_io_is_told_in_a_sentence(
    words: list[str], sentence: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part for word in words for part in ("--io", word)]
    assert tosaic("compile", file, "--calibration", f"{file}:data", *given) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())

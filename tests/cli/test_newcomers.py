"""What people try first on the command line: versions, traces, JSON, files that cannot be made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tosaic import __version__
from tosaic.cli import main
from tosaic.cli.options import _schemes
from tosaic.lowering.partition import Refusal
from tosaic.pipeline.report import grouped

HELPERS = """
import torch
from torch import nn

def helper(x):
    return torch.linalg.svd(x)[1]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        for _ in range(4):
            x = helper(x + 1)[..., None] * x
        return x * 2 + self.count

def model():
    return Net(), (torch.randn(1, 4, 4),)
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    file = tmp_path / "net.py"
    file.write_text(HELPERS)
    return file


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


def test_the_version_is_an_option(capsys):
    assert code_of("--version") == 0
    assert capsys.readouterr().out == f"tosaic {__version__}\n"


def test_python_m_tosaic_is_the_command_line():
    run = [sys.executable, "-m", "tosaic", "--version"]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip() == (
        f"tosaic {__version__}"
    )


def test_debug_shows_the_trace_and_keeps_the_exit_code(capsys):
    assert code_of("compile", "cnn", "-t", "nope") == 2
    assert "Traceback" not in capsys.readouterr().err
    assert code_of("compile", "cnn", "-t", "nope", "--debug") == 2
    told = capsys.readouterr().err
    assert "Traceback" in told
    assert "error: there is no target 'nope'" in told
    assert code_of("--help") == 0
    assert "--debug" in capsys.readouterr().out


def test_an_error_is_an_object_in_json(capsys):
    assert code_of("compile", "cnn", "-t", "nope", "--json") == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert (told["kind"], told["exit_code"]) == ("InvalidInput", 2)
    assert told["message"].startswith("there is no target 'nope'")


@pytest.mark.parametrize(
    "words",
    [
        ["compil", "cnn"],
        ["compile"],
        ["compile", "cnn", "--tagret", "x"],
        ["compile", "cnn", "cnn"],
    ],
)
def test_what_the_command_line_does_not_understand_is_a_sentence_with_the_way_out(words, capsys):
    assert code_of(*words, "--json") == 2
    told = capsys.readouterr()
    (line,) = told.err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("--help` lists what there is")
    assert json.loads(told.out)["error"]["message"] in line


def test_without_a_word_the_help_is_printed(capsys):
    assert code_of() == 0
    assert "compile" in capsys.readouterr().out


@pytest.mark.filterwarnings("always")
def test_a_pte_without_a_target_is_warned_about(tmp_path, capsys):
    def warned(*more: str) -> bool:
        assert code_of("compile", "cnn", "-q", "-o", str(tmp_path / "net.pte"), *more) == 0
        return "which no board loads" in capsys.readouterr().err

    assert warned()
    assert not warned("-t", "TOSA-1.0+INT")


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_what_cannot_be_saved_still_gets_its_report(net, tmp_path, capsys):
    pytest.importorskip("executorch")
    words = ["compile", f"{net}", "-t", "ethos-u55-128", "-o", str(tmp_path / "net.pte")]
    assert code_of(*words, "--report", str(tmp_path / "net.html")) == 2
    told = capsys.readouterr()
    assert "has no kernel for it" in told.err
    assert "4 ×" in told.out  # equal refusals are one row
    assert "return torch.linalg.svd(x)[1]" in told.out  # the helper's own line
    assert (tmp_path / "net.html").is_file()
    assert not (tmp_path / "net.pte").exists()
    assert "written:" in told.out


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_what_cannot_be_saved_has_its_report_and_its_error_in_one_object(net, tmp_path, capsys):
    pytest.importorskip("executorch")
    words = ["compile", f"{net}", "-t", "ethos-u55-128", "-o", str(tmp_path / "net.pte"), "--json"]
    assert code_of(*words) == 2
    told = capsys.readouterr()
    data = json.loads(told.out)
    assert data["refused"]
    assert data["error"]["exit_code"] == 2
    assert data["error"]["message"] in told.err


def test_help_has_a_short_name(capsys):
    assert code_of("-h") == 0
    assert "compile" in capsys.readouterr().out
    assert code_of("compile", "-h") == 0
    assert "--calibration" in capsys.readouterr().out


DATA = """
import torch
from torch import nn

def model():
    return nn.Linear(4, 4), (torch.randn(2, 4),)

def named():
    yield {"input": torch.randn(2, 4)}

def misnamed():
    yield {"inputs": torch.randn(2, 4)}
"""


def test_calibration_by_name_is_taken_on_the_command_line(tmp_path, capsys):
    (tmp_path / "data.py").write_text(DATA)
    words = ["compile", f"{tmp_path}/data.py", "-q", "--calibration", f"{tmp_path}/data.py"]
    assert code_of(*words[:-1], words[-1] + ":named") == 0
    assert code_of(*words[:-1], words[-1] + ":misnamed") == 2
    assert "nothing is named 'inputs'; the model takes input" in capsys.readouterr().err


def test_words_that_do_not_go_together_are_told_before_anything_runs(tmp_path, capsys):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    (tmp_path / "page.html").mkdir()
    page = str(tmp_path / "page.html")
    for words, sentence in (
        (["compile", "cnn", "--goal", "sqnr=30"], "--goal and --budget are for --scheme auto"),
        (["compile", "cnn", "--report", "page.htm"], "a report is an .html file, not 'page.htm'"),
        (["compile", "cnn", "--calibration", f"{tmp_path}/whole.pt"], "save tensors alone"),
        (["tune", "cnn", "-t", "ethos-u55-128", "-o", page], "page.html' is a folder"),
    ):
        assert code_of(*words) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(("start", "found"), [("a16", ["a16w8", "a16w8_per_tensor"]), ("x", [])])
def test_schemes_are_completed(start, found):
    assert _schemes(start) == found


def test_refusals_that_differ_in_a_number_of_a_value_are_one():
    of = [
        Refusal("aten.isnan.default", f"add_{n} has a size that depends on the input", "")
        for n in (3, 12)
    ]
    other = [Refusal("aten.isnan.default", "mul_3 has a size that depends on the input", "")]
    assert grouped([*of, *other]) == [of, other]


def test_folders_with_spaces_and_other_letters_are_as_any(tmp_path, capsys):
    folder = tmp_path / "mes réseaux, à moi"
    folder.mkdir()
    file, made = folder / "le réseau.py", folder / "été 1.pte"
    file.write_text(OF_ITS_OWN, encoding="utf-8")
    assert code_of("compile", str(file), "-t", "ethos-u55-128", "-o", str(made)) == 0
    assert " (model) " in capsys.readouterr().out
    assert code_of("dump", str(made)) == 0
    assert "été 1.pte" in capsys.readouterr().out
    assert code_of("compare", str(file)) == 0
    assert " le réseau.py:8 \n" in capsys.readouterr().out
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == [file.name, made.name]


OF_ITS_OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        x = x * 2
        return torch.sigmoid(x)

def model():
    x = (torch.linspace(-1, 1, 16).reshape(1, 16),)
    return Net(), x, [x]
"""

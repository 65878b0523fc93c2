"""Wrong uses that newcomers try: each has a sentence that says what, where, and what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.cli import main
from tosaic.errors import InvalidInput
from tosaic.targets.catalog import target_of

OWN = """
import torch
from torch import nn

class Less(nn.Module):
    def forward(self, a, b):
        return a - b

def model():
    return Less(), (torch.rand(1, 4), torch.rand(1, 4))

def fails():
    return {}["weights"]

def kind():
    return Less, (torch.rand(1, 4),) * 2

def nothing():
    pass

def weights():
    return nn.Linear(2, 2).state_dict(), (torch.rand(1, 2),)

def text():
    return nn.Linear(2, 2), "1,2"

def rowless():
    return nn.Linear(2, 2), (torch.rand(0, 2),)

class Silent(nn.Module):
    def forward(self, x):
        x + 1

def silent():
    return Silent(), (torch.rand(1, 2),)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "absent.py").write_text("import math\n\nimport no_such_package\n")
    (tmp_path / "no.npy").write_text("hello")
    (tmp_path / "no.json").write_text("{}")
    (tmp_path / "bad.pte").write_text("hello")
    (tmp_path / "cut.pt").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "pictures").mkdir()
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("compile own.py:fails", "KeyError: 'weights' (at {folder}/own.py:13)"),
        ("compile absent.py", "No module named 'no_such_package' (at {folder}/absent.py:3)"),
        ("compile own.py:kind", "is the class Less (give an instance of it)"),
        ("compile own.py:nothing", "is None: a model is an nn.Module, or a function that returns"),
        ("compile own.py:weights", "is an OrderedDict: a model is an nn.Module"),
        ("compile own.py:text", "gives a str as example inputs: give a tensor"),
        ("compile cnn --shape 1,3", "'cnn' has inputs of its own: leave out --shape"),
        ("compile cnn --scheme INT8", "no scheme 'INT8', perhaps int8"),
        ("compile cnn -t ethos-u55-128,ethos-u55-256", "give one, or several to `tosaic tune`"),
        ("compile cnn -o net.vgf", ".vgf is what the target vgf gives"),
        ("compile cnn --max-flash 1M", "a device has more: name it as the target"),
        ("compile own.py --calibration no.npy", "'no.npy' holds no arrays: NumPy did not write"),
        ("compile own.py --calibration words.npy", "its elements are <U1, no numbers"),
        ("run bad.pte", "bad.pte: this is no .pte file of ExecuTorch"),
        ("run bad.pte --tolerance -1", "invalid value for '--tolerance'"),
        ("tune no_such_file.py -t ethos-u55-64", "there is no file 'no_such_file.py'"),
        (
            "compile own.py:nets",
            "'nets'; write file.py:name, as own.py:model or own.py:fails",
        ),
        ("compile own", "'own' is no model, perhaps own.py: give"),
        ("compile cnn -o a.pte --output=b.pte", "--output is given twice: give it once\n"),
        ("compile cnn --print-after lower:no/x.txt", "cannot write 'no/x.txt': No such file or"),
        ("firmware cnn -o image -b no.toml", "'no.toml' cannot be read: No such file or dir"),
        ("compile :model", "':model' is no model: give file.py:name"),
        ("compile bad.pte", "'bad.pte' is compiled: tosaic.load and `tosaic run` take it"),
        ("compile own.py --calibration cut.pt", "'cut.pt' holds no tensors: "),
        ("firmware a-b=own.py -o image", "is a word of C in small letters, not 'a-b'"),
        ("compile own.py:rowless", "have no elements (input 0 is [0, 2]): give a batch"),
        (
            "compile own.py:silent -t TOSA-1.0+FP",
            "the model gives no tensor back, so nothing of it can be",
        ),
        (
            "compile own.py -o folder",
            ".tosa, .mlir, .pte, .bpte, .html, .json, .h\n",
        ),
        ("compile own.py --scheme no.json", "holds no schemes, as `tosaic tune` writes"),
        (
            "compile own.py -t u65",
            "perhaps ethos-u65-256, ethos-u65-512; `tosaic targets`",
        ),
    ],
)
def test_a_wrong_use_of_the_command_line_is_a_sentence(words, sentence, folder, capsys):
    assert sentence.format(folder=folder) in told(capsys, *words.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("compare cnn --inputs nowhere", "there is no file 'nowhere'"),
        ("evaluate cnn -d pictures", "'pictures' has no pictures, sounds or arrays"),
        ("tune cnn -t ethos-u55-63", "there is no target 'ethos-u55-63'"),
    ],
)
def test_what_is_wrong_with_words_is_told_before_anything_is_compiled(
    words, sentence, capsys, monkeypatch
):
    monkeypatch.setattr(tosaic, "compile", None)
    monkeypatch.setattr(torch.export, "export", None)
    assert sentence in told(capsys, *words.split())


@pytest.mark.filterwarnings("ignore:input . is . everywhere")
def test_arrays_are_taken_by_the_names_of_the_arguments(capsys):
    a, b = np.full((1, 4), 5, np.float32), np.full((1, 4), 3, np.float32)
    np.savez("data.npz", b=b, a=a)  # in another order than forward has them
    for words in (
        "calibrate own.py data.npz -o net.json -q",
        "compile own.py -t TOSA-1.0+FP -o net.tosa -q",
        "run net.tosa -i data.npz -o results -q",
    ):
        with pytest.raises(SystemExit) as ended:
            main(words.split())
        assert ended.value.code == 0, capsys.readouterr().err
    ranges = json.loads(Path("net.json").read_text())["tensors"]
    assert (ranges["a"]["high"], ranges["b"]["high"]) == (5, 3)
    assert np.load("results/output_0.npy").tolist() == [[2.0] * 4]


def test_calibration_without_an_end_is_warned_about():
    class Doubled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x

    data = ((torch.rand(4),) for n in count() if n < 5001 or pytest.fail("it is read on"))
    with (
        pytest.warns(UserWarning, match="a few hundred are enough; if the data has no end"),
        pytest.raises(BaseException, match="it is read on"),
    ):
        tosaic.calibrate(Doubled(), (torch.rand(4),), calibration=data)


class Bare(nn.Module):
    def __init__(self) -> None:
        self.factor = 2

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def broken() -> Iterator[Tensor]:
    yield torch.rand(1, 4)
    raise OSError("the disk is gone")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "use",
    [
        lambda net, x: tosaic.compile(net, x, calibration=broken()),
        lambda net, x: tosaic.calibrate(net, x, calibration=broken()),
        lambda net, x: tosaic.compile(
            net, x, target="ethos-u55-128", scheme="auto", calibration=broken()
        ),
        lambda net, x: tosaic.tune(net, x, target="TOSA-1.0+INT", calibration=broken(), jobs=1),
        lambda net, x: tosaic.compare(net, tosaic.compile(net, x), broken()),
    ],
    ids=["compile", "calibrate", "auto", "tune", "compare"],
)
def test_data_that_fails_is_told_with_its_number(use: Callable[..., Any]) -> None:
    with pytest.raises(InvalidInput, match="input 2 cannot be read: OSError: the disk is gone"):
        use(nn.Linear(4, 4), (torch.rand(1, 4),))


def test_what_is_misspelt_or_out_of_order_is_recognized() -> None:
    net, x = nn.Linear(4, 4), (torch.rand(1, 4),)
    art = tosaic.compile(net, x, calibration=[x])
    for use, sentence in (
        (lambda: tosaic.compile(net, x, tgt="ethos-u55-128"), "no option 'tgt', perhaps target"),
        (lambda: tosaic.compile(net, (1, 4)), r"\(1, 4\) is a shape: give a tensor, as torch.rand"),
        (lambda: tosaic.compile(nn.Linear, x), "not the class Linear .give an instance of it"),
        (lambda: tosaic.compile(net), "give example_inputs: a tensor, or a tuple"),
        (lambda: tosaic.evaluate(art, net, x, data=[]), "evaluate takes the model, its example"),
        (lambda: tosaic.compile(Bare(), x), r"Bare.__init__ does not call super\(\).__init__"),
        (lambda: tosaic.compile(net, x[0].to_sparse()), "example input 0 is sparse: give x.to_"),
        (
            lambda: tosaic.compile(net, x, scheme="auto", accuracy=30),
            "tosaic.Goal, as Goal.sqnr=30",
        ),
        (lambda: tosaic.compile(net, x, scheme="auto", budget_s="1"), "number of seconds, not '1'"),
        (lambda: tosaic.compile(net, x, scheme="auto", budget_s=-1), "number of seconds, not -1"),
        (lambda: tosaic.compile(net, x, calibration=iter(())), "a generator is empty once it is"),
        (lambda: tosaic.compile(net, x, calibration=[x[0] + 1j]), "not fit: input is complex64"),
        (lambda: tosaic.compile("net.tosa", x), "'net.tosa' is compiled: tosaic.load and"),
        (lambda: tosaic.load(b"    ET12", external_weights=5), "or a list of them, not an int"),
        (lambda: tosaic.explain(net), "give example_inputs: a tensor, or a tuple"),
        (lambda: tosaic.compare(net, art, 5), "such as a list, not an int"),
        (lambda: art.save("net.vgf"), ".vgf is what the target vgf gives"),
        (
            lambda: tosaic.compile(net, x[0].double()),
            "the example input does not run: input is float64, and the weights are float32: give",
        ),
        (lambda: tosaic.compile(net, x[0] * math.nan), "the example input has NaN in input: give"),
        (lambda: tosaic.compile(net, x[0] / 0), "input input is inf everywhere: give some with"),
        (lambda: tosaic.tune(lambda a: a, x, target="c"), "or an ExportedProgram, not a function"),
        (lambda: tosaic.load("missing.pte"), "^cannot read 'missing.pte': No such file or"),
        (lambda: art.run(*x, max_memory="1G"), "max_memory is a number of bytes, as 2 << 30"),
        (lambda: tosaic.compile(net, x, target="TOSA-1.0"), "INT, FP: write TOSA-1.0.INT"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            use()


def test_a_wrong_option_of_a_sweep_leaves_no_file(tmp_path):
    net, x = nn.Linear(4, 4), (torch.rand(1, 4),)
    for name, told in (("networks", "no option 'networks'"), ("system_config", "'Mine'")):
        with pytest.raises(InvalidInput, match=told):
            tosaic.tune(net, x, target="ethos-u55-128", **{name: "Mine"})
    assert not list(tmp_path.glob("*.db*"))


def test_nan_in_what_is_quantized_is_warned_about() -> None:
    net, x = nn.Linear(4, 4), (torch.rand(1, 4),)
    art = tosaic.compile(net, x, calibration=[x])
    with pytest.warns(UserWarning, match="NaN in it, which integers cannot hold: it counts as 0"):
        art.run(x[0] * math.nan)


def test_the_clock_of_another_npu_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="is not of ethos-u55-128: times are those of its clock"):
        target_of("ethos-u55-128", {"system_config": "Ethos_U85_SYS_DRAM_Mid"})


def test_a_default_device_of_the_script_s_own_changes_nothing() -> None:
    """As of scripts that begin with torch.set_default_device("cuda")."""
    net, x = nn.Linear(4, 4), (torch.rand(1, 4),)
    expected = tosaic.compile(net, x, calibration=[x]).run(*x)
    torch.set_default_device("meta")
    try:
        made = tosaic.compile(net, x, calibration=[x]).run(*x)
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)
    assert made.equal(expected)

"""A target from outside the package, in one file: the worked example of CONTRIBUTING."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.cli import main
from tosaic.errors import InvalidInput
from tosaic.ir.traits import Traits
from tosaic.pipeline.op_support import columns_for, support
from tosaic.targets import catalog

ROOT = Path(__file__).parents[2]
NAME = "acme-dsp"
X = torch.linspace(-1, 1, 2 * 8 * 8).reshape(1, 2, 8, 8)


class Net(nn.Module):
    """A layer for the device, and a function that it has no form of."""

    def __init__(self, has_table: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.has_table = nn.Conv2d(2, 4, 3), has_table

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.layer(x))
        return torch.sigmoid(y) if self.has_table else y


def installed(folder: Path, value: str, name: str = "acme") -> None:
    """What pip leaves of a package with one entry point."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{catalog.GROUP}]\n{name} = {value}\n")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example of CONTRIBUTING, installed beside Tosaic."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"as `acme_dsp.py`:\n\n```python\n(.*?)```", text, re.S)
    (entry,) = re.findall(r"```toml\n(\[project.entry-points.*?)```", text, re.S)
    assert entry.split() == [
        f'[project.entry-points."{catalog.GROUP}"]', "acme", "=", '"acme_dsp:TARGET"'
    ]  # fmt: skip
    (tmp_path / "acme_dsp.py").write_text(block, encoding="utf-8")
    installed(tmp_path, "acme_dsp:TARGET")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("acme_dsp", None)


def compiled(has_table: bool = False, **options: object) -> object:
    return tosaic.compile(Net(has_table).eval(), (X,), target=NAME, calibration=[(X,)], **options)


def test_without_the_package_there_is_no_such_target() -> None:
    with pytest.raises(InvalidInput, match="there is no target 'acme-dsp'"):
        compiled()


def test_it_compiles_runs_and_reports(device: Path) -> None:
    art = tosaic.compile(Net().eval(), (X,), target=NAME, calibration=[(X,)])
    assert art.target == NAME
    (made,) = art.delegates
    assert made.data.startswith(b"ACME")
    assert torch.equal(art.run(X), art.run(X, engine="tosa"))
    assert torch.equal(art.run(X), art.run(X, engine="dsp"))
    with pytest.raises(InvalidInput, match="has no engine 'npu'; it has 'dsp' and 'tosa'"):
        art.run(X, engine="npu")
    told = str(art.report)
    assert "by acme-cc's estimate" in told
    assert "compiled by acme-cc" in told
    art.save(device / "net.acme")
    given = np.random.default_rng(0).integers(-128, 128, made.graph.inputs[0].shape, np.int8)
    (ran,), (wanted,) = tosaic.load(device / "net.acme").run(given), made.model.run(given)
    assert np.array_equal(ran, wanted)
    art.save(device / "net.html")
    assert "acme-cc" in (device / "net.html").read_text(encoding="utf-8")


def test_its_constraints_are_refusals_with_their_sentence(device: Path) -> None:
    told = tosaic.explain(Net(has_table=True).eval(), (X,), target=NAME)
    assert [(r.op, "has no tables" in r.reason) for r in told.refused] == [
        ("aten.sigmoid.default", True)
    ]
    (row,) = support(columns_for(NAME), lambda op: op == "aten.sigmoid.default")
    assert [(str(a), "has no tables" in a.reason) for a in row.answers] == [("no", True)]
    assert NAME in {column.target for column in columns_for(None)}


def test_what_is_wrong_with_it_is_a_sentence(device: Path) -> None:
    with pytest.raises(InvalidInput, match="acme-dsp has no option 'speed'; it has check"):
        compiled(speed=3)
    with pytest.raises(InvalidInput, match="perhaps acme-dsp"):
        tosaic.explain(Net().eval(), (X,), target="acme-dps")
    art = tosaic.compile(Net().eval(), (X,), target=NAME, calibration=[(X,)])
    with pytest.raises(InvalidInput, match="the suffixes are .tosa, .mlir, .*, .acme"):
        art.save(device / "net.xyz")


MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
model, inputs = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU()), (torch.randn(1, 2, 8, 8),)

def net():
    return model, inputs
"""


def tosaic_says(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr()
    assert end.value.code == 0, told.err
    return told.out


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_the_command_line_knows_it(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = device / "net.py", device / "net.acme"
    file.write_text(MODEL)
    listed = json.loads(tosaic_says(capsys, "targets", "--json"))
    assert {"target": NAME, "about": "a made-up DSP"} in listed
    made = tosaic_says(capsys, "compile", f"{file}:net", "-t", NAME, "-o", out, "--json")
    assert json.loads(made)["delegates"][0]["estimate"]["by"] == "acme-cc"
    assert out.read_bytes().startswith(b"ACME")
    np.save(device / "x.npy", np.ones((1, 2, 8, 8), np.int8))
    assert "output 0: int8" in tosaic_says(capsys, "run", out, "-i", device / "x.npy")
    assert "calls would be compiled" in tosaic_says(capsys, "explain", f"{file}:net", "-t", NAME)
    assert "has no tables" in tosaic_says(capsys, "ops", "sigmoid", "-t", NAME)
    told = json.loads(tosaic_says(capsys, "doctor", "--json"))
    assert {"name": "dsp", "state": "works", "use": NAME} in told["engines"]


def test_a_package_that_does_not_load_harms_no_other_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "nowhere:TARGET", "broken")
    (tmp_path / "odd.py").write_text("TARGET = 3\n")
    installed(tmp_path, "odd:TARGET", "odd")
    monkeypatch.syspath_prepend(tmp_path)
    assert catalog.target_of("TOSA-1.0+INT").name == "TOSA-1.0+INT"
    assert catalog.target_of("ethos-u55-128").name == "ethos-u55-128"
    with pytest.raises(InvalidInput) as said:
        catalog.target_of("acme-dsp")
    assert "the entry point broken = nowhere:TARGET does not load: ModuleNotF" in str(said.value)
    assert "odd = odd:TARGET does not load: TypeError: it names a int" in str(said.value)


@pytest.mark.parametrize("target", [["a"], None, 3, b"TOSA-1.0+INT"])
def test_a_target_that_is_no_name_is_a_sentence(target: object) -> None:
    with pytest.raises(InvalidInput, match="a target is one name such as 'TOSA-1.0.INT', not "):
        tosaic.compile(Net().eval(), (X,), target=target, calibration=[(X,)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("order", "sentence"),
    [
        (("x",), "order leaves 'layer' out: list every key"),
        (5, "order is a tuple of keys, not int"),
    ],
)
def test_an_order_without_every_key_is_a_sentence(order: object, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        tosaic.Schemes("int8", module_names={"layer": "int8"}, order=order)  # type: ignore[arg-type]
    tosaic.Schemes("int8", module_names={"layer": "int8"}, order=("layer",))


def test_tosaics_own_targets_are_entry_points_too() -> None:
    """A wheel declares what the catalog knows without looking for it."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (block,) = re.findall(r'entry-points."tosaic.targets"\]\n((?:\w+ = .*\n)+)', text)
    declared = dict(re.findall(r'(\w+) = "(.*)"', block))
    assert declared == {entry.name: entry.value for entry in catalog._OWN}


def test_a_trait_changes_the_expression_and_not_the_result() -> None:
    """A sum whose larger operand is widened by fewer bits is another graph of the same numbers."""

    class Sum(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 3 * x.flip(1)

    plain = catalog.target_of("TOSA-1.0+INT")
    other = replace(plain, name="other", traits=Traits(sum_bits=(8, 8)))
    first, second = (
        tosaic.compile(Sum().eval(), (X,), target=target, calibration=[(X,)])  # type: ignore[arg-type]
        for target in (plain, other)
    )
    assert first.bytes != second.bytes
    step = max(p.quant.scale for p in second.report.delegates[0].outputs)
    assert float((first.run(X) - second.run(X)).abs().max()) <= 1.001 * step

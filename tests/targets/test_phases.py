"""Phases: one ordered list for each IR, printed and verified on request, the same in any order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.cli import main
from tosaic.errors import InvalidGraph, InvalidInput
from tosaic.files.parse import parse
from tosaic.ir.build import Builder
from tosaic.ir.graph import Graph, Op, Value
from tosaic.ir.verify import verify
from tosaic.lowering.target import Target
from tosaic.pipeline import phases
from tosaic.rewrite import improve, match
from tosaic.rewrite import phases as rewriting
from tosaic.rewrite.match import Matcher
from tosaic.runtime.phases import printing
from tosaic.spec.env import Env

ENV = Env.parse("TOSA-1.0+INT")
X = torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.last = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.layer(x)).mean((2, 3)))


def compiled(target: str | Target = "TOSA-1.0+INT") -> None:
    tosaic.compile(Net().eval(), (X,), target=target, calibration=[(X,)])  # type: ignore[arg-type]


@pytest.mark.parametrize("phase", ["lower", "sink_transposes", "forms", "boundary"])
def test_a_graph_is_printed_after_a_phase_as_tosa(
    phase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with printing(phase):
        compiled()
    head, _, text = capsys.readouterr().err.partition("\n")
    assert head == f"// ----- after {phase} -----"
    verify(parse(text), ENV)


def test_the_program_is_printed_before_and_after_it_is_quantized(tmp_path: Path) -> None:
    file = tmp_path / "program.txt"
    with printing(f"import,quantize:{file}"):
        compiled()
    first, second = file.read_text().split("// ----- after quantize -----\n")
    assert first.startswith("// ----- after import -----\n")
    assert "aten.conv2d.default" in first
    assert "quantize_per_tensor" not in first
    assert "quantize_per_tensor" in second


def test_an_unknown_phase_is_a_sentence_with_all_of_them_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOSAIC_PRINT_AFTER", "sinking")
    with pytest.raises(InvalidInput, match="there is no phase 'sinking' to print after") as said:
        compiled()
    told = said.value.reason
    assert [told.index(f" {name}") for name in phases.TOSA] == sorted(
        told.index(f" {name}") for name in phases.TOSA
    )


def test_the_command_line_lists_and_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["compile", "conv", "--print-after", "list"])
    assert end.value.code == 0
    assert tuple(capsys.readouterr().out.split()) == phases.PHASES
    file = tmp_path / "net.py"
    file.write_text(
        "import torch\n\ndef net():\n    return torch.nn.Tanh(), (torch.randn(2, 3),)\n"
    )
    words = ["compile", f"{file}:net", "-t", "TOSA-1.0+FP", "-q", "--print-after"]
    with pytest.raises(SystemExit) as end:
        main([*words, f"share_constants:{tmp_path / 'after.mlir'}"])
    assert end.value.code == 0
    assert "tosa.tanh" in (tmp_path / "after.mlir").read_text()
    with pytest.raises(SystemExit) as end:
        main([*words, "nothing"])
    assert end.value.code == 2
    assert "there is no phase 'nothing'" in capsys.readouterr().err


def chain() -> Graph:
    b = Builder(ENV)
    b.output(b.ABS(b.ABS(b.input("i32", (2, 3), "x"))))
    return b.graph


def test_rewrites_that_undo_one_another_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def again(m: Matcher, op: Op) -> Value:
        return m.b.ABS(op.ins[0])

    monkeypatch.setitem(match.REWRITES, "ABS", [again])
    with pytest.raises(InvalidGraph, match="does not end: some rewrites undo one another; the nex"):
        improve(chain(), ENV)


def broken(graph: Graph, *_: object) -> None:
    """ABS of a graph in a type that it has not."""
    b = Builder("TOSA-1.0+FP")
    graph.ops[-1].ins[0] = b.const([[1.0]], "f32")


def test_the_phase_that_breaks_a_graph_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        rewriting, "PHASES", (*rewriting.PHASES, rewriting.Phase("breaking", broken))
    )
    monkeypatch.delenv("TOSAIC_VERIFY", raising=False)
    improve(chain(), ENV)  # which nobody has asked to verify
    monkeypatch.setenv("TOSAIC_VERIFY", "1")
    with pytest.raises(InvalidGraph, match="the phase breaking made a graph that is not valid"):
        improve(chain(), ENV)


def test_what_a_target_changes_last_is_verified() -> None:
    target = Target("made up", ENV, workarounds=broken)
    with pytest.raises(InvalidGraph):
        compiled(target)


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128", "ethos-u85-256"])
def test_every_phase_leaves_a_valid_graph(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOSAIC_VERIFY", "1")
    compiled(target)


SHUFFLED = """
import hashlib, importlib, pkgutil, random, sys, types
chance = random.Random(int(sys.argv[1]))

def shuffle(package):
    folder = "src/" + package.replace(".", "/")
    before = sys.modules[package] = types.ModuleType(package)  # whose own imports come later
    before.__path__ = [folder]
    names = [m.name for m in pkgutil.iter_modules([folder]) if m.name != "phases"]
    chance.shuffle(names)
    for name in names:
        importlib.import_module(f"{package}.{name}")
    del sys.modules[package]
    importlib.import_module(package)
    return names

if sys.argv[1] != "0":
    print(*shuffle("tosaic.rewrite"), file=sys.stderr)
import tosaic.rules
from tosaic.front.registry import RULES
if sys.argv[1] != "0":
    known = list(RULES.items())
    chance.shuffle(known)
    RULES.clear()
    RULES.update(known)
sys.path.insert(0, "tests/targets")
import tosaic
from tosaic.rewrite.match import FORMS, REWRITES
for kept in (REWRITES, FORMS):
    print(*(f"{op}:{f.__module__}.{f.__name__}" for op in sorted(kept) for f in kept[op]))
from tosaic.files.flatbuffer import write
from test_phases import Net, X
for target in ("TOSA-1.0+INT", "ethos-u55-128"):
    art = tosaic.compile(Net().eval(), (X,), target=target, calibration=[(X,)], check=False)
    print(target, hashlib.sha256(write(art.graph)).hexdigest())
"""


def test_any_order_of_imports_and_registration_gives_the_same_bytes() -> None:
    def hashes(seed: int) -> str:
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", SHUFFLED, str(seed)], cwd=root, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    straight = hashes(0)
    assert straight.count("\n") == 4
    assert hashes(1) == hashes(2) == straight

"""VGF with its tools taken away: each thing that is missing gets a sentence and the way out."""

import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import tosaic
from judges.vgf_hostile import files
from judges.vulkan import needs_converter, needs_vulkan
from tosaic.cli import app
from tosaic.errors import InvalidGraph, InvalidInput, ToolFailed, ToolMissing
from tosaic.executorch.vgf import check_env
from tosaic.sim.vulkan import Session, environment
from tosaic.sim.vulkan.messages import cause_of
from tosaic.targets.vgf import converter, doctor


class Absolute(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


def compile_one(**options: object) -> object:
    return tosaic.compile(Absolute(), (torch.ones(3),), target="vgf", **options)


def program(folder: Path, text: str) -> str:
    """A converter that does what a few lines of Python say."""
    path = folder / "model-converter"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_missing_converter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(converter.VARIABLE, raising=False)
    monkeypatch.setattr(converter, "_of_wheel", lambda: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match=r'the model converter is missing: pip install "tosaic'):
        compile_one()


def test_a_converter_that_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hangs = program(tmp_path, "import time; time.sleep(60)")
    monkeypatch.setenv(converter.VARIABLE, hangs)
    with pytest.raises(ToolMissing, match="no answer within 0.3 seconds; to repeat it:") as told:
        compile_one(converter_seconds=0.3)
    kept = str(told.value).split(" -i ")[1].split()[0]
    assert Path(kept).read_bytes()[4:8] == b"TOSA"


def test_a_converter_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fails = program(tmp_path, "import sys; sys.stderr.write('error: no, not that'); sys.exit(255)")
    monkeypatch.setenv(converter.VARIABLE, fails)
    with pytest.raises(InvalidInput, match="nothing of the model runs on vgf.*no, not that"):
        compile_one()
    tosa = b"\0\0\0\0TOSA"
    with pytest.raises(ToolFailed, match="refuses the graph: no, not that; to repeat it:"):
        converter.convert(tosa)


def test_a_converter_that_writes_something_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other.vgf").write_bytes(b"VGF1" + bytes(200))
    copies = f"import shutil, sys; shutil.copy('{tmp_path}/other.vgf', sys.argv[-1])"
    monkeypatch.setenv(converter.VARIABLE, program(tmp_path, copies))
    with pytest.raises(InvalidInput, match="nothing of the model runs on vgf"):
        compile_one()


@needs_converter
def test_flags_of_the_converter_are_words_and_not_its_files() -> None:
    with pytest.raises(InvalidInput, match="flag --output=x is Tosaic's own"):
        compile_one(converter_flags="--output=x")
    for flags in ("--disable-replicated-composites", "--emit-debug-info", ("--dump-mlir",)):
        assert compile_one(converter_flags=flags) is not None


@needs_converter
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--nonsense", "refuses the graph: Unknown argument: --nonsense"),
        ("--require-static-shape", "refuses the graph: Can't identify input tensors"),
        ("--type-narrowing=full", "its inputs have other types or shapes"),
    ],
)
def test_flags_that_the_converter_makes_nothing_of_are_named(flags: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"converter_flags '{flags}' give no .* {reason}"):
        compile_one(converter_flags=flags)


@needs_converter
def test_no_driver_no_loader_no_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = files()[0]
    with monkeypatch.context() as away:
        away.setattr(environment, "find_lavapipe", lambda: None)
        with pytest.raises(ToolMissing, match="no Vulkan driver is here.*apt-get install"):
            Session(data)
    with monkeypatch.context() as away:
        away.setattr("tosaic.sim.vulkan.session.find_loader", lambda: None)
        with pytest.raises(ToolMissing, match=r"loader is missing|no Vulkan driver"):
            Session(data)
    with monkeypatch.context() as away:
        away.setattr("importlib.util.find_spec", lambda *_: None)
        with pytest.raises(ToolMissing, match=r"layers .* are missing: pip|no Vulkan driver"):
            Session(data)
    with monkeypatch.context() as away:
        away.setitem(sys.modules, "scenario_runner_py", None)
        with pytest.raises(ToolMissing, match="scenario runner is missing"):
            Session(data)
    with pytest.raises(InvalidInput, match="there is no Vulkan device 'nothing'"):
        Session(data, "nothing")


@needs_vulkan
def test_layers_in_the_wrong_order_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    right = environment._folders
    monkeypatch.setattr(environment, "_folders", lambda *given: reversed(list(right(*given))))
    with pytest.raises(ToolMissing, match="wrong order"):
        Session(files()[0])


@needs_vulkan
def test_without_layers_the_cause_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_folders", lambda *_: iter(()))
    monkeypatch.setattr(environment, "LAYERS", ())
    with pytest.raises(ToolMissing, match="emulation layers did not load"):
        Session(files()[0])


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("vk::createInstance: ErrorIncompatibleDriver", "no Vulkan driver is here"),
        ("Failed to load vulkan library!", "Vulkan's loader is missing"),
        ("Cannot find queue index", "the driver has no data graphs"),
        ("something new", "Vulkan fails while building: something new"),
    ],
)
def test_messages_of_vulkan_have_causes(said: str, meant: str) -> None:
    assert cause_of(RuntimeError(said), "building").reason.startswith(meant)


@needs_vulkan
def test_sessions_leave_the_environment_and_one_another_alone() -> None:
    before = dict(os.environ)
    x = np.random.default_rng(2).integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    first, second = Session(files()[0]), Session(files()[0])
    other = first.run(-x)
    for a, b in zip(second.run(x), tosaic.load(files()[0]).run(x)):
        assert np.array_equal(a, b)
    for a, b in zip(other, tosaic.load(files()[0]).run(-x)):
        assert np.array_equal(a, b)
    assert dict(os.environ) == before


@needs_vulkan
def test_a_forked_process_is_told_that_a_session_is_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session(files()[0])
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(InvalidInput, match="a Vulkan session ends at a fork: load the file in"):
        session.run()


@needs_vulkan
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_process_that_is_forked_after_a_session_ends_by_itself() -> None:
    script = (
        "import gc, os, sys; from judges.vgf_hostile import files; "
        "from tosaic.sim.vulkan import Session; Session(files()[0]); gc.collect(); "
        "child = os.fork(); sys.exit() if child == 0 else None; "
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    search = os.pathsep.join(sys.path)
    environ = {**os.environ, "PYTHONPATH": search}
    subprocess.run([sys.executable, "-c", script], env=environ, check=True, timeout=600)


@needs_converter
def test_vulkan_gets_no_file_that_the_reader_refuses() -> None:
    with pytest.raises(InvalidGraph):
        Session(files()[0][:-40])


@needs_converter
def test_the_doctor_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_lavapipe", lambda: None)
    told = CliRunner().invoke(app, ["doctor", "vgf", "--json"])
    found = {row["name"]: row for row in json.loads(told.stdout)}
    assert told.exit_code == 1
    assert found["model converter"]["state"] == "PASS"
    assert found["lavapipe"]["state"] == "FAIL"
    assert found["lavapipe"]["way"].startswith("apt-get install")


@needs_converter
def test_check_env_answers_by_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_env.main(["--aot", "--json"]) == 0
    assert {row["state"] for row in json.loads(capsys.readouterr().out)} <= {"PASS", "WARN"}
    monkeypatch.setenv(converter.VARIABLE, "no-such-program")
    assert check_env.main(["--aot"]) == 1
    assert "FAIL  model converter" in capsys.readouterr().out
    assert doctor.checks(("aot",))[0].state == "FAIL"


@needs_vulkan
def test_a_scenario_runs_in_the_sdks_own_runner_and_the_sample_compiles(tmp_path: Path) -> None:
    from scenario_runner_py import ScenarioJsonFactory

    x = torch.randn(2, 3)
    made = tosaic.compile(Absolute(), (x,), target="vgf")
    made.save(tmp_path / "net.vgf", scenario=(x,), sample=True)
    names = {"net.vgf", "net.scenario.json", "net.input_0.npy", "net.cpp"}
    assert {path.name for path in tmp_path.iterdir()} == names
    with environment.loading(environment.find_driver(), {}):
        scenario = str(tmp_path / "net.scenario.json")
        ScenarioJsonFactory.make(scenario, work_dir=tmp_path, output_dir=tmp_path).run()
    assert np.array_equal(np.load(tmp_path / "net.output_0.npy"), x.abs().numpy())
    with pytest.raises(InvalidInput, match="the scenario's inputs are those of the file"):
        made.save(tmp_path / "net.vgf", scenario=(x[:1],))


@needs_converter
@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")
def test_the_sample_compiles_and_tells_the_ports(tmp_path: Path) -> None:
    library = importlib.util.find_spec("vgf_lib")
    if library is None or library.origin is None:
        pytest.skip("the VGF library is not installed")
    tosaic.compile(Absolute(), (torch.ones(2, 3),), target="vgf").save(
        tmp_path / "net.vgf", sample=True
    )
    held = Path(library.origin).parent / "binaries"
    done = subprocess.run(
        ["c++", "-std=c++17", "net.cpp", f"-I{held}/include", f"-L{held}/lib", "-lvgf", "-onet"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1000:]
    told = subprocess.run(["./net"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "input 0 at binding 0: x, shape 2 3" in told.stdout

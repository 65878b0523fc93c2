"""The command line: good paths, wrong uses, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tosaic as tosaic_api
from judges.vulkan import needs_converter
from tosaic.cli import main
from tosaic.cli.examples import NAMES
from tosaic.cli.sources import named, source_of
from tosaic.files.flatbuffer import read
from tosaic.files.parse import parse

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


def broken():
    return {}["weights"]


class Unexported(nn.Module):
    def forward(self, x):
        return x if float(x.sum()) > 0 else -x


def failing():
    yield torch.randn(1, 3, 8, 8)
    raise RuntimeError("no disk")


def pictures():
    torch.manual_seed(5)
    x = torch.randn(5, 3, 8, 8)
    return x, torch.tensor([0, 1, 2, 3, 0])


mixed, unexported = Mixed(), Unexported()
number = 3
data = [torch.randn(1, 3, 8, 8) for _ in range(2)]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "network_of_the_cli.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are not what their names say, or hold what does not fit."""
    made = tmp_path_factory.mktemp("wrong")
    (made / "bad.py").write_text("1 / 0", encoding="utf-8")
    (made / "leaves.py").write_text("raise SystemExit(0)", encoding="utf-8")
    for name in ("bad.pt2", "bad.npz", "bad.tosa"):
        (made / name).write_bytes(b"nothing of the kind")
    np.savez(made / "other.npz", a=np.zeros((1, 7), np.float32))
    np.savez(made / "short.npz", x=np.zeros((3, 5), np.float32), y=np.zeros(2, np.int64))
    np.savez(made / "flat.npz", x=np.zeros((2, 5), np.float32), y=np.zeros(2, np.int64))
    empty = made / "empty"
    empty.mkdir()
    return made


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


def test_timing_prints_seconds_by_phase(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compile", file, "--calibration", f"{file}:data")
    assert tosaic(*words) == 0
    assert "calibrate" not in capsys.readouterr().out
    assert tosaic(*words, "--timing") == 0
    told = capsys.readouterr().out.splitlines()
    rows = {line.rsplit(None, 2)[0].strip(): line for line in told if line.rstrip().endswith("%")}
    for phase in ("import", "quantize", "calibrate", "lower", "rewrite", "verify and prove"):
        assert phase in rows
    assert tosaic(*words, "--json") == 0
    assert "calibrate" in json.loads(capsys.readouterr().out)["timing"]["seconds"]


def test_json_is_data_for_machines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", f"{file}:mixed", "--shape", "1,3,8,8", "--json")
    assert tosaic(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert [call["compiled"] for call in told["calls"]] == [True, True, False]
    assert tosaic(*words, "--strict") == 1


@pytest.mark.parametrize("suffix", ["npz", "npy", "pt", "folder"])
def test_calibration_data_comes_from_files(file: Path, tmp_path: Path, suffix: str) -> None:
    """Each gives the same bytes as the same data as a list."""
    x = np.random.default_rng(1).normal(size=(1, 3, 8, 8)).astype(np.float32)
    place = tmp_path / f"data.{suffix}"
    if suffix == "folder":
        place.mkdir()
        np.save(place / "a.npy", x)
    elif suffix == "pt":
        torch.save([torch.from_numpy(x)], place)
    else:
        (np.savez if suffix == "npz" else np.save)(place, x)
    made = tmp_path / "m.tosa"
    assert tosaic("compile", file, "--calibration", place, "-o", made, "-q") == 0
    net, example = source_of(str(file), []).model, (torch.from_numpy(x),)
    assert made.read_bytes() == tosaic_api.compile(net, example, calibration=[example]).bytes


def test_an_example_compiles_for_an_ethos_u_within_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compile", "cnn", "-t", "ethos-u55-128", "-o", tmp_path / "m.mlir", "--json")
    mode = ("--system-config", "Ethos_U55_Deep_Embedded", "--memory-mode", "Sram_Only")
    assert tosaic(*words, *mode, "--max-scratch", "64K") == 0
    told = json.loads(capsys.readouterr().out)
    assert 0 < told["delegates"][0]["estimate"]["scratch"] <= 64 << 10
    assert "tosa.conv2d" in (tmp_path / "m.mlir").read_text(encoding="utf-8")
    assert tosaic(*words, "--max-scratch", "2K") == 2
    assert "bytes of scratch memory, and 2,048 are allowed" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_what_is_judged_may_have_a_boundary_of_integers(
    file: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("-d", f"{file}:pictures", "--jobs", "1") if command == "evaluate" else ()
    words = (command, file, *data, "--calibration", f"{file}:data", "--json")
    assert tosaic(*words, "--io", "uint8:1/16:128") == 0
    coarse = json.loads(capsys.readouterr().out)
    assert tosaic(*words, "--io", "uint8:1/32:128") == 0
    assert json.loads(capsys.readouterr().out) != coarse or command == "evaluate"
    assert tosaic(*words, "--io", "uint9") == 2


@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_explained_as_compiled(name: str) -> None:
    assert tosaic("explain", name, "--strict", "-q") == 0


def test_evaluate_counts_what_the_original_and_the_compiled_one_say(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", file, "-d", f"{file}:pictures", "--calibration", f"{file}:data")
    assert tosaic(*words, "--jobs", "1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["inputs"] == 5
    x, y = named(file, "pictures")()
    net, example, data = source_of(str(file), []).model, (x[:1],), named(file, "data")
    real = net.eval()(x).argmax(1)
    made = tosaic_api.compile(net, example, calibration=data)
    ours = torch.cat([made.run(each).argmax(1) for each in x.split(1)])
    original, compiled = told["scores"]
    assert original["score"] == pytest.approx(float((real == y).float().mean()))
    assert compiled["score"] == pytest.approx(float((ours == y).float().mean()))
    assert compiled["agreement"] == pytest.approx(float((ours == real).float().mean()))
    wrong = [d["index"] for d in told["disagreements"]]
    assert wrong == (ours != real).nonzero().flatten().tolist()


def test_run_on_an_npu_gives_the_interpreters_bits(tmp_path: Path) -> None:
    made, given = tmp_path / "m.tosa", tmp_path / "x.npy"
    assert tosaic("compile", "cnn", "-t", "ethos-u55-128", "-o", made, "-q") == 0
    np.save(given, np.random.default_rng(0).integers(-128, 128, (1, 3, 32, 32)).astype(np.int8))
    assert tosaic("run", made, "-i", given, "-o", tmp_path / "out", "-q") == 0
    expected = tmp_path / "out" / "output_0.npy"
    assert len(np.unique(np.load(expected))) > 4
    words = ("run", made, "-i", given, "--expect", expected)
    assert tosaic(*words, "--engine", "ethos-u55-128") == 0
    assert tosaic(*words, "--expect", expected) == 2
    np.save(given, np.zeros((1, 3, 32, 31), np.int8))
    assert tosaic("run", made, "-i", given) == 2
    np.save(given, np.zeros((1, 3, 32, 32), np.float32))
    assert tosaic("run", made, "-i", given) == 2


def test_compile_writes_a_report_beside_the_file(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    words = ("compile", "cnn", "-o", tmp_path / "graph.json", "--report", report, "-q")
    assert tosaic(*words) == 0
    text = report.read_text(encoding="utf-8")
    assert '"title":"cnn"' in text
    assert '"sqnr":' in text
    assert json.loads((tmp_path / "graph.json").read_text())["graphs"][0]["nodes"]


def test_a_pte_runs_and_shows_its_contents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("executorch", reason="a .pte needs ExecuTorch")
    made, given = tmp_path / "m.pte", tmp_path / "x.npy"
    assert tosaic("compile", "cnn", "-t", "ethos-u55-128", "-o", made, "-q") == 0
    x = np.random.default_rng(0).normal(size=(1, 3, 32, 32)).astype(np.float32)
    np.save(given, x)
    assert tosaic("run", made, "-i", given, "-o", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["shape"] == [1, 10]
    source, example = source_of("cnn", []), (torch.from_numpy(x),)
    art = tosaic_api.compile(
        source.model, example, target="ethos-u55-128", calibration=source.calibration
    )
    assert np.array_equal(np.load(tmp_path / "output_0.npy"), art.run(*example).numpy())
    assert tosaic("dump", made, "--npu") == 0
    told = capsys.readouterr().out
    assert "a stream for ethos-u55-128" in told
    assert "CONV" in told
    assert tosaic("run", made, "-i", given, "--engine", "tosa") == 2
    np.save(given, x[..., :-1])
    assert tosaic("run", made, "-i", given) == 2
    assert "input 0 is float32[1,3,32,32], not float32[1,3,32,31]" in capsys.readouterr().err


def test_a_program_with_tests_or_weights_elsewhere_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("executorch")
    made = tmp_path / "cnn.bpte"
    assert tosaic("compile", "cnn", "-t", "ethos-u55-128", "-o", made, "-q") == 0
    assert tosaic("dump", made) == 0
    assert "a stream for ethos-u55-128" in capsys.readouterr().out
    weights = made.with_suffix(".ptd")
    weights.write_bytes(made.read_bytes())
    assert tosaic("dump", made, "--weights", weights) == 2
    assert "this is no .ptd file" in capsys.readouterr().err


@needs_converter
def test_dump_draws_the_graphs_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("executorch")
    for name in ("net.vgf", "net.pte", "net.tosa"):
        made, target = tmp_path / name, "TOSA-1.0+FP" if name == "net.tosa" else "vgf"
        assert tosaic("compile", "cnn", "-t", target, "-o", made, "-q") == 0
        drawn = tmp_path / f"{name}.json"
        assert tosaic("dump", made, "-o", drawn) == 0
        nodes = json.loads(drawn.read_text())["graphs"][0]["nodes"]
        assert {"input 0", "CONV2D", "output 0"} <= {node["label"] for node in nodes}
        assert all(node["incomingEdges"] for node in nodes if node["label"] == "CONV2D")
        assert tosaic("dump", made, "-o", tmp_path / f"{name}.html") == 0
        assert "CONV2D" in (tmp_path / f"{name}.html").read_text()
    capsys.readouterr()
    assert tosaic("dump", made, "-o", tmp_path / "net.png") == 2
    assert "is no .html (a report) and no .json" in capsys.readouterr().err


def test_dump_prints_tosa_as_text_that_parses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = tmp_path / "m.tosa"
    assert tosaic("compile", "cnn", "-o", made, "-q") == 0
    assert tosaic("dump", made) == 0
    graph = parse(capsys.readouterr().out)
    assert [op.name for op in graph.ops] == [op.name for op in read(made).ops]
    assert tosaic("dump", made, "--npu") == 2


def test_compare_prints_decibels(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tosaic("compare", file, "--calibration", f"{file}:data") == 0
    assert "SQNR dB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["compile", "absent.py"], "there is no file 'absent.py'"),
        (["compile", "absent.pt2"], "there is no file 'absent.pt2'"),
        (["compile", "model.onnx"], "'model.onnx' is ONNX, which Tosaic does not read"),
        (["compile", "{file}:nothing"], "has no 'nothing'"),
        (["compile", "{file}:number"], "is an int: a model is an nn.Module"),
        (["compile", "{file}:mixed"], "gives no example inputs"),
        (["compile", "{file}:mixed", "--shape", "a"], "'a' is no shape"),
        (["compile", "{file}", "-t", "TOSA-9"], "'TOSA-9' is no"),
        (["compile", "{file}", "-o", "/absent/m.tosa"], "there is no folder '/absent'"),
        (["compile", "{file}", "-o", "m.bin", "--calibration", "{file}:data"], "m.bin"),
        (["compile", "{file}", "--calibration", "absent.npz"], "there is no file 'absent.npz'"),
        (["compile", "{file}", "--shape", "1,5,8,8"], "torch.export does not take"),
        (["compile", "{file}:broken"], "broken' fails: KeyError: 'weights'"),
        (["compile", "{file}:unexported", "--shape", "1,3"], "torch.export does not take"),
        (["compile", "{folder}/bad.py"], "does not run: ZeroDivisionError"),
        (["compile", "{folder}/bad.pt2"], "is no program that torch.export.save wrote"),
        (["compile", "{folder}/leaves.py"], "does not run: SystemExit"),
        (["compile", "{file}", "--calibration", "{file}:number"], "is an int, no iterable"),
        (["compile", "{file}", "--calibration", "{file}:failing"], "fails: RuntimeError: no disk"),
        (["compile", "{file}", "--calibration", "{folder}/empty"], "has no .npy or .npz files"),
        (["compile", "{file}", "--calibration", "{folder}/bad.npz"], "holds no arrays"),
        (["compile", "{file}", "--calibration", "{folder}/other.npz"], "calibration input"),
        (["compile", "{file}", "-t", "ethos-u99"], "there is no target 'ethos-u99'"),
        (["compile", "{file}", "--scheme", "int3"], "int3"),
        (["compile", "{file}", "--max-scratch", "many"], "'many' is no size"),
        (
            ["compile", "{file}", "--max-scratch", "2K"],
            "has no option 'max_scratch_bytes'",
        ),
        (["compile", "{file}", "--report", "r.pdf"], "r.pdf"),
        (["compile", "{file}", "-o", "{folder}"], "cannot save"),
        (["explain", "absent.py"], "there is no file 'absent.py'"),
        (["explain", "{file}", "-t", "TOSA-9"], "'TOSA-9' is no"),
        (["compare", "absent.pt2"], "there is no file 'absent.pt2'"),
        (["compare", "cnn", "--inputs", "{folder}/other.npz"], "input 0"),
        (["evaluate", "{file}", "-d", "absent.npz"], "there is no file 'absent.npz'"),
        (["evaluate", "{file}", "-d", "x.csv"], "'x.csv' is no labelled set"),
        (
            ["evaluate", "{file}", "-d", "{folder}/other.npz"],
            "must have the arrays x and y; it has",
        ),
        (["evaluate", "{file}", "-d", "{folder}/short.npz"], "one class for each input"),
        (
            [
                "evaluate",
                "{file}",
                "-d",
                "{folder}/flat.npz",
                "-j",
                "1",
                "--calibration",
                "{file}:data",
            ],
            "does not take inputs of [5]",
        ),
        (["evaluate", "{file}", "-d", "{folder}/flat.npz", "--limit", "0"], "at least 1"),
        (["evaluate", "{file}", "-d", "{folder}/flat.npz", "--metric", "best"], "no metric 'best'"),
        (["evaluate", "-d", "{folder}/flat.npz"], "give a model, or a sweep"),
        (["evaluate", "--sweep", "absent.db", "-d", "{folder}/flat.npz"], "no file 'absent.db'"),
        (
            ["evaluate", "--sweep", "{folder}/bad.py", "-d", "{folder}/flat.npz"],
            "no file of results",
        ),
        (["tune", "--show", "--db", "absent.db"], "there is no file 'absent.db'"),
        (["tune", "{file}"], "name a model and a target"),
        (["tune", "{file}", "-t", "ethos-u99", "--db", "{folder}/t.db"], "no target 'ethos-u99'"),
        (["tune", "cnn", "-t", "TOSA-1.0+INT", "--metric", "top1"], "needs a labelled data set"),
        (["tune", "cnn", "-t", "TOSA-1.0+INT", "-o", "x.pdf"], "the suffixes are .html"),
        (["run", "absent.tosa"], "there is no file 'absent.tosa'"),
        (["run", "{folder}/bad.tosa"], "this is no .tosa file"),
        (["run", "{folder}/bad.tosa", "--engine", "cpu"], "there is no target 'cpu'"),
        (["dump", "absent.tosa"], "there is no file 'absent.tosa'"),
        (["dump", "{folder}/bad.tosa"], "this is no .tosa file"),
        (["ops", "nothing_like_it"], "no operator is like 'nothing_like_it'"),
        (["ops", "-t", "ethos-u1"], "there is no target"),
    ],
    ids=str,
)
def test_a_wrong_use_is_one_sentence_and_exit_code_2(
    words: list[str], sentence: str, file: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tosaic(*[word.format(file=file, folder=folder) for word in words]) == 2
    told = capsys.readouterr().err
    assert sentence in told.replace("\n", " ")
    assert "Traceback" not in told


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

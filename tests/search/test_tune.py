"""Sweeps and evaluations: the right figures, the same after a kill, flat in memory."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import tosaic as tosaic_api
from search.search_networks import Quarters, margin, model, pictures, samples
from tosaic.cli import main
from tosaic.search.front import Row, front
from tosaic.search.store import Store
from tosaic.search.tune import sweep_of

FILE = Path(__file__).with_name("search_networks.py")
TARGETS = ("-t", "ethos-u55-64")


def tosaic(*words: object) -> int:
    try:
        main([str(word) for word in words])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def row(number: int, score: float, cycles: int, sram: int = 0, **more: Any) -> Row:
    given = {"score": score, "cycles": cycles, "sram": sram, "flash": 0, **more}
    return Row(number, "m", "", "t", {}, "int8", "", str(number), **given)


def test_the_front_has_what_nothing_beats() -> None:
    rows = [
        row(1, 0.9, 100), row(2, 0.8, 100), row(3, 0.8, 50), row(4, 0.8, 50), row(5, 0.7, 60, -1),
        row(6, 0.1, 999, group="another"), row(7, 1.0, 1, problem="refused"),
    ]  # fmt: skip
    assert front(rows) == {1, 3, 5, 6}
    assert front(rows[:4], is_lower_better=True) == {3}


def test_targets_without_an_estimate_beat_no_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = "cortex-m4,TOSA-1.0+INT,ethos-u55-64,TOSA-1.0+FP,c,cortex-m55"
    words = ("tune", FILE, "-t", targets, "--scheme", "int8", "--mixed", 0)
    assert tosaic(*words, "--db", tmp_path / "s.db", "--json", "-j", 1) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    units = [row["unit"] for row in rows if row["cycles"] is not None]
    assert units == ["instructions", "cycles", "instructions"]
    assert [row["is_on_front"] for row in rows] == [True, True, True, False, True, True]
    assert "floats alone" in rows[3]["problem"]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that was shown as a page, a table and data."""
    folder = tmp_path_factory.mktemp("sweep")
    outputs = [w for s in ("html", "csv", "json") for w in ("-o", folder / f"front.{s}")]
    words = ("tune", FILE, *TARGETS, "--mixed", 1, "-d", f"{FILE}:samples", "--db", folder / "s.db")
    assert tosaic(*words, *outputs, "--metric", f"{FILE}:margin", "-q", "--jobs", 1) == 0
    return folder


def test_figures_are_those_of_compiling_and_running_each(swept: Path) -> None:
    store = Store(swept / "s.db")
    rows = sweep_of(store).rows
    assert {r.precision.partition(",")[0] for r in rows} >= {"int8", "a16w8", "mixed"}
    net, example, data = model()
    x, y = samples()
    for one in (r for r in rows if r.target == "ethos-u55-64" and r.precision != "a8w4"):
        scheme: Any = one.precision
        if one.wide:
            scheme = tosaic_api.Schemes("int8", nodes=dict.fromkeys(one.wide, "a16w8"))
        made = tosaic_api.compile(net, example, target=one.target, scheme=scheme, calibration=data)
        assert (one.cycles, one.sram, one.flash) == (
            made.report.cycles, made.report.sram, made.report.flash,
        )  # fmt: skip
        scores = [margin(made.run(p[None], engine="tosa")[0], int(q)) for p, q in zip(x, y)]
        assert one.score == pytest.approx(sum(scores) / len(scores), abs=1e-6)
        made.save(swept / "again.pte")
        assert store.blob(one.files["network.pte"]) == (swept / "again.pte").read_bytes()
        assert any("simulat" in check or "stream" in check for check in one.checks)
    store.close()


def test_the_page_links_files_that_are_there(swept: Path) -> None:
    text = (swept / "front.html").read_text("utf-8")
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    on_front = [r for r in data["rows"] if r["is_on_front"]]
    assert on_front
    for each in data["rows"]:
        names = set(each["links"])
        assert names >= ({"report.html", "network.pte"} if each["is_on_front"] else {"report.html"})
        assert all((swept / place).is_file() for place in each["links"].values())
    with open(swept / "front.csv", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(data["rows"])
    assert json.loads((swept / "front.json").read_text())["metric"] == "margin"


def test_a_mixed_point_is_made_again_by_its_command(swept: Path, tmp_path: Path) -> None:
    store = Store(swept / "s.db")
    one = next(r for r in sweep_of(store).rows if r.wide)
    store.close()
    assert (
        tosaic("tune", "--db", swept / "s.db", "--point", one.number, "--to", tmp_path, "-q") == 0
    )
    words = one.command.split()[1:]
    words = [str(tmp_path / w) if w.endswith(".json") else w for w in words]
    assert tosaic(*words, "-o", tmp_path / "again.pte", "-q") == 0
    assert (tmp_path / "again.pte").read_bytes() == (tmp_path / "network.pte").read_bytes()


def test_a_mixed_point_of_another_size_is_made_again_by_its_command(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(Store(swept / "s.db")) as store:
        wide = next(r.wide for r in sweep_of(store).rows if r.wide)
    (tmp_path / "given.json").write_text(
        json.dumps({"global": "int8", "nodes": dict.fromkeys(wide, "a16w8")})
    )
    words = f"tune {FILE} -t ethos-u55-64 --size 16x16 --mixed 0 --scheme int8,given.json".split()
    assert tosaic(*words, "--db", "one.db", "-q", "-j", 1) == 0
    with closing(Store("one.db")) as store:
        plain, one = sweep_of(store).rows
    assert (plain.precision, one.wide) == ("int8", wide)
    assert tosaic("tune", "--db", "one.db", "--point", 2, "--to", ".", "-q") == 0
    assert tosaic(*one.command.split()[1:], "--db", "two.db", "-q", "-j", 1) == 0
    with closing(Store("two.db")) as store:
        assert [r.sha256 for r in sweep_of(store).rows] == [one.sha256]


def test_points_of_a_sweep_are_judged_in_one_pass(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("evaluate", "--sweep", swept / "s.db", "-d", f"{FILE}:stream", "--engine", "tosa,npu")
    assert tosaic(*words, "--json", "-j", 1) == 0
    told = json.loads(capsys.readouterr().out)
    assert tosaic(*words[:-1], "tosa", "--json", "--device", "cpu") == 0  # in larger chunks
    again = json.loads(capsys.readouterr().out)["scores"]
    scores = {s["form"]: s["score"] for s in told["scores"]}
    assert told["inputs"] == 70
    x, y = pictures(70)
    right = (Quarters().eval()(x).argmax(1) == y).float().mean()
    assert scores["Quarters"] == pytest.approx(float(right))
    for name, score in scores.items():
        if name.endswith(" on npu"):
            assert score == scores[name.replace(" on npu", " on tosa")]
    assert {s["form"]: s["score"] for s in again}.items() <= {
        name.removesuffix(" on tosa"): score for name, score in scores.items()
    }.items()


def _started(words: list[object], journal: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tosaic.cli", *map(str, words), "--journal", str(journal)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def test_a_sweep_that_is_killed_ends_with_the_same_table(swept: Path, tmp_path: Path) -> None:
    words: list[object] = ["tune", FILE, *TARGETS, "--mixed", 1, "-d", f"{FILE}:samples", "-q"]
    words += ["-j", 2, "--metric", f"{FILE}:margin"]
    words += ["--db", tmp_path / "s.db", "-o", tmp_path / "t.csv"]
    journal = tmp_path / "log"
    running = _started(words, journal)
    while running.poll() is None and len(_lines(journal)) < 4:  # tasks that have begun
        time.sleep(0.02)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert tosaic(*words, "--journal", journal) == 0
    assert (tmp_path / "t.csv").read_text() == (swept / "front.csv").read_text()
    ran = Counter(json.loads(line)["key"] for line in _lines(journal))
    assert max(ran.values()) <= 2
    assert sum(count > 1 for count in ran.values()) <= 4  # those that two workers had been given
    before = _lines(journal)
    assert tosaic(*words, "--journal", journal) == 0
    assert _lines(journal) == before  # nothing is computed again


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    file = tmp_path / "large.py"
    file.write_text(
        f"import sys; sys.path.insert(0, {str(FILE.parent)!r})\n"
        "import torch\nfrom search_networks import model\n"
        "def few():\n    yield from ((torch.rand(1, 8, 8), n % 4) for n in range(200))\n"
        "def many():\n    yield from ((torch.rand(1, 512, 512), n % 4) for n in range(240))\n"
        "def small(x):\n    return x[:, :8, :8]\n"
    )
    script = tmp_path / "twice.py"
    script.write_text(
        "import resource\nfrom tosaic.cli import main\n"
        f"file = {str(file)!r}\n"
        "for name in ('few', 'many'):\n"
        "    try:\n"
        "        main(['evaluate', file, '-q', '-j', '1', '--transform', file + ':small',\n"
        "              '-d', file + ':' + name])\n"
        "    except SystemExit as end:\n"
        "        assert not end.code\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    few, many = map(int, done.stdout.split())
    assert many - few < 120 * 1024, "250 MB of data are read, and 16 MB at a time are held"


def test_a_file_that_two_have_open_holds_what_the_first_has_kept(tmp_path: Path) -> None:
    """So that a copy of the file alone has all of it."""
    first, second = Store(tmp_path / "a.db"), Store(tmp_path / "a.db")
    key = first.put("key", b"bytes")
    first.close()
    shutil.copy(tmp_path / "a.db", tmp_path / "copy.db")
    second.close()
    with closing(Store(tmp_path / "copy.db", must_exist=True)) as copy:
        assert copy.blob(key) == b"bytes"

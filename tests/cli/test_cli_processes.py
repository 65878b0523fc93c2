"""The command line as a process of its own: help, completion, terminals, full disks, Ctrl-C."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest

from tosaic.cli import main, show
from tosaic.cli.examples import NAMES
from tosaic.runtime.progress import shown
from tosaic.targets import catalog
from tosaic.targets.ethosu import ACCELERATORS

COMMAND = (sys.executable, "-m", "tosaic.cli")
SLOW = """
import pathlib, time, torch
model = (torch.nn.Conv2d(3, 4, 3), (torch.randn(1, 3, 8, 8),))

def data():
    pathlib.Path(__file__).with_suffix(".started").touch()
    for _ in range(600):
        time.sleep(0.1)
        yield torch.randn(1, 3, 8, 8)
"""


def tosaic(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_help_needs_no_torch_and_under_a_second() -> None:
    code = (
        "import sys, time, tosaic.cli as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules\n"
        "print(time.process_time())"
    )
    spent = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert b"compile" in done.stdout
        spent.append(float(done.stdout.split()[-1]))
    assert min(spent) < 1


def test_targets_are_listed_without_torch_and_without_any_output() -> None:
    code = (
        "import os, sys, tosaic.cli as c\n"
        "os.close(1); sys.stdout = sys.stderr = None\n"
        "try: c.main(['targets'])\n"
        "except SystemExit as end: sys.exit(end.code or 'torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_terminal_without_unicode_gets_the_table() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    run = [sys.executable, "-m", "tosaic", "ops", "conv2d"]
    done = subprocess.run(run, env=environment, capture_output=True, check=True)
    assert b"aten.conv2d" in done.stdout


def test_completion_offers_targets_and_examples() -> None:
    for words, wanted in (("compile --target ethos-u6", "ethos-u65-256"), ("compile c", "cnn")):
        line = f"tosaic {words}"
        environment = {**os.environ, "_TOSAIC_COMPLETE": "complete_bash", "COMP_WORDS": line,
                       "COMP_CWORD": str(len(words.split()))}  # fmt: skip
        code = "import sys; sys.argv = ['tosaic']; from tosaic.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True
        )
        assert wanted in done.stdout.split(), done.stderr


def test_targets_of_help_are_those_of_the_catalog() -> None:
    assert set(ACCELERATORS) == {name for name in catalog.names() if name.startswith("ethos")}


def test_a_full_disk_is_a_sentence_and_leaves_no_file(tmp_path: Path) -> None:
    """No file may grow beyond a kilobyte: what the system says of it is a write error."""

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    done = tosaic("compile", "cnn", "-o", tmp_path / "m.tosa", preexec_fn=small)
    assert done.returncode == 2, done.stderr
    assert f"cannot write '{tmp_path / 'm.tosa'}': File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == []


def refused(*words: object, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    assert stop.value.code == 2
    return capsys.readouterr().err.replace("\n", " ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_device_without_room_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "m.tosa"
    place.symlink_to("/dev/full")
    assert "No space left on device" in refused("compile", "cnn", "-o", place, capsys=capsys)
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(
    not Path("/sys/kernel").is_dir(), reason="there is no folder without permission"
)
def test_a_folder_without_permission_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused("compile", "cnn", "-o", "/sys/kernel/m.tosa", capsys=capsys)
    assert "cannot write '/sys/kernel/m.tosa'" in told


def test_ctrl_c_ends_a_run_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    file, made = str(tmp_path / "slow.py"), str(tmp_path / "m.tosa")
    words = ("compile", file, "--calibration", f"{file}:data", "-o", made)
    run = subprocess.Popen(
        [*COMMAND, *words], stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job behind & has none
    )  # fmt: skip
    end = time.monotonic() + 60
    while (
        run.poll() is None and not (tmp_path / "slow.started").exists() and time.monotonic() < end
    ):
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=60)
    assert run.returncode == 130, told
    assert "interrupted" in told
    assert "Traceback" not in told
    assert {p.name for p in tmp_path.iterdir()} - {"__pycache__"} == {"slow.py", "slow.started"}


def test_a_trace_is_for_those_who_ask_for_it() -> None:
    plain, traced = (tosaic("explain", "absent.py", *more) for more in ((), ("--debug",)))
    assert plain.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in traced.stderr
    assert "\x1b" not in plain.stderr  # colours are for terminals


def test_every_example_is_named_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", "--help"])
    told = capsys.readouterr().out
    assert all(name in told for name in NAMES)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_run_says_what_it_does_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "_PATIENCE", 0.05)
    monkeypatch.setenv("TERM", "xterm")
    told = {}
    for name, stream, quiet in (
        ("terminal", Terminal(), False), ("quiet", Terminal(), True), ("file", StringIO(), False)
    ):  # fmt: skip
        monkeypatch.setattr(sys, "stderr", stream)
        with show.busy("loading", quiet):
            for _ in shown([1, 2], "calibrating: input"):
                time.sleep(0.25)
        with show.bar("digits", quiet) as step:
            step("seven")
        told[name] = stream.getvalue()
    assert "calibrating: input 2 of 2" in told["terminal"]
    assert "1 digits · seven" in told["terminal"]
    assert told["quiet"] == told["file"] == ""

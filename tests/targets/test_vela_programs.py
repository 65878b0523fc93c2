"""Programs that compile with Vela, whatever they are like: its processes end with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judges.velagraphs import FAULTY, pooled
from tosaic.targets.ethosu import vela_worker

# A program that compiles at its top level, tells its worker's process, and ends somehow.
PROGRAM = """
import os, signal, sys, threading, time
sys.path[:0] = {path!r}
from tosaic.targets.ethosu import vela_processes
from tosaic.targets.ethosu.vela import Table, VelaConfig, run_vela
from pathlib import Path
def tell():
    while not (known := [w for w in list(vela_processes._POOL.all) if w.answered == 0]): pass
    os.write(1, b"%d" % known[0].process.pid)
    os.kill(os.getpid(), signal.SIGKILL)
mark = sys.argv[2]
if mark:
    vela_processes.PROGRAM = Path({faulty!r})
    os.environ.update(VELA_WORKER={worker!r}, VELA_FAULT="spinning", VELA_MARK=mark)
    threading.Thread(target=tell, daemon=True).start()
run_vela(open({file!r}, "rb").read(), VelaConfig())
(worker,) = vela_processes._POOL.all
os.write(1, b"%d" % worker.process.pid)
exec(sys.argv[1])
"""
ENDS = {
    "at its last line": ("", ""),
    "without stopping anything": ("os._exit(0)", ""),
    "killed": ("os.kill(os.getpid(), 9)", ""),
    "killed while Vela runs": ("", "marked"),
    "with another process that goes on": ("os.fork() or time.sleep(600); os._exit(0)", ""),
    "with its standard input closed": ("assert sys.stdin is None", ""),
}


def is_running(process: int) -> bool:
    """Whether a process has not ended; one that nobody has asked about has."""
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True)
    return told.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.parametrize("how", ENDS)
def test_a_worker_ends_with_its_program(how: str, tmp_path: Path) -> None:
    end, mark = ENDS[how]
    file = tmp_path / "graph.tosa"
    file.write_bytes(pooled(mark or "plain"))
    source = PROGRAM.format(
        path=sys.path, faulty=str(FAULTY), worker=vela_worker.__file__, file=str(file)
    )
    script = tmp_path / "script.py"
    script.write_text(source)
    closed = "exec 0<&-; " if "closed" in how else ""
    command = [sys.executable, "-Wignore", str(script), end, mark]
    done = subprocess.Popen(
        ["sh", "-c", f'{closed}exec "$@"', "sh", *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert done.stdout is not None
    assert done.stderr is not None
    try:
        done.wait()
        process = int(os.read(done.stdout.fileno(), 100))
        waited = time.monotonic() + 60
        while is_running(process) and time.monotonic() < waited:
            time.sleep(0.01)
        assert not is_running(process)
    finally:
        if "another" in how:
            os.killpg(done.pid, signal.SIGKILL)
        with done.stdout, done.stderr:
            said = done.stderr.read()
    assert said == ""


# What programs do to their files and signals before they compile.
HABITS = {
    "closes its standard files": "for n in (0, 1, 2): os.close(n)",
    "ends at a closed pipe": "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
    "does not ask about its children": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "lets no signal through": "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))",
}
HABITUAL = """
import os, signal, sys
sys.path[:0] = {path!r}
from pathlib import Path
from tosaic.errors import ToolFailed
from tosaic.targets.ethosu import vela_processes
from tosaic.targets.ethosu.vela import VelaConfig, run_vela
vela_processes.PROGRAM = Path({faulty!r})
os.environ.update(VELA_WORKER={worker!r}, VELA_FAULT="killed", VELA_MARK="marked")
{habit}
def compile(): return run_vela(Path({plain!r}).read_bytes(), VelaConfig())
before, worker = compile(), vela_processes._POOL.idle[0]
worker.process.poll = lambda: None  # it is not known yet that it has ended
os.kill(worker.process.pid, signal.SIGKILL)
assert compile() == before
try:
    run_vela(Path({marked!r}).read_bytes(), VelaConfig())
except ToolFailed:
    assert compile() == before
    Path({done!r}).touch()
"""


@pytest.mark.parametrize("habit", HABITS)
def test_vela_is_lost_and_found_in_a_program_that(habit: str, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.tosa" for name in ("plain", "marked")}
    for name, file in files.items():
        file.write_bytes(pooled(name))
    source = HABITUAL.format(
        path=sys.path, faulty=str(FAULTY), worker=vela_worker.__file__, habit=HABITS[habit],
        plain=str(files["plain"]), marked=str(files["marked"]), done=str(tmp_path / "done"),
    )  # fmt: skip
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (tmp_path / "done").exists(), done.stderr
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

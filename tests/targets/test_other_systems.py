"""What Windows and macOS lack is not needed: the worker of Vela over a port, without Unix calls."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

import tosaic
from tosaic.targets.ethosu import vela_processes, vela_worker

WITHOUT = """
import sys
for name in ("fcntl", "resource"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"))
"""


def test_a_worker_that_connects_gives_the_same_stream(monkeypatch):
    net, x = nn.Linear(8, 8), (torch.randn(1, 8),)
    usual = tosaic.compile(net, x, target="ethos-u55-128", calibration=[x])
    vela_processes.stop()
    monkeypatch.setattr(vela_processes, "HAS_SOCKETS_AS_INPUT", False)
    other = tosaic.compile(net, x, target="ethos-u55-128", calibration=[x])
    vela_processes.stop()
    assert usual.delegates[0].result.command_stream == other.delegates[0].result.command_stream


def test_a_worker_without_unix_calls_answers(monkeypatch, tmp_path):
    program = tmp_path / "worker.py"
    program.write_text(WITHOUT)
    real = subprocess.Popen

    def started(command, **options):
        at = command.index(str(vela_processes.PROGRAM))
        return real([*command[:at], str(program), *command[at:]], **options)

    vela_processes.stop()
    monkeypatch.setattr(vela_processes, "HAS_SOCKETS_AS_INPUT", False)
    monkeypatch.setattr(vela_processes.subprocess, "Popen", started)
    net, x = nn.Linear(8, 4), (torch.randn(1, 8),)
    art = tosaic.compile(net, x, target="ethos-u55-128", calibration=[x])
    vela_processes.stop()
    assert art.delegates


@pytest.mark.skipif(sys.platform == "win32", reason="this is a Unix")
def test_the_worker_knows_what_its_system_has():
    assert vela_worker.IS_UNIX

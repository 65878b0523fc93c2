"""A worker process of Vela that goes wrong in the middle of a compile, in place of the real one.

The environment says for which graphs (VELA_MARK, some bytes of theirs), how (VELA_FAULT), and where
the real program is (VELA_WORKER).
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from typing import Any

found = importlib.util.spec_from_file_location("vela_worker", os.environ["VELA_WORKER"])
assert found is not None
assert found.loader is not None
worker: Any = importlib.util.module_from_spec(found)
found.loader.exec_module(worker)
real, send = worker.compile_with, worker._send


def spin() -> None:
    while True:
        pass


def sleep() -> None:
    while True:
        time.sleep(3600)


def take_memory() -> None:
    """A piece at a time, as a compiler would."""
    pieces = []
    while True:
        pieces.append(bytes(1 << 28))


def say(*parts: bytes) -> None:
    """Answer with these bytes from now on."""

    def answer(answers: Any, *message: Any) -> None:
        for part in parts:
            answers.write(part)
        answers.flush()
        if len(parts) > 1:
            os._exit(0)

    worker._send = answer


def speak_and_crash() -> None:
    os.write(1, b"to the output\n")
    os.write(2, b"\tto the errors.\n\n")
    os.kill(os.getpid(), signal.SIGSEGV)


FAULTS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "crashed": speak_and_crash,
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "spinning": spin,
    "sleeping": sleep,
    "out of memory": take_memory,
    "exited": lambda: os._exit(3),
    "garbage": lambda: say(bytes(range(256))),
    "nested": lambda: say(worker._HEAD.pack(b"vela", 100_000) + b"[" * 100_000),
    "huge": lambda: say(b"".join(worker.pack({}, [])).replace(b"[]", b"[" + b"9" * 18 + b"]")),
    "half": lambda: say(worker.pack({}, [bytes(100)])[0], b"half"),
    "other": lambda: say(*worker.pack({"fields": "of something else"})),
}


def compile_with(regor: Any, job: dict[str, Any], file: bytes) -> Any:
    if os.environ["VELA_MARK"].encode() in file:
        FAULTS[os.environ["VELA_FAULT"]]()
    return real(regor, job, file)


worker.compile_with = compile_with
worker._main(sys.argv[1], int(sys.argv[2]))

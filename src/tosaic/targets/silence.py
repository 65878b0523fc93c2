"""Native libraries that write to standard output by themselves, where a program's data may go."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OUTPUT = 1  # the descriptor


class _Silence:
    """All threads have one standard output: the first one turns it off, the last one on again."""

    def __init__(self) -> None:
        self.lock, self.users, self.kept = threading.Lock(), 0, -1

    def begin(self) -> None:
        with self.lock:
            self.users += 1
            if self.users > 1:
                return
            try:
                if sys.stdout is not None:
                    sys.stdout.flush()
                _flush()
                self.kept = os.dup(_OUTPUT)
            except (OSError, TypeError, ValueError):  # no such library, or no output
                return
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, _OUTPUT)
            os.close(nowhere)

    def end(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users or self.kept < 0:
                return
            _flush()
            os.dup2(self.kept, _OUTPUT)
            os.close(self.kept)
            self.kept = -1


_SILENCE = _Silence()


@contextmanager
def silence() -> Iterator[None]:
    """What native code writes to standard output meanwhile is dropped."""
    _SILENCE.begin()
    try:
        yield
    finally:
        _SILENCE.end()


def _flush() -> None:
    """Let native code write out what it still keeps back, or it would go elsewhere."""
    ctypes.CDLL(None).fflush(None)

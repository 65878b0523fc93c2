"""Native libraries that write to standard output by themselves, where a program's data may go."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_OUTPUT = 1  # the descriptor


@contextmanager
def silence() -> Iterator[None]:
    """What native code writes to standard output meanwhile is dropped."""
    try:
        library = ctypes.CDLL(None)
        if sys.stdout is not None:
            sys.stdout.flush()
        library.fflush(None)
        kept = os.dup(_OUTPUT)
    except (OSError, TypeError, ValueError):  # no such library, or no output
        yield
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _OUTPUT)
        os.close(nowhere)
        yield
    finally:
        library.fflush(None)
        os.dup2(kept, _OUTPUT)
        os.close(kept)

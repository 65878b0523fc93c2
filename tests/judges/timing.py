"""How long something takes: CPU time, the best of a few runs, others' garbage left alone."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Of CPU time for one hostile file: a reading in proportion to its size takes hundredths of it.
SOON = 5.0


@contextmanager
def within(seconds: float, what: object = "") -> Iterator[None]:
    """Fails when what is inside takes longer."""
    with _quiet():
        start = time.process_time()
        yield
        spent = time.process_time() - start
    assert spent < seconds, f"{what} took {spent:.1f} s of CPU time"


def seconds(call: Callable[[], object], runs: int = 3) -> float:
    """The least CPU time of a few runs: what else happens in the process only adds."""
    return min(_once(call) for _ in range(runs))


def _once(call: Callable[[], object]) -> float:
    with _quiet():
        start = time.process_time()
        call()
        return time.process_time() - start


@contextmanager
def _quiet() -> Iterator[None]:
    """Without garbage collection, which goes through everything that other tests left alive."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()

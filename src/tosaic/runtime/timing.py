"""Compile time by phase; a nested phase is charged instead of the one around it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tosaic.runtime.printed import Printed, grid

IMPORT, QUANTIZE, CALIBRATE, LOWER = "import", "quantize", "calibrate", "lower"
REWRITE, PROVE, EMIT, CHECK = "rewrite", "verify and prove", "device compiler", "check"

clock = time.perf_counter  # benchmarks may take the processor's time instead


@dataclass
class Timing(Printed):
    """Seconds of wall-clock time of each phase, in the order in which they first began."""

    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._open: list[str] = []
        self._since = 0.0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    def _charge(self) -> None:
        now = clock()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def enter(self, name: str) -> None:
        """From now on a phase is charged."""
        self._charge()
        self.seconds.setdefault(name, 0.0)
        self._open.append(name)

    def leave(self) -> None:
        """The phase before goes on."""
        self._charge()
        self._open.pop()

    def parts(self) -> Iterable[Any]:
        table = grid("phase", "seconds", "share", numbers=["seconds", "share"])
        for row in self.lines():
            table.add_row(*row)
        yield table

    def lines(self) -> list[tuple[str, str, str]]:
        """Rows of a table: phase, seconds, share of all."""
        whole = self.total or 1.0
        rows = [(n, f"{s:.2f}", f"{s / whole:.0%}") for n, s in self.seconds.items()]
        return [*rows, ("in all", f"{self.total:.2f}", "")]


_CURRENT: ContextVar[Timing | None] = ContextVar("timing", default=None)


def current() -> Timing:
    """What is being measured now, or nothing."""
    return _CURRENT.get() or Timing()


@contextmanager
def measured() -> Iterator[Timing]:
    """Measure the phases that run in here."""
    timing = Timing()
    token = _CURRENT.set(timing)
    try:
        yield timing
    finally:
        _CURRENT.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Charge what runs in here to a phase, where somebody measures."""
    timing = _CURRENT.get()
    if timing is None:
        yield
        return
    timing.enter(name)
    try:
        yield
    finally:
        timing.leave()

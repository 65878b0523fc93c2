"""What happens after each phase of compilation: the program is printed if asked for, and verified.

``TOSAIC_PRINT_AFTER=PHASE`` prints it to standard error, ``PHASE:FILE`` to the end of a file;
several phases are joined by commas, and ``all`` is every phase. ``TOSAIC_VERIFY=1`` verifies the
program after each phase; without it, it is verified once, at the end.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tosaic.errors import InvalidGraph, InvalidInput

PRINT, VERIFY = "TOSAIC_PRINT_AFTER", "TOSAIC_VERIFY"
_WANTED: ContextVar[str | None] = ContextVar("print_after", default=None)


@contextmanager
def printing(wanted: str | None) -> Iterator[None]:
    """Print after these phases in here, whatever the environment asks for."""
    token = _WANTED.set(wanted)
    try:
        yield
    finally:
        _WANTED.reset(token)


def wanted_phases() -> tuple[set[str], str]:
    """The phases after which the program is to be printed, and the file to print it to."""
    given = _WANTED.get()
    text = os.environ.get(PRINT, "") if given is None else given
    names, _, file = text.partition(":")
    return {name.strip() for name in names.split(",") if name.strip()}, file


def is_verifying() -> bool:
    """Whether the program is verified after each phase."""
    return os.environ.get(VERIFY, "0") not in ("", "0")


def ended(phase: str, text: Callable[[], str], verify: Callable[[], None] | None = None) -> None:
    """Say that a phase has run: ``text`` prints the program as it is now, ``verify`` checks it.

    A program that a phase has broken is Tosaic's own fault; InvalidGraph names the phase.
    """
    names, file = wanted_phases()
    if names & {phase, "all"}:
        shown = f"// ----- after {phase} -----\n{text().rstrip()}\n"
        if file:
            try:
                with open(file, "a", encoding="utf-8") as out:
                    out.write(shown)
            except OSError as problem:
                raise InvalidInput(f"cannot write '{file}': {problem.strerror}") from None
        else:
            sys.stderr.write(shown)
    if verify is not None and is_verifying():
        try:
            verify()
        except InvalidGraph as problem:
            reason = f"the phase {phase} made a graph that is not valid: {problem.reason}"
            raise InvalidGraph(reason, problem.where) from problem

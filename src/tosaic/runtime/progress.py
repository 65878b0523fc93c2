"""Progress of a long run, for a listener or as one line on a terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO, TypeVar

_LOG = logging.getLogger("tosaic")
Item = TypeVar("Item")
Listener = Callable[[str], None]
_PATIENCE, _PAUSE = 2.0, 0.2  # seconds before the first line, and between two
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell the listener what goes on in here, in a few words each time."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(words: str) -> None:
    """Tell a listener, and the log of the name ``tosaic``, what begins now."""
    _LOG.info(words)
    listener = _LISTENER.get()
    if listener is not None:
        listener(words)


def shown(
    items: Iterable[Item],
    label: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """The items; while they take long, their count for the listener, or on a terminal."""
    total = f" of {len(items)}" if isinstance(items, Sized) else ""
    out = sys.stderr if stream is None else stream
    if _LISTENER.get() is not None or out is None or not out.isatty():
        for count, item in enumerate(items, 1):
            say(f"{label} {count}{total}")
            yield item
        return
    start = last = clock()
    width = 0
    try:
        for count, item in enumerate(items, 1):
            now = clock()
            if now - start > _PATIENCE and (not width or now - last > _PAUSE):
                text, last = f"{label} {count}{total}", now
                out.write("\r" + text.ljust(width))
                out.flush()
                width = len(text)
            yield item
    finally:
        if width:
            out.write("\r" + " " * width + "\r")
            out.flush()

"""One line on a terminal that says how far a long run is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TextIO, TypeVar

Item = TypeVar("Item")
_PATIENCE, _PAUSE = 2.0, 0.2  # seconds before the first line, and between two


def shown(
    items: Iterable[Item],
    label: str,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Item]:
    """The items; while they take long, their count on standard error if that is a terminal."""
    out = sys.stderr if stream is None else stream
    if not out.isatty():
        yield from items
        return
    total = f" of {len(items)}" if isinstance(items, Sized) else ""
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

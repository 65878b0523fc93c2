"""Atomic file writes: a file is complete or absent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tosaic.errors import InvalidInput

Content = bytes | Callable[[Path], None]


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file; nobody ever sees half of it."""
    write_together({Path(path): data})


def write_together(files: Mapping[Path, Content]) -> None:
    """Write each file beside its place, and rename when all are written; bytes, or what writes.

    A device or a pipe is just written to. InvalidInput says which file cannot be written, and why.
    """
    ready: list[tuple[Path, Path]] = []
    place = Path()
    try:
        for path, content in files.items():
            place = Path(os.path.realpath(path))
            if place.exists() and not place.is_file() and not place.is_dir():
                _put(place, content)
                continue
            own = f".{place.name}.{os.getpid()}.{threading.get_ident()}.tmp"
            ready.append((place.with_name(own), place))
            _put(ready[-1][0], content)
        for made, place in ready:
            os.replace(made, place)
    except OSError as problem:
        raise InvalidInput(f"cannot write '{place}': {problem.strerror or problem}") from None
    finally:
        for made, _ in ready:
            made.unlink(missing_ok=True)


def _put(path: Path, content: Content) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)

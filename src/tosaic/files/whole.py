"""Atomic file writes: a file is complete or absent."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
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
            if place.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if place.exists() and not place.is_file():
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


def write_folder(path: str | os.PathLike[str], files: Mapping[str, Content]) -> None:
    """Write files into a folder, by their path in it: all of them or none.

    Folders that are not there yet are made, and go again where a file cannot be written.
    """
    folder, made = Path(path), list[Path]()
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"cannot write '{path}': there is a file of that name")
    try:
        for place in dict.fromkeys([folder, *((folder / name).parent for name in files)]):
            missing = [each for each in (place, *place.parents) if not each.exists()]
            made += reversed(missing)
            place.mkdir(parents=True, exist_ok=True)
        write_together({folder / name: content for name, content in files.items()})
    except BaseException as problem:
        for each in reversed(made):
            with suppress(OSError):
                each.rmdir()
        if isinstance(problem, OSError):
            told = problem.strerror or problem
            raise InvalidInput(f"cannot make the folder '{path}': {told}") from None
        raise


def _put(path: Path, content: Content) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)

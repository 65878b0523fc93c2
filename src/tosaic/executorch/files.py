"""Several files that belong together: all of them are there, or none has changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tosaic.errors import InvalidInput


def write_together(files: Mapping[Path, bytes | Callable[[Path], None]]) -> None:
    """Write each beside its place, and rename when all are written."""
    ready: list[tuple[Path, Path]] = []
    try:
        for path, content in files.items():
            place = Path(os.path.realpath(path))
            ready.append((place.with_name(f".{os.getpid()}.{place.name}"), place))
            if callable(content):
                content(ready[-1][0])
            else:
                ready[-1][0].write_bytes(content)
        for made, path in ready:
            os.replace(made, path)
    except OSError as problem:
        raise InvalidInput(f"cannot write '{problem.filename}': {problem.strerror}") from None
    finally:
        for made, _ in ready:
            made.unlink(missing_ok=True)

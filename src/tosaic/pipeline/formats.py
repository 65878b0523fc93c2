"""File formats and whole-program engines of an artifact; higher layers register theirs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# Each takes the artifact, the path and the format's own options.
WRITERS: dict[str, Callable[..., None]] = {}

# Each takes the artifact and the leaves of its arguments, and gives the program's values by node.
ENGINES: dict[str, Callable[[Any, list[Any]], dict[Any, Any]]] = {}


def refusal(path: Any, suffixes: Iterable[str]) -> str:
    """Why nothing is saved to a path; without a suffix is a folder."""
    known = tuple(suffixes)
    folder = " and a folder, whose name has none" if "" in known else ""
    return f"cannot save '{path}': the suffixes are {', '.join(filter(None, known))}{folder}"

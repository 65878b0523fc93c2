"""File formats and whole-program engines of an artifact; higher layers register theirs here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Each takes the artifact, the path and the format's own options.
WRITERS: dict[str, Callable[..., None]] = {}

# Each takes the artifact and the leaves of its arguments, and gives the program's values by node.
ENGINES: dict[str, Callable[[Any, list[Any]], dict[Any, Any]]] = {}

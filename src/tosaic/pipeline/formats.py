"""File formats of an artifact, by suffix; higher layers register theirs here."""

from __future__ import annotations

from collections.abc import Callable

# Each takes the artifact, the path and the format's own options.
WRITERS: dict[str, Callable[..., None]] = {}

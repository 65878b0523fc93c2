"""Outcomes of a long run, kept in a file line by line: a run that was interrupted goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path


class Kept:
    """Outcomes by name; without a file they last as long as the run."""

    def __init__(self, path: str = "") -> None:
        self._path = Path(path) if path else None
        self._known: dict[str, str] = {}
        if self._path is not None and self._path.is_file():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                name, outcome = json.loads(line)
                self._known[name] = outcome

    def get(self, name: str, ask: Callable[[], str]) -> str:
        """The outcome of a name: the one that is known, or what ``ask`` says."""
        if name not in self._known:
            self._known[name] = outcome = ask()
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, outcome]) + "\n")
        return self._known[name]

"""The store: results and blobs by key, in one SQLite file that survives the end of any process."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput, first_line
from tosaic.search.tasks import REFUSED, Done, Executor, Outcome, Result, Task

_SCHEMA = """
CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, data TEXT NOT NULL, seconds REAL);
CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sweeps (name TEXT PRIMARY KEY, data TEXT NOT NULL);
"""
_FORMAT = 0x705A1C01  # of the file, as SQLite's application_id; the last byte is its version
_PATIENCE = 60.0  # seconds that a reader waits for a writer


class Store:
    """An open file. Results appear whole or not at all, and are never changed."""

    def __init__(self, path: str | os.PathLike[str], must_exist: bool = False) -> None:
        self.path = Path(path)
        if must_exist and not self.path.is_file():
            raise InvalidInput(f"there is no file '{path}'")
        if not self.path.parent.is_dir():
            raise InvalidInput(f"there is no folder '{self.path.parent}' to write to")
        places = (self.path, self.path.parent)  # a journal lies beside the file
        is_fixed = must_exist and not all(os.access(place, os.W_OK) for place in places)
        address = f"{self.path.absolute().as_uri()}{'?mode=ro&immutable=1' if is_fixed else ''}"
        try:
            self._open = sqlite3.connect(address, _PATIENCE, isolation_level=None, uri=True)
            self._check(is_fixed)
        except sqlite3.OperationalError as problem:  # of the disk, or of another process
            raise InvalidInput(f"cannot write '{path}': {problem}") from None
        except sqlite3.Error as problem:
            raise InvalidInput(f"'{path}' is no file of results: {problem}") from None

    def _check(self, is_fixed: bool) -> None:
        (found,) = self._open.execute("PRAGMA application_id").fetchone()
        (tables,) = self._open.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if found != _FORMAT and found >> 8 == _FORMAT >> 8:
            raise sqlite3.DatabaseError("another version of Tosaic made it; name another file")
        if found != _FORMAT and (found or tables):
            raise sqlite3.DatabaseError("it is another program's database")
        if is_fixed:
            return
        self._open.execute("PRAGMA journal_mode=WAL")
        self._open.execute("PRAGMA synchronous=NORMAL")
        if found != _FORMAT:
            self._open.execute(f"PRAGMA application_id={_FORMAT}")
        self._open.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the file. All is in it, even if another process still has it open."""
        with suppress(sqlite3.Error):  # the journal stays and counts where the file is not writable
            self._open.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._open.close()

    def get(self, key: str) -> Any:
        """The data of a result; None where there is none yet."""
        return self._json("SELECT data FROM results WHERE key = ?", key)

    def has(self, key: str) -> bool:
        with self._sentences():
            found = self._open.execute("SELECT 1 FROM results WHERE key = ?", (key,)).fetchone()
        return found is not None

    def blob(self, key: str) -> bytes:
        """The bytes of a blob; InvalidInput where there is none."""
        with self._sentences():
            return _blob(self._open, key)

    def put(self, key: str, data: bytes) -> str:
        """Keep a blob unless it is there."""
        with self._sentences():
            self._open.execute("INSERT OR IGNORE INTO blobs VALUES (?, ?)", (key, data))
        return key

    def _json(self, query: str, key: str) -> Any:
        with self._sentences():
            found = self._open.execute(query, (key,)).fetchone()
            return None if found is None else json.loads(found[0])

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        """Faults of the file and of the disk as InvalidInput; what was kept before stays."""
        try:
            yield
        except sqlite3.DatabaseError as problem:
            raise InvalidInput(
                f"'{self.path}' cannot be read or written: {problem}; when that is mended, the "
                "same command goes on"
            ) from None
        except (ValueError, TypeError) as problem:
            raise InvalidInput(f"'{self.path}' is damaged: {first_line(problem)}") from None

    def keep(self, results: Mapping[str, Result], seconds: float) -> None:
        """Keep what a task gave: all of it, or nothing where the process ends meanwhile."""
        texts = {key: json.dumps(result.data) for key, result in results.items()}
        blobs = [pair for result in results.values() for pair in result.blobs.items()]
        rows = [(key, text, seconds) for key, text in texts.items()]
        with self._sentences(), self._open:  # which takes all of it back where a part fails
            self._open.execute("BEGIN IMMEDIATE")
            self._open.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", blobs)
            self._open.executemany("INSERT OR IGNORE INTO results VALUES (?, ?, ?)", rows)

    def describe(self, name: str, data: Any) -> None:
        """Keep what a sweep consists of, to be shown without computing anything."""
        text = json.dumps(data)
        with self._sentences():
            self._open.execute("INSERT OR REPLACE INTO sweeps VALUES (?, ?)", (name, text))

    def described(self, name: str) -> Any:
        return self._json("SELECT data FROM sweeps WHERE name = ?", name)

    def run(self, executor: Executor, tasks: Iterable[Task]) -> Iterator[Done]:
        """Run the tasks of which a result is missing, and keep each as it comes."""
        begun: set[str] = set()

        def waiting() -> Iterator[Task]:
            for task in tasks:
                if begun.isdisjoint(task.keys) and not all(map(self.has, task.keys)):
                    begun.update(task.keys)
                    yield task

        for done in executor.run(waiting()):
            self._keep_outcome(done.task, done.outcome)
            yield done

    def _keep_outcome(self, task: Task, outcome: Outcome) -> None:
        if outcome.refusal and task.keeps_refusal:
            refused = Result({REFUSED: outcome.refusal})
            self.keep(dict.fromkeys(task.keys, refused), outcome.seconds)
        elif outcome.results:
            self.keep(outcome.results, outcome.seconds)


class Reader:
    """Reads blobs of a store in another process than the one that writes."""

    def __init__(self, path: str) -> None:
        address = f"{Path(path).as_uri()}?mode=ro"
        self._open = sqlite3.connect(address, uri=True, timeout=_PATIENCE)

    def __call__(self, key: str) -> bytes:
        return _blob(self._open, key)


def _blob(opened: sqlite3.Connection, key: str) -> bytes:
    found = opened.execute("SELECT data FROM blobs WHERE key = ?", (key,)).fetchone()
    if found is None:
        raise InvalidInput(f"the file of results has no blob {key[:12]}…: it is damaged")
    data: bytes = found[0]
    return data

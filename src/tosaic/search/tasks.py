"""Tasks: functions of content-addressed inputs, the one thing that executors run.

What a task gives is known by keys that are digests of all it depends on. A store that has the keys
needs no run, so resuming after an interruption, sharing between sweeps and trying again on another
worker are one mechanism.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from tosaic.errors import ToolFailed, TosaicError, first_line

REFUSED = "refused"  # the name of a sentence in a result that says why there is no other
_CACHED = 1 << 29  # bytes of blobs whose objects a worker keeps
_AHEAD = 2  # tasks a worker: the next is there when one is done


class Blobs(Protocol):
    """Objects by key, loaded where a task runs."""

    def load(self, key: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Result:
    """What a task found out, as data for JSON, and blobs by their keys."""

    data: Any
    blobs: Mapping[str, bytes] = field(default_factory=dict)


Function = Callable[[Any, Blobs], Mapping[str, Result]]


@dataclass(frozen=True, slots=True)
class Task:
    """A call of a module's function; ``keys`` are what it gives, ``blobs`` what it loads.

    ``keeps_refusal`` is whether a refusal is a result, which no later run tries again. A cluster
    runs it where so many GPUs are free, and nothing else has them.
    """

    name: str
    function: Function
    keys: tuple[str, ...]
    blobs: tuple[str, ...] = ()
    arguments: Any = None
    keeps_refusal: bool = True
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a task, or why there are none.

    A ``refusal`` is an answer that every run would give. A ``fault`` is not: it is tried again.
    """

    results: Mapping[str, Result] = field(default_factory=dict)
    refusal: str = ""
    fault: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """A task and its outcome."""

    task: Task
    outcome: Outcome


class Executor(Protocol):
    """Runs tasks: here one by one, in processes of this machine, or on a cluster."""

    workers: int

    def run(self, tasks: Iterator[Task]) -> Iterator[Done]:
        """Outcomes as they come; tasks are taken from the iterator as workers become free."""

    def close(self) -> None:
        """End the workers."""


def execute(task: Task, blobs: Blobs, journal: str = "") -> Outcome:
    """Run a task where it is, on one thread, so that sums of floats are the same everywhere."""
    if journal:
        with open(journal, "a", encoding="utf-8") as log:
            told = {"task": task.name, "key": task.keys[0], "pid": os.getpid(), "time": time.time()}
            log.write(json.dumps(told) + "\n")
    start, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = task.function(task.arguments, blobs)
        return Outcome(found, seconds=time.perf_counter() - start)
    except ToolFailed as problem:  # which another machine may have, or another time
        return Outcome(fault=str(problem))
    except TosaicError as refusal:
        return Outcome(refusal=str(refusal), seconds=time.perf_counter() - start)
    except Exception as problem:  # noqa: BLE001  (one task's fault is not the end of the others)
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        return Outcome(fault=f"{type(problem).__name__} at {place}: {first_line(problem)}")
    finally:
        torch.set_num_threads(threads)


class Loaded:
    """Blobs as objects; those used last are kept."""

    def __init__(self, read: Callable[[str], bytes]) -> None:
        self._read = read
        self._kept: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def load(self, key: str) -> Any:
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        data = self._read(key)
        made = unpacked(data)
        self._kept[key] = made, len(data)
        while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > _CACHED:
            self._kept.popitem(last=False)
        return made


def packed(value: Any) -> bytes:
    """An object as a blob: a program by torch.export's own writer, all else pickled."""
    if isinstance(value, torch.export.ExportedProgram):
        to = io.BytesIO()
        torch.export.save(value, to)
        return b"P" + to.getvalue()
    return b"O" + pickle.dumps(value)


def unpacked(data: bytes) -> Any:
    """The object again."""
    if data[:1] == b"P":
        return torch.export.load(io.BytesIO(data[1:]))
    return pickle.loads(data[1:])


def digest(*parts: Any) -> str:
    """A key: the same for equal data, in every process and on every machine."""
    made = hashlib.sha256()
    for part in parts:
        _feed(made, part)
    return made.hexdigest()


def _feed(made: Any, part: Any) -> None:
    if isinstance(part, torch.Tensor):
        plain = part.detach().cpu().contiguous()
        _feed(made, ["tensor", str(plain.dtype), list(plain.shape)])
        made.update(plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b"")
    elif isinstance(part, np.ndarray):
        _feed(made, ["array", str(part.dtype), list(part.shape), part.tobytes()])
    elif isinstance(part, bytes):
        made.update(b"bytes %d " % len(part))
        made.update(part)
    elif isinstance(part, Mapping):
        _feed(made, sorted(part.items(), key=lambda item: str(item[0])))
    elif isinstance(part, Sequence) and not isinstance(part, str):
        made.update(b"list %d " % len(part))
        for item in part:
            _feed(made, item)
    else:
        text = f"{type(part).__name__} {part!r}".encode()
        made.update(b"%d " % len(text) + text)


def begin(
    tasks: Iterator[Task], running: dict[Any, Task], submit: Callable[[Task], Any], workers: int
) -> bool:
    """Submit tasks until so many run as keep the workers busy; whether any runs."""
    for task in tasks:
        running[submit(task)] = task
        if len(running) >= _AHEAD * workers:
            break
    return bool(running)

"""Executors of one machine: one by one in this process, or in processes, one a core."""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from tosaic.errors import InvalidInput
from tosaic.search.functions import OWN, Own
from tosaic.search.store import Reader
from tosaic.search.tasks import Blobs, Done, Executor, Loaded, Outcome, Task, begin, execute

_TRIES = 2  # more, of a task whose process was lost
_FORKS = sys.platform == "linux"
_LOST = "the process that ran it was lost {} times: it may need more memory than there is"


def cores() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Serial:
    """Tasks one by one in this process."""

    workers = 1

    def __init__(self, read: Callable[[str], bytes], journal: str = "") -> None:
        self._blobs, self._journal = Loaded(read), journal

    def run(self, tasks: Iterator[Task]) -> Iterator[Done]:
        for task in tasks:
            yield Done(task, execute(task, self._blobs, self._journal))

    def close(self) -> None:
        """Nothing is left."""


class Processes:
    """Tasks in processes of this machine; one that is lost costs a repetition, not the run.

    The processes are forked where the system forks well, so that functions of the user's are there,
    whatever they are; elsewhere ``prepare`` makes those of modules known in each.
    """

    def __init__(
        self,
        path: Path,
        workers: int,
        prepare: Callable[[], None] | None = None,
        journal: str = "",
    ) -> None:
        self.workers, self._prepare, self._journal = workers, prepare, journal
        self._path = str(path.resolve())
        self._pool: ProcessPoolExecutor | None = None

    def run(self, tasks: Iterator[Task]) -> Iterator[Done]:
        running: dict[Future[Outcome], Task] = {}
        try:
            while begin(tasks, running, self._submit, self.workers):
                lost: list[Task] = []
                for future in wait(running, return_when=FIRST_COMPLETED)[0]:
                    task = running.pop(future)
                    try:
                        yield Done(task, future.result())
                    except BrokenProcessPool:
                        lost.append(task)
                if lost:  # one of them ended its process, and the others were beside it
                    lost += running.values()
                    running.clear()
                    yield from map(self._alone, lost)
        finally:
            for future in running:
                future.cancel()

    def _alone(self, task: Task) -> Done:
        """A task with no other beside it, so that only what ends its own process is given up."""
        for _ in range(_TRIES):
            self.close()
            try:
                return Done(task, self._submit(task).result())
            except BrokenProcessPool:
                continue
        self.close()
        return Done(task, Outcome(fault=_LOST.format(_TRIES + 1)))

    def _submit(self, task: Task) -> Future[Outcome]:
        if self._pool is None:
            context = multiprocessing.get_context("fork" if _FORKS else "spawn")
            given = self._path, os.getpid(), None if _FORKS else self._prepare, self._journal
            self._pool = ProcessPoolExecutor(self.workers, context, _begin, given)
        with warnings.catch_warnings():  # of threads that forked processes do not have
            warnings.simplefilter("ignore", DeprecationWarning)
            return self._pool.submit(_run, _packed(task))

    def close(self) -> None:
        """End the processes, whatever they do."""
        if self._pool is not None:
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


class _Pickler(pickle.Pickler):
    """The user's functions by reference to those that a forked process has.

    Unlike the pickler of ``multiprocessing``, for which torch shares each tensor as an open file,
    of which a process may have a thousand.
    """

    def persistent_id(self, value: Any) -> int | None:
        return value.number if _FORKS and isinstance(value, Own) else None


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, number: int) -> Own:
        return OWN[number]


def _packed(task: Task) -> bytes:
    to = io.BytesIO()
    try:
        _Pickler(to).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise InvalidInput(
            f"a function cannot be sent to other processes ({problem}): define it at the top of a "
            "module, or run in one process, with 1 as jobs"
        ) from None
    return to.getvalue()


class _Worker:
    """What a worker process has."""

    blobs: Blobs
    journal = ""


def _begin(path: str, parent: int, prepare: Callable[[], None] | None, journal: str) -> None:
    """The start of a worker process, which ends when its parent does, however that ends."""
    torch.set_num_threads(1)
    _Worker.blobs, _Worker.journal = Loaded(Reader(path)), journal
    if prepare is not None:
        prepare()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run(packed: bytes) -> Outcome:
    task: Task = _Unpickler(io.BytesIO(packed)).load()
    return execute(task, _Worker.blobs, _Worker.journal)


def executor_for(
    path: Path,
    read: Callable[[str], bytes],
    jobs: int | None = None,
    ray: str | None = None,
    prepare: Callable[[], None] | None = None,
    journal: str = "",
) -> Executor:
    """What was asked for: a cluster by its address, one process, or as many as there are cores."""
    if jobs is not None and jobs < 1:
        raise InvalidInput("jobs is at least 1")
    if ray is not None:
        from tosaic.search.cluster import Cluster

        return Cluster(ray, read, jobs, journal)
    if (jobs or cores()) == 1:
        return Serial(read, journal)
    return Processes(path, jobs or cores(), prepare, journal)

"""The executor of a Ray cluster: blobs once in its object store, tasks tried again elsewhere."""

from __future__ import annotations

import io
import logging
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from typing import Any

from tosaic.errors import InvalidInput, first_line
from tosaic.search.tasks import Done, Loaded, Outcome, Task, begin, execute

_RETRIES = 3  # of a task whose worker or node was lost
_PATIENCE = 10.0  # seconds for a connection


class Cluster:
    """Tasks on the machines of a Ray cluster, one core each."""

    def __init__(
        self, address: str, read: Callable[[str], bytes], workers: int | None, journal: str = ""
    ) -> None:
        self._ray = _ray()
        self._owns = not self._ray.is_initialized()
        if self._owns:
            _check_address(address)
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level="error")
            except (ConnectionError, ValueError, RuntimeError) as problem:
                raise _no_cluster(address, first_line(problem)) from None
        self._stdout: Any = sys.stdout
        sys.stdout = _Stdout(self._stdout)
        self.workers = workers or int(self._ray.cluster_resources().get("CPU", 1))
        self._read, self._journal = read, journal
        self._put: dict[str, Any] = {}
        self._remote = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(_run)

    def run(self, tasks: Iterator[Task]) -> Iterator[Done]:
        running: dict[Any, Task] = {}
        try:
            while begin(tasks, running, self._submit, self.workers):
                for ready in self._ray.wait(list(running), num_returns=1)[0]:
                    yield Done(running.pop(ready), self._outcome(ready))
        finally:
            for left in running:
                self._ray.cancel(left, force=True)

    def _submit(self, task: Task) -> Any:
        for key in task.blobs:
            if key not in self._put:
                self._put[key] = self._ray.put(self._read(key))
        packed = self._pickle().dumps(task)
        remote = self._remote.options(num_gpus=task.gpus)
        return remote.remote(packed, {k: self._put[k] for k in task.blobs}, self._journal)

    def _pickle(self) -> Any:
        """Ray's pickle, with functions of single files by value: other machines lack the files."""
        pickle = self._ray.cloudpickle
        for module in list(sys.modules.values()):
            if getattr(module, "__tosaic_file__", False):
                pickle.register_pickle_by_value(module)
        return pickle

    def _outcome(self, ready: Any) -> Outcome:
        try:
            found: Outcome = self._ray.get(ready)
        except self._ray.exceptions.RayError as problem:
            return Outcome(fault=f"the cluster lost it: {first_line(problem)}")
        return found

    def close(self) -> None:
        """Leave the cluster, unless the caller had joined it before."""
        self._put.clear()
        if self._owns:
            with redirect_stdout(io.StringIO()):  # to which it prints what it has held back
                self._ray.shutdown()
        sys.stdout = self._stdout


class _Stdout:
    """Standard output without what threads of Ray print, as when a node is lost: that is logged."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def write(self, text: str) -> Any:
        if not threading.current_thread().name.startswith("ray_"):
            return self._real.write(text)
        if text.strip():
            logging.getLogger("tosaic").info("Ray says: %s", text.strip().splitlines()[0])
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _no_cluster(address: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"there is no Ray cluster at '{address}' ({why}): start one with `ray start --head`, or "
        "run without Ray"
    )


def _check_address(address: str) -> None:
    """Refuse a host on which nothing listens: Ray itself would wait for it without an end."""
    found = re.fullmatch(r"(?:ray://)?(\[.+\]|[^:/]+):(\d{1,5})", address)
    if found is None:
        if address not in ("auto", "local"):
            raise _no_cluster(address, "an address is auto or host:port")
        return
    try:
        place = found[1].strip("[]"), int(found[2])
        socket.create_connection(place, timeout=_PATIENCE).close()
    except (OSError, OverflowError) as problem:
        raise _no_cluster(address, first_line(problem)) from None


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InvalidInput('Ray is not installed: pip install "tosaic[ray]"') from None
    return ray


_LOADED: Loaded | None = None
_REFS: dict[str, Any] = {}


def _run(data: bytes, refs: Mapping[str, Any], journal: str) -> Outcome:
    """A task on a worker of the cluster, which keeps what it has loaded."""
    global _LOADED
    ray = _ray()
    _REFS.update(refs)
    if _LOADED is None:
        _LOADED = Loaded(lambda key: bytes(ray.get(_REFS[key])))
    made = execute(ray.cloudpickle.loads(data), _LOADED, journal)
    _REFS.clear()
    return made

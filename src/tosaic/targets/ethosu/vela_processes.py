"""Worker processes for Vela: started early, kept, bounded in time and memory, replaced when lost.

A worker runs the program ``vela_worker`` and takes one job at a time over a socket. Whatever ends
or stops it is a WorkerLost, never the end of this process. Workers end with this process, however
it ends, as their socket is closed then.
"""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.targets.ethosu import vela_worker

PROGRAM = Path(vela_worker.__file__).absolute()
# CPU seconds that Vela may take, by the size of the file: networks took 0.6 a MiB at most.
_SECONDS, _SECONDS_PER_MIB = 30.0, 20.0
_WAITING = 5.0  # times the CPU seconds: a worker that waits so long is stopped, not slow
_PATIENCE = 10.0  # seconds from a closed socket to an exit status
_LEAST_MEMORY = 4 << 30
_NO_START = "the process for Vela does not start"
UNREADABLE = "gives an answer that cannot be read"
MALFORMED = (ValueError, KeyError, TypeError, MemoryError, RecursionError, OverflowError)
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_SO_NOSIGPIPE = 0x1022  # of macOS, which has no MSG_NOSIGNAL

HAS_SOCKETS_AS_INPUT = os.name != "nt"

Answer = tuple[dict[str, Any], list[bytes]]
Started = tuple[socket.socket, "subprocess.Popen[bytes]"]


class WorkerLost(Exception):
    """A worker does not answer: ``str`` of it says what Vela does instead."""

    def __init__(self, reason: str, words: str = "", is_slow: bool = False) -> None:
        super().__init__(reason)
        self.words = words
        self.is_slow = is_slow


@dataclass(frozen=True, slots=True)
class Job:
    """A file for Vela, with the fields that ``vela_worker.compile_with`` or its like reads."""

    file: bytes
    fields: Mapping[str, Any]

    @property
    def seconds(self) -> float:
        """CPU seconds that it may take."""
        told = _number("TOSAIC_VELA_SECONDS")
        return told or _SECONDS + _SECONDS_PER_MIB * len(self.file) / (1 << 20)


class Worker:
    """A process that compiles, and this end of its socket."""

    def __init__(self) -> None:
        self.answered = -1  # the first message says that it is ready
        self.deadline = 0.0
        command = [
            sys.executable or "",
            "-I",
            "-S",
            str(PROGRAM),
            _extension("regor"),
            str(_memory()),
        ]
        with ExitStack() as opened:
            try:
                self.log = opened.enter_context(tempfile.TemporaryFile())
                start = self._with_pair if HAS_SOCKETS_AS_INPUT else self._with_port
                self.channel, self.process = start(command, opened)
            except OSError as problem:
                raise InvalidInput(f"{_NO_START}: {problem}") from None
            opened.pop_all()
        if sys.platform == "darwin":
            self.channel.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)

    def _with_pair(self, command: list[str], opened: ExitStack) -> Started:
        """A process whose standard input is the other end of a pair of sockets."""
        channel, theirs = map(opened.enter_context, socket.socketpair())
        made = subprocess.Popen(
            command, stdin=theirs.fileno(), stdout=self.log, stderr=self.log, cwd="/",
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        return channel, made

    def _with_port(self, command: list[str], opened: ExitStack) -> Started:
        """A process that connects to a port of this machine; others do not know the key."""
        key = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            made = subprocess.Popen(
                [*command, str(port), key], stdin=subprocess.DEVNULL, stdout=self.log,
                stderr=self.log,
            )  # fmt: skip
            server.settimeout(_PATIENCE)
            channel = opened.enter_context(server.accept()[0])
        channel.settimeout(_PATIENCE)
        if channel.recv(len(key), socket.MSG_WAITALL) != key.encode():
            made.kill()
            raise OSError("another program has connected")
        return channel, made

    def begin(self, job: Job) -> None:
        """Give it a job."""
        seconds = job.seconds
        self.deadline = time.monotonic() + _WAITING * seconds
        if self.answered < 0:
            self.answer(job)
        self.log.seek(0)
        self.log.truncate()
        try:
            for part in vela_worker.pack({**job.fields, "seconds": seconds}, [job.file]):
                self.channel.settimeout(max(self.deadline - time.monotonic(), 1e-3))
                self.channel.sendall(part, _NO_SIGNAL)
        except OSError as problem:
            raise self._lost(job, problem) from None

    def answer(self, job: Job) -> Answer:
        """The answer to a job, or WorkerLost."""
        try:
            fields, blobs = vela_worker.unpack(self._read)
        except (OSError, EOFError) as problem:
            raise self._lost(job, problem) from None
        except MALFORMED:
            raise WorkerLost(UNREADABLE) from None
        self.answered += 1
        if "out_of_memory" in fields:
            raise WorkerLost(f"needs more than {fields['out_of_memory']:,} bytes of memory")
        return fields, blobs

    def _read(self, size: int) -> bytes:
        found = bytearray(size)
        view = memoryview(found)
        while view:
            self.channel.settimeout(max(self.deadline - time.monotonic(), 1e-3))
            count = self.channel.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
        return bytes(found)

    def _lost(self, job: Job, problem: Exception) -> WorkerLost:
        """Why there is no answer."""
        late = WorkerLost(f"does not finish within {job.seconds:g} seconds", is_slow=True)
        if isinstance(problem, TimeoutError):
            return late
        with suppress(subprocess.TimeoutExpired):  # its socket is closed: it is about to end
            self.process.wait(_PATIENCE)
        words, code = self._words(), self.end()
        if self.answered < 0 <= code:
            raise InvalidInput(f"{_NO_START}: {words or _name(code)}")
        if code == -getattr(signal, "SIGPROF", 0):
            return late
        return WorkerLost(f"ends with {_name(code)}", words.rstrip("."))

    def _words(self) -> str:
        """The last line that Vela printed."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def end(self) -> int:
        """End the process if it has not ended; its exit status, negative for a signal."""
        if self.process.poll() is None:
            self.process.kill()
        code = self.process.wait()
        self.close()
        return code

    def close(self) -> None:
        """Close this end, in a process that may not be the worker's parent."""
        self.channel.close()
        self.log.close()


class _Pool:
    """The workers of this process: a job takes an idle one or starts another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.idle: list[Worker] = []
        self.all: set[Worker] = set()
        self.stops = 0  # a job that was under way then is not tried again

    def take(self, is_fresh: bool = False) -> Worker:
        """A worker that has no job; a new one if it must not have had any."""
        with self.lock:
            while self.idle and not is_fresh:
                worker = self.idle.pop()
                if worker.process.poll() is None:
                    return worker
                self._drop(worker)
            worker = Worker()
            self.all.add(worker)
            return worker

    def give(self, worker: Worker, is_last: bool = False) -> None:
        """Give back one that has answered."""
        with self.lock:
            if is_last or len(self.idle) >= _cores():
                self._drop(worker)
            else:
                self.idle.append(worker)

    def drop(self, workers: Iterable[Worker]) -> None:
        """End some that have not."""
        with self.lock:
            for worker in list(workers):
                self._drop(worker)

    def _drop(self, worker: Worker) -> None:
        worker.end()
        self.all.discard(worker)

    def stop(self) -> None:
        """End all."""
        self.stops += 1
        self.drop(self.all)
        self.idle.clear()

    def forget(self) -> None:
        """In a process that was forked, leave the workers to the one that started them."""
        for worker in self.all:
            worker.process.returncode = 0  # it is no child of this process
            worker.close()
        self.__init__()  # type: ignore[misc]


_POOL = _Pool()
atexit.register(_POOL.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.forget)


def start() -> None:
    """Start a worker unless there is one, so that it is ready when a job comes."""
    _POOL.give(_POOL.take())


def stop() -> None:
    """End all workers; a job starts another."""
    _POOL.stop()


def decode_weights(streams: Sequence[bytes]) -> list[bytes] | None:
    """Weights of 16 bits from compressed streams, by Vela's codec; None where it does not."""
    fields = {"codec": _extension("mlw_codec"), "streams": [len(stream) for stream in streams]}
    (found,) = run([Job(b"".join(streams), fields)])
    if isinstance(found, WorkerLost) or len(found[1]) != len(streams):
        return None
    return found[1]


def run(jobs: Sequence[Job]) -> list[Answer | WorkerLost]:
    """What becomes of each job, as many at once as there are cores.

    A worker that is lost may be so for the graphs that it had before: its job goes to a new one
    then, so that what is said of a graph does not depend on others.
    """
    found: dict[int, Answer | WorkerLost] = {}
    waiting, again = deque(range(len(jobs))), set[int]()
    busy: dict[Worker, int] = {}
    stops = _POOL.stops

    def lose(worker: Worker, lost: WorkerLost) -> None:
        index = busy.pop(worker)
        _POOL.drop([worker])
        can_be_others = worker.answered and not lost.is_slow and stops == _POOL.stops
        if can_be_others and index not in again:
            again.add(index)
            waiting.appendleft(index)
        else:
            found[index] = lost

    try:
        while waiting or busy:
            begun = []
            while waiting and len(busy) < _cores():
                index = waiting.popleft()
                begun.append(_POOL.take(index in again))
                busy[begun[-1]] = index
            for worker in begun:
                try:
                    worker.begin(jobs[busy[worker]])
                except WorkerLost as lost:
                    lose(worker, lost)
            for worker in _ready(busy):
                try:
                    answer = worker.answer(jobs[busy[worker]])
                except WorkerLost as lost:
                    lose(worker, lost)
                else:
                    found[busy.pop(worker)] = answer
                    _POOL.give(worker, answer[0].pop("last", True) is not False)
    except BaseException:
        _POOL.drop(busy)
        raise
    return [found[index] for index in range(len(jobs))]


def _ready(workers: Collection[Worker]) -> list[Worker]:
    """Those that answer first, or have had their time; one alone can be waited for."""
    if len(workers) < 2:
        return list(workers)
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.channel, selectors.EVENT_READ, worker)
        first = min(worker.deadline for worker in workers)
        events = selector.select(max(first - time.monotonic(), 0.0))
    answering = [key.data for key, _ in events]
    return answering or [w for w in workers if w.deadline <= time.monotonic()]


def _cores() -> int:
    """Processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _memory() -> int:
    """The most bytes of address space that a worker may have: half of what the machine has."""
    told = _number("TOSAIC_VELA_BYTES")
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    machine = os.sysconf("SC_PAGE_SIZE") * pages if pages else 0
    return int(told) or max(machine // 2, _LEAST_MEMORY)


def _number(variable: str) -> float:
    """A number above 0 from the environment, or 0 where there is none."""
    text = os.environ.get(variable, "")
    try:
        number = float(text or 0)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise InvalidInput(f"{variable} must be a number above 0, not {text!r}")
    return number


@cache
def _extension(name: str) -> str:
    """The file of an extension module of Vela's."""
    with suppress(ImportError):
        found = importlib.util.find_spec(f"ethosu.{name}")
        if found is not None and found.origin:
            return os.path.abspath(found.origin)
    raise InvalidInput(
        "an Ethos-U target needs Vela, which is not installed: pip install ethos-u-vela"
    )


def _name(code: int) -> str:
    """An exit status in words."""
    try:
        return f"{signal.Signals(-code).name} ({signal.strsignal(-code)})"
    except ValueError:
        return f"exit status {code}"

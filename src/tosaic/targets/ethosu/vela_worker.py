"""The worker process of Vela: a program that compiles the graphs that it reads from a socket.

It runs by its path, ``python -I -S vela_worker.py REGOR BYTES``, with the socket as standard input,
and imports nothing but a few modules of the standard library and Vela's extension module, the file
REGOR: it starts in milliseconds. BYTES is the most memory that it may have. Where a socket cannot
be standard input, on Windows, PORT and a KEY follow: it connects to the caller and sends the key.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec

try:
    import fcntl
    import resource
except ImportError:  # Windows has neither: time and memory are bounded by the caller alone
    IS_UNIX = False
else:
    IS_UNIX = True

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Message = tuple[dict[str, Any], list[bytes]]

_MAGIC = b"vela"
_HEAD = struct.Struct("<4sI")
_LOG = 1 << 20  # bytes that Vela may print
_RETIRED = 4  # a worker whose memory has reached this part of the limit takes no more graphs


def pack(fields: dict[str, Any], blobs: Sequence[bytes] = ()) -> list[bytes]:
    """A message: a length, fields as JSON, and bytes whose sizes are one of the fields."""
    text = json.dumps({**fields, "sizes": [len(blob) for blob in blobs]}).encode()
    return [_HEAD.pack(_MAGIC, len(text)) + text, *blobs]


def unpack(read: Callable[[int], bytes]) -> Message:
    """The next message of those that ``read(size)`` gives; ValueError if there is none such."""
    magic, size = _HEAD.unpack(read(_HEAD.size))
    if magic != _MAGIC:
        raise ValueError("a message begins otherwise")
    fields = json.loads(read(size))
    sizes = fields.pop("sizes") if isinstance(fields, dict) else None
    if not isinstance(sizes, list) or not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise ValueError("a message has sizes")
    return fields, [read(size) for size in sizes]


def compile_with(regor: Any, job: dict[str, Any], file: bytes) -> Message:
    """What Vela makes of a file, or its words."""
    try:
        made = regor.compile(
            job["architecture"], file, job["kind"], job["system"], options=job["options"],
            verbose=False,
        )  # fmt: skip
    except RuntimeError as problem:
        return {"refused": str(problem)}, []
    report, tables = made.perf_report, made.opt_database.tables if made.opt_database else {}
    fields = {
        "cpu_operators": report.cpuOps,
        "regions": {
            "weights_region": made.read_only.region,
            "scratch_size": made.scratch.size,
            "scratch_region": made.scratch.region,
            "scratch_fast_size": made.scratch_fast.size,
            "scratch_fast_region": made.scratch_fast.region,
        },
        "inputs": _places(made.inputs),
        "outputs": _places(made.outputs),
        "performance": {
            "npu_cycles": report.npuCycles,
            "total_cycles": report.totalCycles,
            "macs": report.macCount,
            "npu_operators": report.npuOps,
            "memories": {m.memoryName: m.peakUsage for m in report.memories.values()},
            "flash": report.readOnlyPeakUsage,
        },
        "database": {name: [t.header, t.data] for name, t in tables.items()},
    }
    return fields, [bytes(made.command_stream), bytes(made.read_only.data)]


def decode_with(job: dict[str, Any], file: bytes) -> Message:
    """Weights of the streams that a file joins, as Vela's codec decodes them, in 16 bits.

    The codec ends the process where it cannot.
    """
    import ctypes

    weights, start = [], 0
    try:
        codec, found = ctypes.CDLL(job["codec"]), ctypes.c_void_p()
        for size in job["streams"]:
            stream = file[start : start + size]
            start += size
            count = codec.mlw_decode(stream, size, ctypes.byref(found), 0)
            weights.append(ctypes.string_at(found, 2 * count))
            codec.mlw_free_outbuf(found)
    except (AttributeError, OSError) as problem:  # another Vela
        return {"refused": str(problem)}, []
    return {}, weights


def _places(tensors: Any) -> list[list[Any]]:
    return [[list(t.shape), t.element_size, t.address, t.region] for t in tensors]


def _connected(port: int, key: str) -> socket.socket:
    """A socket to the caller, which knows the key."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(key.encode())
    return made


def _main(module: str, memory: int, port: str = "", key: str = "") -> None:
    """Answer jobs until the caller closes the socket or ends."""
    if port:
        made = _connected(int(port), key)
    else:
        made = socket.socket(fileno=os.dup(0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    channel = made.fileno()
    if IS_UNIX:
        fcntl.fcntl(channel, fcntl.F_SETOWN, os.getpid())
        _limit(memory)
    with made.makefile("rb") as jobs, made.makefile("wb") as answers:
        regor = _load(module)
        _send(answers, {"ready": True})
        while True:
            try:
                job, (file,) = unpack(jobs.read)
            except struct.error:  # the end
                return
            _watch(channel, True)
            _alarm(job["seconds"])
            try:
                work = decode_with(job, file) if "codec" in job else compile_with(regor, job, file)
                fields, blobs = work
            except MemoryError:
                fields, blobs = {"out_of_memory": memory}, []
            _alarm(0)
            _watch(channel, False)
            _send(answers, {**fields, "last": _peak() > memory // _RETIRED}, blobs)


def _send(answers: Any, fields: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    for part in pack(fields, blobs):
        answers.write(part)
    answers.flush()


def _limit(memory: int) -> None:
    """Bound what Vela can take, and let the signals end it that are meant to."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGPROF, signal.SIGIO):
        signal.signal(number, signal.SIG_DFL)
    for kind, most in (
        (resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _LOG)
    ):  # fmt: skip
        hard = resource.getrlimit(kind)[1]
        with suppress(OSError, ValueError):  # macOS bounds no address spaces
            resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where a system runs out of memory, it is this process that ends


def _load(file: str) -> Any:
    loader = ExtensionFileLoader("ethosu.regor", file)
    module = module_from_spec(ModuleSpec("ethosu.regor", loader, origin=file))
    loader.exec_module(module)
    return module


def _alarm(seconds: float) -> None:
    """Let this process end after so many seconds of its own; 0 is never."""
    if IS_UNIX:
        signal.setitimer(signal.ITIMER_PROF, seconds)


def _watch(channel: int, is_on: bool) -> None:
    """While Vela runs, the end of the caller, which closes the socket, ends this process."""
    if not IS_UNIX:
        return
    flags = fcntl.fcntl(channel, fcntl.F_GETFL)
    fcntl.fcntl(channel, fcntl.F_SETFL, flags | os.O_ASYNC if is_on else flags & ~os.O_ASYNC)
    if is_on and select.select([channel], [], [], 0)[0]:  # it ended before: nothing else is to read
        raise SystemExit


def _peak() -> int:
    """The most memory that this process has had, in bytes; 0 where nobody tells.

    Linux counts the parent's memory in ru_maxrss, from before the worker's program was loaded.
    """
    if not IS_UNIX:
        return 0
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line.split()[1]) << 10 for line in status if "VmHWM" in line), 0)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])

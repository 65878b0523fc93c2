"""C programs on an emulated Cortex-M: built with arm-none-eabi-gcc, run by QEMU, and counted."""

from __future__ import annotations

import bisect
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from tosaic.errors import ToolFailed
from tosaic.sim.cortexm.boards import Board, board

COMPILER = "arm-none-eabi-gcc"
EMULATOR = "qemu-system-arm"
PACKAGES = "gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
HERE = resources.files("tosaic.sim.cortexm")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a program did: the files that it wrote, what it printed, and its instructions."""

    files: dict[str, bytes]
    printed: str
    instructions: int = 0
    """Executed between ``mark_start`` and ``mark_stop``; 0 if nothing was counted."""
    by_function: dict[str, int] = field(default_factory=dict)
    """Executed in each function of the program, start-up and all; most first."""
    entered: list[tuple[str, int]] = field(default_factory=list)
    """Each entry of a marked function, with the instructions executed before it."""
    text_bytes: int = 0
    """Size of code and constants of the program, start-up and all, weights apart."""


def missing() -> str | None:
    """Why nothing can run under QEMU here, in a sentence; None if it can."""
    absent = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
    if not absent:
        return None
    return f"{' and '.join(absent)} not found: install the packages {PACKAGES}"


def counting() -> str | None:
    """Why executed instructions cannot be counted here, in a sentence; None if they can."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        return "no C compiler for this machine was found: install the package gcc"
    return missing()


def run(
    core: str,
    sources: Mapping[str, str | bytes],
    files: Mapping[str, bytes],
    *,
    count: bool = False,
    marks: Sequence[str] = (),
    flags: Sequence[str] = ("-O2",),
    timeout: float = 600.0,
) -> Ran:
    """Build `sources` (file names with folders; ``.c`` and ``.S`` are compiled) with a ``main``
    that includes ``harness.h``, and run it in a folder that has `files`.

    With `count`, instructions are counted; `marks` are how the names of functions begin whose
    entries are listed.
    """
    chosen = board(core)
    reason = counting() if count else missing()
    if reason is not None:
        raise ToolFailed(reason)
    with tempfile.TemporaryDirectory(prefix="tosaic-qemu-") as name:
        folder = Path(name)
        elf = build(chosen, sources, folder, flags)
        symbols = _symbols(elf)
        work = folder / "work"
        work.mkdir()
        for path, content in files.items():
            (work / path).write_bytes(content)
        counts = folder / "counts"
        options = []
        if count:
            wanted = ("mark_start", "mark_stop", *marks)
            marked = [address for address, name in symbols if name.startswith(wanted)]
            options = ["-plugin", ",".join(
                [str(_plugin(folder)), f"out={counts}",
                 *(f"mark={address:#x}" for address in marked)]
            )]  # fmt: skip
        printed = _emulate(chosen, elf, work, options, timeout)
        written = {
            path.name: path.read_bytes() for path in work.iterdir() if path.name not in files
        }
        size = _text_bytes(elf)
        if not count:
            return Ran(written, printed, text_bytes=size)
        return Ran(written, printed, *_counted(counts, symbols), size)


def build(
    board: Board, sources: Mapping[str, str | bytes], folder: Path, flags: Sequence[str]
) -> Path:
    """The program's ELF file, in `folder`."""
    place = folder / "source"
    for path, content in sources.items():
        to = place / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content.encode() if isinstance(content, str) else content)
    for path in ("harness.h", "start.c"):
        (place / path).write_bytes(HERE.joinpath(path).read_bytes())
    (place / "board.ld").write_text(board.link_script(), encoding="utf-8")
    compiled = [path for path in (*sources, "start.c") if path.endswith((".c", ".S"))]
    elf = folder / "program.elf"
    objects = []
    common = [*board.flags, "-mthumb", "-ffunction-sections", "-fdata-sections"]
    for path in compiled:
        made = folder / (path.replace("/", "_") + ".o")
        _tool([COMPILER, *common, "-std=c99", "-I.", *flags, "-c", path, "-o", str(made)], place)
        objects.append(str(made))
    link = [
        "-nostartfiles",
        "-specs=nosys.specs",
        "-Wl,--gc-sections",
        "-Wl,--no-warn-rwx-segments",
    ]
    _tool([COMPILER, *common, *flags, *link, "-T", "board.ld", *objects, "-o", str(elf)], place)
    return elf


def _tool(command: Sequence[str], folder: Path, timeout: float = 600.0) -> str:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"{command[0]} took longer than {timeout:g} s") from None
    except OSError as problem:
        raise ToolFailed(f"{command[0]} cannot be run: {problem.strerror}") from None
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise ToolFailed(f"{' '.join(command)} failed with status {done.returncode}:\n{last}")
    return done.stdout + done.stderr


def _emulate(board: Board, elf: Path, work: Path, options: Sequence[str], timeout: float) -> str:
    command = [
        EMULATOR, "-M", board.machine, "-nographic", "-monitor", "none", "-serial", "none",
        "-semihosting-config", "enable=on,target=native", *options, "-kernel", str(elf),
    ]  # fmt: skip
    return _tool(command, work, timeout)


def _plugin(folder: Path) -> Path:
    """The counting plugin, compiled for this machine."""
    made = folder / "libcount.so"
    with resources.as_file(HERE.joinpath("count.c")) as source:
        compiler = "gcc" if shutil.which("gcc") else "cc"
        _tool([compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(made)], folder)
    return made


def _symbols(elf: Path) -> list[tuple[int, str]]:
    """Functions by address, without the Thumb bit."""
    lines = _tool([COMPILER.replace("gcc", "nm"), str(elf)], elf.parent).splitlines()
    rows = (line.split() for line in lines)
    return sorted(
        (int(row[0], 16) & ~1, row[2]) for row in rows if len(row) == 3 and row[1] in "tT"
    )


def _text_bytes(elf: Path) -> int:
    lines = _tool([COMPILER.replace("gcc", "size"), "-A", str(elf)], elf.parent).splitlines()
    rows = [line.split() for line in lines]
    return sum(int(row[1]) for row in rows if row and row[0] == ".text")


def _counted(
    path: Path, symbols: list[tuple[int, str]]
) -> tuple[int, dict[str, int], list[tuple[str, int]]]:
    addresses = [address for address, _ in symbols]
    names = dict(symbols)
    by_function: Counter[str] = Counter()
    entered: list[tuple[str, int]] = []
    for kind, address, number in _lines(path):
        if kind == "mark":
            entered.append((names[address], number))
        else:
            at = bisect.bisect_right(addresses, address) - 1
            by_function[symbols[at][1] if at >= 0 else "?"] += number
    at_marks = [number for name, number in entered if name in ("mark_start", "mark_stop")]
    counted = sum(b - a for a, b in zip(at_marks[::2], at_marks[1::2]))
    return counted, dict(by_function.most_common()), entered


def _lines(path: Path) -> Iterator[tuple[str, int, int]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise ToolFailed(f"{EMULATOR} did not take the counting plugin") from None
    for line in text.splitlines():
        kind, address, number = line.split()
        yield kind, int(address, 16), int(number)

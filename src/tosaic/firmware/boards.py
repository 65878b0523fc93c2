"""Boards as data: core, memories, NPU and what emulates them, each read from a TOML file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.firmware import toml
from tosaic.firmware.toml import Table
from tosaic.targets.cortexm.cores import CORES

HERE = resources.files("tosaic.firmware") / "boards"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LARGEST = 1 << 32
_STACK = 8 << 10
_LIMITS = (0x1F3F0000, 0x1F3F0000, 0x0F1F0000, 0x0F1F0000)  # of outstanding transfers
_TIMEOUT = 10_000


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory: ``rank`` is how slow it is, ``port`` the NPU's way to it, None if there is none.

    ``boots`` marks the one with the vector table, ``is_flash`` one that cannot be written.
    """

    name: str
    address: int
    size: int
    rank: int
    port: int | None = None
    boots: bool = False
    is_flash: bool = False
    emulated: int | None = None
    emulated_size: int | None = None

    @property
    def end(self) -> int:
        return self.address + self.size


@dataclass(frozen=True, slots=True)
class Npu:
    """An NPU: the products that it may be, where its registers are, and its interrupt.

    ``access`` are the bits of its reset: 1 privileged, 2 non-secure. ``limits`` are the registers
    that limit its traffic, ``timeout`` is in milliseconds.
    """

    kinds: tuple[str, ...]
    base: int
    interrupt: int
    access: int
    limits: tuple[int, ...]
    timeout: int


@dataclass(frozen=True, slots=True)
class Emulator:
    """QEMU's machine: its core, and the memory that it shares with the simulated NPU."""

    machine: str
    core: str
    shared: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Board:
    """A board without an operating system, or ``is_linux``: any core, one memory, no addresses."""

    name: str
    about: str
    core: str
    clock: int
    stack: int
    has_cache: bool
    memories: tuple[Memory, ...]
    npu: Npu | None
    emulator: Emulator | None
    is_linux: bool = False

    @property
    def boot(self) -> Memory:
        return next(each for each in self.memories if each.boots)


def names() -> list[str]:
    """The boards that come with Tosaic."""
    found = (each.name for each in HERE.iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def board_of(name: str) -> Board:
    """A board by its name, or from a file of the user's; InvalidInput says what is wrong in it."""
    if name in names():
        return parse((HERE / f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")
    if not name.endswith(".toml"):
        known = ", ".join(names())
        raise InvalidInput(f"there is no board '{name}'; there are {known}, or give a .toml file")
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = getattr(problem, "strerror", None) or problem
        raise InvalidInput(f"the board file '{name}' cannot be read: {why}") from None
    return parse(text, name)


def parse(text: str, file: str) -> Board:
    """A board from the text of its file; InvalidInput names the line."""
    tables = toml.read(text, file)
    top = tables[""][0]
    for name, several in tables.items():
        if name not in ("", "npu", "memory", "emulator"):
            raise several[0].refuse(f"a board has no table '{name}': npu, memory and emulator")
    _known(top, "about system core clock stack cache")
    is_linux = "system" in top.values
    if is_linux and (top.values["system"], top.values.get("core", "c")) != ("linux", "c"):
        raise top.refuse("a system is 'linux', with the core 'c'", "system")
    core = "c" if is_linux else _core(top, "core")
    memories = tuple(_memory(table) for table in tables.get("memory", []))
    if not is_linux:
        _check_memories(top, tables.get("memory", []), memories)
    elif memories:
        raise tables["memory"][0].refuse("Linux has one memory for all: a board with it has none")
    stack = _size(top, "stack", _STACK)
    if stack % 8 or not 256 <= stack <= _LARGEST:
        raise top.refuse("the stack is a multiple of 8 bytes, and at least 256", "stack")
    name = re.sub(r"[^\w.-]", "_", Path(file).name.removesuffix(".toml"))
    return Board(
        name, _text(top, "about", ""), core,
        _number(top, "clock", 1_000_000_000, least=1000), stack, _flag(top, "cache"), memories,
        _only(tables, "npu", _npu, core), _only(tables, "emulator", _emulator, core), is_linux,
    )  # fmt: skip


def _only(tables: Mapping[str, Sequence[Table]], name: str, make: Any, core: str) -> Any:
    several = tables.get(name, [])
    if len(several) > 1:
        raise several[1].refuse(f"there are two tables '{name}'")
    return make(several[0], core) if several else None


def _memory(table: Table) -> Memory:
    _known(table, "name address size rank port boots flash emulated emulated_size")
    name = _text(table, "name")
    if not re.fullmatch("[a-z][a-z0-9_]{0,30}", name):  # a name of a linker script that is free
        raise table.refuse(f"a memory's name is a word in small letters, not '{name}'", "name")
    address, size = _number(table, "address"), _size(table, "size")
    if size <= 0 or address + size > _LARGEST or address % 16:
        raise table.refuse(f"{name} has {size} bytes at {address:#x}, which no core has", "size")
    port = _number(table, "port", 3) if "port" in table.values else None
    emulated = _number(table, "emulated") if "emulated" in table.values else None
    return Memory(
        name, address, size, _number(table, "rank", 99), port, _flag(table, "boots"),
        _flag(table, "flash"), emulated, _size(table, "emulated_size", size),
    )  # fmt: skip


def _check_memories(top: Table, tables: Sequence[Table], memories: Sequence[Memory]) -> None:
    if sum(each.boots for each in memories) != 1:
        raise top.refuse("one memory has 'boots = true': that with the vector table")
    for at, (table, memory) in enumerate(zip(tables, memories)):
        for other in memories[:at]:
            if memory.name == other.name:
                raise table.refuse(f"there are two memories '{memory.name}'", "name")
            if memory.address < other.end and other.address < memory.end:
                raise table.refuse(
                    f"{memory.name} from {memory.address:#x} to {memory.end:#x} overlaps "
                    f"{other.name} from {other.address:#x} to {other.end:#x}", "address",
                )  # fmt: skip
    if all(each.is_flash for each in memories):
        raise top.refuse("no memory can be written: one is not 'flash = true'")


def _npu(table: Table, core: str) -> Npu:
    _known(table, "kinds base interrupt access limits timeout")
    kinds = table.values.get("kinds")
    products = ("ethos-u55", "ethos-u65", "ethos-u85")
    if not isinstance(kinds, list) or not kinds or any(
        not str(kind).startswith(products) for kind in kinds
    ):  # fmt: skip
        raise table.refuse("kinds are a list such as ['ethos-u55', 'ethos-u65']", "kinds")
    limits = table.values.get("limits", list(_LIMITS))
    if not isinstance(limits, list) or len(limits) != 4 or not all(
        isinstance(each, int) and 0 <= each < _LARGEST for each in limits
    ):  # fmt: skip
        raise table.refuse("limits are four registers", "limits")
    base = _number(table, "base")
    if base % 4096:
        raise table.refuse(f"the NPU's base {base:#x} is no multiple of 4096", "base")
    return Npu(
        tuple(kinds), base, _number(table, "interrupt", 479),
        _number(table, "access", 3) if "access" in table.values else 3, tuple(limits),
        _number(table, "timeout", 1 << 30, least=1) if "timeout" in table.values else _TIMEOUT,
    )  # fmt: skip


def _emulator(table: Table, core: str) -> Emulator:
    _known(table, "machine core shared size")
    shared = _number(table, "shared") if "shared" in table.values else 0
    size = _size(table, "size", 0)
    if shared % 4096 or shared + size > _LARGEST:
        raise table.refuse(f"no {size} bytes can be shared at {shared:#x}", "shared")
    return Emulator(
        _text(table, "machine"), _core(table, "core") if "core" in table.values else core, shared,
        size,
    )  # fmt: skip


def _known(table: Table, keys: str) -> None:
    for key in table.values:
        if key not in keys.split():
            raise table.refuse(f"'{key}' is not known here: {', '.join(keys.split())} are", key)


def _core(table: Table, key: str) -> str:
    name = _text(table, key)
    if name not in CORES or not CORES[name].cpu:
        known = ", ".join(core.name for core in CORES.values() if core.cpu)
        raise table.refuse(f"'{name}' is no core that is known: {known}", key)
    return name


def _text(table: Table, key: str, default: str | None = None) -> str:
    value = table.values.get(key, default)
    if not isinstance(value, str):
        raise table.refuse(f"'{key}' is missing or no text in quotes", key)
    return value


def _flag(table: Table, key: str) -> bool:
    value = table.values.get(key, False)
    if not isinstance(value, bool):
        raise table.refuse(f"'{key}' is true or false, not {value!r}", key)
    return value


def _number(table: Table, key: str, most: int = _LARGEST - 1, least: int = 0) -> int:
    value = table.values.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise table.refuse(f"'{key}' is missing or no number from {least} to {most}", key)
    return value


def _size(table: Table, key: str, default: int | None = None) -> int:
    """Bytes, as a number or as '512K'."""
    value = table.values.get(key, default)
    if isinstance(value, str):
        digits = value.rstrip("KMG")
        unit = _UNITS.get(value[len(digits) :])
        value = int(digits) * unit if digits.isdigit() and unit is not None else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise table.refuse(f"'{key}' is missing or no size such as 4096 or '512K'", key)
    return value

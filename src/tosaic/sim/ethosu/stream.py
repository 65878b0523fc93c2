"""From the bytes of a driver payload to the commands of its stream.

A payload is a list of driver actions: a mark, the configuration it was compiled for, fillers, and
the command stream with its length. All lengths come from the file, so all are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.sim.ethosu import registers
from tosaic.sim.ethosu.arrays import Array

_CONFIG, _STREAM, _NOP = 1, 2, 5
_SECTION, _METADATA = 1, int.from_bytes(b"VEUM", "little")
_PRODUCTS = ("U55", "U65", "U85")
_MACS = {"U55": (32, 64, 128, 256), "U65": (256, 512), "U85": (128, 256, 512, 1024, 2048)}


@dataclass(frozen=True, slots=True)
class Config:
    """The NPU that a stream was compiled for."""

    product: str
    macs: int
    cores: int
    shram: int
    """Bytes of the shared buffer of a core; 0 on U85."""

    @property
    def name(self) -> str:
        return f"ethos-{self.product.lower()}-{self.macs}"

    @property
    def is_u85(self) -> bool:
        return self.product == "U85"


@dataclass(slots=True, unsafe_hash=True)  # by the ten thousand, and frozen ones take longer
class Command:
    """One command: what it does or the register it sets, and its bits."""

    index: int
    offset: int
    """Where it stands in the stream, in bytes."""
    name: str
    param: int
    payload: int | None

    @property
    def is_operation(self) -> bool:
        return self.name in registers.OPERATIONS

    @property
    def value(self) -> int:
        """All bits as one number: the payload, with the 16 bits of the command above it."""
        return self.param if self.payload is None else self.param << 32 | self.payload

    def __str__(self) -> str:
        kind = "NPU_OP_" if self.is_operation else "NPU_SET_"
        return f"{kind}{self.name}"

    @property
    def place(self) -> str:
        return f"command {self.index}, {self}, at offset {self.offset:#x} of the stream"


@dataclass(frozen=True)
class Stream:
    """A decoded command stream."""

    config: Config
    commands: tuple[Command, ...]

    @cached_property
    def by_offset(self) -> dict[int, int]:
        """The index of the command that starts at an offset, for branches."""
        return {command.offset: command.index for command in self.commands}


def decode(payload: bytes) -> Stream:
    """The command stream in a driver payload."""
    return decode_words(*words_of(payload))


def decode_words(config: Config, words: Array) -> Stream:
    """A command stream without the driver's actions, for an NPU."""
    short, long = (
        (registers.SHORT_U85, registers.LONG_U85)
        if config.is_u85
        else (registers.SHORT_U55, registers.LONG_U55)
    )
    commands: list[Command] = []
    values = words.tolist()
    position = 0
    while position < len(values):
        word = values[position]
        code, control, param = word & 0x3FF, word >> 14 & 3, word >> 16
        offset, extra = 4 * position, None
        if control > 1 or word >> 10 & 0xF:
            raise InvalidInput(f"the word {word:#010x} is no command", _where(offset))
        name = (long if control else short).get(code)
        if name is None:
            kind = "with" if control else "without"
            reason = f"{config.product} has no command {code:#05x} {kind} payload"
            raise InvalidInput(reason, _where(offset))
        if control:
            position += 1
            if position == len(values):
                reason = f"the stream ends before the payload of {name}"
                raise InvalidInput(reason, _where(offset))
            extra = values[position]
        position += 1
        commands.append(Command(len(commands), offset, name, param, extra))
    return Stream(config, tuple(commands))


def _where(offset: int) -> str:
    return f"offset {offset:#x} of the command stream"


def words_of(payload: bytes) -> tuple[Config, Array]:
    """The configuration and the words of the command stream, of either container."""
    read = {b"COP1": _actions_1, b"COP2": _actions_2}.get(payload[:4])
    if read is None:
        raise InvalidInput("this is no driver payload: it does not begin with COP1 or COP2")
    if len(payload) % 4:
        raise InvalidInput(f"a driver payload has whole words, this one has {len(payload)} bytes")
    return read(np.frombuffer(payload, "<u4"))


def _actions_1(words: Array) -> tuple[Config, Array]:
    """A list of actions: the configuration, fillers, the stream."""
    config: Config | None = None
    position = 1
    while position < len(words):
        word = int(words[position])
        action = word & 0xFF
        if action == _CONFIG:
            if position + 2 >= len(words):
                raise InvalidInput("the driver payload ends within its configuration")
            config = config_of(int(words[position + 1]))
            position += 3
        elif action == _NOP:
            position += 1
        elif action == _STREAM:
            if config is None:
                raise InvalidInput("the driver payload has a command stream and no configuration")
            count = (word >> 8 & 0xFF) << 16 | word >> 16
            found = words[position + 1 :]
            if count > len(found):
                raise InvalidInput(
                    f"the command stream is to have {count} words, the payload holds {len(found)}"
                )
            return config, found[:count]
        else:
            raise Unsupported(f"the driver action {word:#010x} is not known", f"word {position}")
    raise InvalidInput("the driver payload has no command stream")


def _actions_2(words: Array) -> tuple[Config, Array]:
    """A header of four words, then one section: metadata with the configuration, the stream."""
    if len(words) < 16:
        raise InvalidInput("the driver payload ends within its header")
    version, size, kind, length, metadata, mark = (int(words[i]) for i in (1, 2, 4, 5, 6, 7))
    if (version, kind, mark) != (1, _SECTION, _METADATA):
        raise Unsupported(f"a COP2 payload of version {version} with a section of kind {kind}")
    start, stop = 7 + metadata // 4, 6 + length // 4
    if size != 4 * len(words) - 16 or length % 4 or metadata % 4 or metadata < 16:
        raise InvalidInput("the sizes in the header of the COP2 payload do not fit it")
    if not 12 <= start <= stop <= len(words):
        raise InvalidInput("the command stream lies outside of its COP2 payload")
    return config_of(int(words[10])), words[start:stop]


def config_of(word: int) -> Config:
    """The NPU that a configuration register names."""
    product, macs = word >> 28, 1 << (word & 0xF)
    if product >= len(_PRODUCTS) or macs not in _MACS[_PRODUCTS[product]]:
        raise InvalidInput(f"the configuration word {word:#010x} names no Ethos-U that exists")
    name = _PRODUCTS[product]
    if name == "U85":
        return Config(name, macs, 1 << (word >> 12 & 3), 0)
    cores = 2 if (name, macs) == ("U65", 512) else 1
    return Config(name, macs, cores, ((word >> 8 & 0xFF) << 10) // cores)

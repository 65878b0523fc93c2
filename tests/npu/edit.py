"""Compiled streams with single commands changed by name."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from npu.configurations import Configuration, compile_stream
from npu.families import Case, case
from tosaic.sim.ethosu.stream import Command, decode
from tosaic.targets.ethosu.vela import VelaResult

PLAIN = {
    "u55": Configuration("u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "u85": Configuration("u85-256", "Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
}


@cache
def compiled(name: str, machine: str, index: int = 0) -> tuple[Case, VelaResult]:
    """A graph of a family on a common machine, in the plain payload."""
    given = case(name, machine, index)
    return given, compile_stream(given.data, PLAIN[machine])


def commands(result: VelaResult) -> tuple[Command, ...]:
    return decode(result.command_stream).commands


def find(result: VelaResult, name: str, nth: int = 0) -> Command:
    """The nth command of a name; a negative number counts from the end."""
    return [c for c in commands(result) if c.name == name][nth]


def edited(
    result: VelaResult, command: Command, *, value: int | None = None, word: int | None = None
) -> VelaResult:
    """The result with another value in a command, or another first word instead of it."""
    words = np.frombuffer(result.command_stream, "<u4").copy()
    head = len(words) - 1 - commands(result)[-1].offset // 4
    at = head + command.offset // 4
    if word is not None:
        words[at] = word
    if value is not None and command.payload is None:
        words[at] = int(words[at]) & 0xFFFF | value << 16
    elif value is not None:
        words[at] = int(words[at]) & 0xFFFF | value >> 32 << 16
        words[at + 1] = value & 0xFFFFFFFF
    return replace(result, command_stream=words.tobytes())

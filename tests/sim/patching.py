"""Small compiled graphs, and single commands of them changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from npu.families import Case, case
from tosaic.sim.ethosu.stream import Command, decode
from tosaic.targets.ethosu.vela import VelaConfig, VelaResult, run_vela

HEAD = 8
"""Words of a COP1 payload before the first command."""


@dataclass(frozen=True)
class Compiled:
    """A graph of a family, with what Vela makes of it."""

    given: Case
    result: VelaResult

    def commands(self, name: str) -> list[Command]:
        stream = decode(self.result.command_stream)
        return [command for command in stream.commands if command.name == name]

    def patched(self, change: Callable[[np.ndarray], None]) -> VelaResult:
        words = np.frombuffer(self.result.command_stream, "<u4").copy()
        change(words[HEAD:])
        return replace(self.result, command_stream=words.tobytes())

    def with_register(self, name: str, value: int, which: int = 0) -> VelaResult:
        """One register gets another value: its payload, or the 16 bits of a short one."""
        command = self.commands(name)[which]

        def change(words: np.ndarray) -> None:
            place = command.offset // 4
            if command.payload is None:
                words[place] = words[place] & 0xFFFF | value << 16
            else:
                words[place + 1] = value

        return self.patched(change)

    def without(self, name: str) -> VelaResult:
        """All commands of a name become ones without effect."""
        places = [command.offset // 4 for command in self.commands(name)]

        def change(words: np.ndarray) -> None:
            words[places] = 0x13  # NPU_OP_PMU_MASK

        return self.patched(change)


@cache
def compiled(family: str, accelerator: str, index: int = 3, **flags: Any) -> Compiled:
    given = case(family, accelerator[:3].replace("u65", "u55"), index)
    config = VelaConfig(f"ethos-{accelerator}", flags=tuple(flags.get("flags", ())))
    return Compiled(given, run_vela(given.data, config))

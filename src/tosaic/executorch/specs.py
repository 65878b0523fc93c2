"""Compile specs: what to compile for, under the names that users of ExecuTorch know."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.spec.env import Env
from tosaic.targets.vela import VelaConfig

_KEY = "target"


@dataclass(frozen=True, slots=True)
class LinuxOptions:
    """What ExecuTorch's runtime on Linux reads of an Ethos-U delegate; None leaves its default."""

    device: str | None = None
    timeout_ns: int | None = None
    enable_cycle_counter: bool | None = None
    pmu_events: tuple[int, ...] = ()

    def entries(self) -> list[tuple[str, bytes]]:
        """Keys and the bytes that the runtime expects behind each."""
        found: list[tuple[str, bytes]] = []
        if self.device is not None:
            found.append(("ethosu.device", self.device.encode()))
        if self.timeout_ns is not None:
            found.append(("ethosu.timeout_ns", _packed("<q", "timeout_ns", self.timeout_ns)))
        if self.enable_cycle_counter is not None:
            found.append(("ethosu.enable_cycle_counter", bytes([self.enable_cycle_counter])))
        for number, event in enumerate(self.pmu_events):
            found.append((f"ethosu.pmu_event{number}", _packed("<I", "a PMU event", event)))
        return found


def _packed(form: str, name: str, value: int) -> bytes:
    try:
        return struct.pack(form, value)
    except struct.error:
        raise InvalidInput(f"{name} does not fit the runtime's type: {value!r}") from None

"""Arm Ethos-U as targets: eleven configurations of three products, compiled by Vela."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tosaic.targets.family import Family

if TYPE_CHECKING:
    from tosaic.lowering.target import Target

_U55 = ("Ethos_U55_High_End_Embedded", "Shared_Sram")
_U65 = ("Ethos_U65_High_End", "Dedicated_Sram_384KB")
_U85 = ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only")
# Accelerator: multiply-accumulates of a core in a cycle, cores, default system and memory.
ACCELERATORS: dict[str, tuple[int, int, tuple[str, str]]] = {
    "ethos-u55-32": (32, 1, _U55),
    "ethos-u55-64": (64, 1, _U55),
    "ethos-u55-128": (128, 1, _U55),
    "ethos-u55-256": (256, 1, _U55),
    "ethos-u65-256": (256, 1, _U65),
    "ethos-u65-512": (256, 2, _U65),
    "ethos-u85-128": (128, 1, _U85),
    "ethos-u85-256": (256, 1, _U85),
    "ethos-u85-512": (512, 1, _U85),
    "ethos-u85-1024": (1024, 1, _U85),
    "ethos-u85-2048": (2048, 1, _U85),
}


def _about(macs: int, cores: int, defaults: tuple[str, str]) -> str:
    return f"{macs * cores} multipliers; {', '.join(defaults)} unless told otherwise"


def _make(name: str, options: Mapping[str, Any]) -> Target:
    from tosaic.targets.ethosu.target import with_options

    return with_options(name, options)


FAMILY = Family(
    {name: _about(*row) for name, row in ACCELERATORS.items()},
    _make,
    kinds={"ethos-u55-128": "U55 and U65", "ethos-u65-256": "", "ethos-u85-256": "U85"},
)

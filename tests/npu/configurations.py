"""The NPU configurations that tests rotate through, and Vela in this process for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

ACCELERATORS = {
    "u55": ("u55-32", "u55-64", "u55-128", "u55-256", "u65-256", "u65-512"),
    "u85": ("u85-128", "u85-256", "u85-512", "u85-1024", "u85-2048"),
}
_SYSTEMS = {
    "u55": (
        ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
        ("Ethos_U55_Deep_Embedded", "Shared_Sram"),
        ("Ethos_U55_High_End_Embedded", "Sram_Only"),
    ),
    "u65": (
        ("Ethos_U65_High_End", "Dedicated_Sram_384KB"),
        ("Ethos_U65_Embedded", "Shared_Sram"),
        ("Ethos_U65_Mid_End", "Dedicated_Sram_256KB"),
        ("Ethos_U65_Client_Server", "Dedicated_Sram_512KB"),
        ("Ethos_U65_High_End", "Sram_Only"),
    ),
    "u85": (
        ("Ethos_U85_SYS_DRAM_Mid", "Sram_Only"),
        ("Ethos_U85_SYS_DRAM_Low", "Dedicated_Sram_384KB"),
        ("Ethos_U85_SYS_Flash_High", "Shared_Sram"),
        ("Ethos_U85_SYS_DRAM_High", "Dedicated_Sram"),
        ("Ethos_U85_SYS_Flash_Low", "Sram_Only"),
    ),
}
_ARENAS = (None, None, 8 << 10, 3 << 10)  # little memory makes Vela cascade and buffer weights
CORES = {"u65-512": 2}


@dataclass(frozen=True, slots=True)
class Configuration:
    """One NPU with its memories, and what Vela optimises for."""

    accelerator: str
    system: str
    memory_mode: str
    optimise: str
    arena: int | None = None

    def __str__(self) -> str:
        arena = f" arena {self.arena}" if self.arena else ""
        return f"{self.accelerator} {self.system} {self.memory_mode} {self.optimise}{arena}"


def configuration(machine: str, index: int) -> Configuration:
    """The index-th of all combinations, each dimension turning at its own pace."""
    accelerators = ACCELERATORS[machine]
    turn, which = divmod(index, len(accelerators))
    name = accelerators[which]
    system, memory_mode = _SYSTEMS[name[:3]][turn % len(_SYSTEMS[name[:3]])]
    optimise = ("Performance", "Size")[(index + turn) % 2]
    return Configuration(name, system, memory_mode, optimise, _ARENAS[(index // 2) % 4])


@cache
def _ini() -> str:
    return (files("ethosu") / "config_files" / "Arm" / "vela.ini").read_text()


def compile_stream(graph: bytes, where: Configuration) -> Any:
    """What Vela makes of a serialized graph; RuntimeError if it does not run on the NPU alone."""
    from ethosu import regor

    kind, macs = where.accelerator.split("-")
    cores = CORES.get(where.accelerator, 1)
    system = (
        f"[architecture]\nmacs={int(macs) // cores}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={where.system}\nmemory_mode_name={where.memory_mode}\n"
    )
    arena = f"arena_size_limit={where.arena}\n" if where.arena else ""
    options = (
        f"[compiler]\noutput_format=Raw\ncop_format=COP1\n"
        f"[scheduler]\noptimize={where.optimise}\n{arena}"
    )
    return regor.compile(f"Ethos{kind.upper()}", graph, "TOSA", system + _ini(), options=options)

"""The NPU configurations that tests rotate through, and Vela in this process for each."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.targets.ethosu.vela import VelaConfig, VelaResult, run_vela

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
_FLAGS: tuple[tuple[str, ...], ...] = (
    (), (), ("--disable-fwd",), (), ("--disable-chaining",), ("--separate-io-regions",), (),
    ("--disable-buffering",), ("--cop-format=COP2",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """One NPU with its memories, and what Vela is asked for."""

    accelerator: str
    system: str
    memory_mode: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.accelerator, self.system, self.memory_mode, *self.flags))


def configuration(machine: str, index: int, dedicated: bool = True) -> Configuration:
    """The index-th of all combinations, each dimension turning at its own pace."""
    accelerators = ACCELERATORS[machine]
    turn, which = divmod(index, len(accelerators))
    name = accelerators[which]
    systems = [s for s in _SYSTEMS[name[:3]] if dedicated or not s[1].startswith("Dedicated")]
    system, memory_mode = systems[turn % len(systems)]
    flags = ["--optimise=" + ("Performance", "Size")[turn % 2]]
    arena = _ARENAS[(index // 2) % 4]
    flags += [f"--arena-cache-size={arena}"] if arena else []
    flags += _FLAGS[index % len(_FLAGS)]
    return Configuration(name, system, memory_mode, tuple(flags))


def compile_stream(graph: bytes, where: Configuration) -> VelaResult:
    """What Vela makes of a serialized graph; ToolFailed if it does not run on the NPU alone."""
    config = VelaConfig(
        f"ethos-{where.accelerator}", where.system, where.memory_mode, flags=where.flags
    )
    return run_vela(graph, config)

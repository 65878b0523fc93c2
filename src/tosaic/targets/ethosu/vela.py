"""Vela: a TOSA file becomes a command stream for an Ethos-U.

Vela's own command line wraps ``regor.compile``; so does this, without files and in a process that
stays. Texts of its options are Vela's; what they must say is measured with version 5.2.
"""

from __future__ import annotations

import configparser
import importlib.util
import math
import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput, ToolFailed, first_line
from tosaic.sim.ethosu.velabin import Boundary, Stream
from tosaic.targets.ethosu import ACCELERATORS, vela_processes
from tosaic.targets.ethosu.vela_processes import MALFORMED, UNREADABLE, Answer, WorkerLost

# The options of Vela's command line that have a meaning in-process: section and key of Regor.
_OPTIONS = {
    "optimise": ("scheduler", "optimize"),
    "arena-cache-size": ("scheduler", "arena_size_limit"),
    "cop-format": ("compiler", "cop_format"),
    "separate-io-regions": ("scheduler", "separate_io_regions"),
    "cpu-tensor-alignment": ("scheduler", "cpu_tensor_alignment"),
    "tensor-allocator": ("scheduler", "tensor_allocator"),
    "enable-debug-db": ("compiler", "enable_db"),
    "verbose-register-command-stream": ("compiler", "verbose_register_command_stream"),
}
# What prints, and what is so anyway.
_SILENT = frozenset({"timing", "show-cpu-operations", "show-subgraph-io-summary",
                     "debug-force-regor"})  # fmt: skip
_INI = "Arm/vela.ini"  # comes with Vela
_RAW = ("output-format", "raw")
_FEATURES = {
    "disable-chaining": "Grouping",
    "disable-fwd": "FWD",
    "disable-cascading": "Cascading",
    "disable-buffering": "WeightBuffering",
    "disable-ifm-reuse": "ReuseIFM",
}
_MEMORIES = ("sram", "dram", "onchipflash", "offchipflash")
_ADDRESSES = {"ethos-u55": 1 << 32, "ethos-u65": 1 << 40, "ethos-u85": 1 << 40}


@dataclass(frozen=True, slots=True)
class VelaConfig:
    """What Vela compiles for. ``flags`` are those of its command line, as ``--optimise=Size``."""

    accelerator: str = "ethos-u55-128"
    system_config: str = ""
    memory_mode: str = ""
    ini: str = ""
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.accelerator not in ACCELERATORS:
            known = ", ".join(ACCELERATORS)
            raise InvalidInput(f"there is no accelerator {self.accelerator!r}; there are {known}")

    @property
    def has_dedicated_sram(self) -> bool:
        """Whether the memory mode, by its name, gives the NPU fast memory of its own."""
        mode = self.memory_mode or ACCELERATORS[self.accelerator][2][1]
        return mode.startswith("Dedicated_Sram")

    @property
    def addresses(self) -> int:
        """How many bytes it can address."""
        return _ADDRESSES[self.accelerator.rpartition("-")[0]]

    @property
    def architecture(self) -> str:
        """Regor's name of the product: EthosU55, EthosU65 or EthosU85."""
        return "EthosU" + self.accelerator.split("-")[1][1:]


@dataclass(frozen=True, slots=True)
class Performance:
    """Vela's estimate. Memories are bytes at the peak, by Vela's name of the memory."""

    npu_cycles: int
    total_cycles: int
    macs: int
    npu_operators: int
    memories: Mapping[str, int]
    flash: int


@dataclass(frozen=True, slots=True)
class VelaResult:
    """A compiled graph: the very bytes that a device gets, and what Vela says of them."""

    accelerator: str
    command_stream: bytes
    weights: bytes
    weights_region: int
    scratch_size: int
    scratch_region: int
    scratch_fast_size: int
    scratch_fast_region: int
    inputs: tuple[Boundary, ...]
    outputs: tuple[Boundary, ...]
    performance: Performance
    database: Mapping[str, Table] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        """What a delegate holds of it."""
        return Stream(
            self.command_stream, self.weights, self.scratch_size, self.inputs, self.outputs
        )


@dataclass(frozen=True, slots=True)
class Table:
    """A table of Vela's debug database."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class VelaLost(ToolFailed):
    """Vela ends, does not finish or gives no answer; ``how`` is without the way to repeat it."""

    def __init__(self, reason: str, how: str, is_slow: bool) -> None:
        super().__init__(reason)
        self.how = how
        self.is_slow = is_slow  # each try takes as long


def run_vela(file: bytes, config: VelaConfig, kind: str = "TOSA") -> VelaResult:
    """Compile a file wholly for the NPU; ToolFailed with Vela's words if it does not.

    ``kind`` is TFLITE for a file of TensorFlow's: what it costs can so be seen beside ours.
    """
    (found,) = run_many([file], config, kind)
    if isinstance(found, ToolFailed):
        raise found
    return found


def run_many(
    files: Sequence[bytes], config: VelaConfig, kind: str = "TOSA"
) -> list[VelaResult | ToolFailed]:
    """Compile several files at once, on all cores; a ToolFailed for each that Vela does not."""
    fields = {
        "architecture": config.architecture, "kind": kind, "system": _system(config),
        "options": _options(config),
    }  # fmt: skip
    answers = vela_processes.run([vela_processes.Job(file, fields) for file in files])
    return [_result(answer, file, config, kind) for answer, file in zip(answers, files)]


def _result(
    answer: Answer | WorkerLost, file: bytes, config: VelaConfig, kind: str
) -> VelaResult | ToolFailed:
    if not isinstance(answer, WorkerLost):
        try:
            return _read(answer, config)
        except MALFORMED:
            answer = WorkerLost(UNREADABLE)
    said = f" ({answer.words})" if answer.words else ""
    place = f"on the graph for {config.accelerator}{said}"
    how = f"Vela {answer} {place}"
    return VelaLost(f"{how}; {_kept(file, config, kind)}", how, answer.is_slow)


def _read(answer: Answer, config: VelaConfig) -> VelaResult | ToolFailed:
    fields, blobs = answer
    if "refused" in fields:
        words = " ".join(fields["refused"].split())
        return ToolFailed(f"Vela does not compile the graph for {config.accelerator}: {words}")
    if fields["cpu_operators"]:
        return ToolFailed(f"Vela leaves {fields['cpu_operators']} operators to the CPU")
    database = {
        name: Table(tuple(header), tuple(map(tuple, rows)))
        for name, (header, rows) in fields["database"].items()
    }
    command_stream, weights = blobs
    return VelaResult(
        config.accelerator, command_stream, weights, **fields["regions"],
        inputs=_placed(fields["inputs"]), outputs=_placed(fields["outputs"]),
        performance=Performance(**fields["performance"]), database=database,
    )  # fmt: skip


def _kept(file: bytes, config: VelaConfig, kind: str) -> str:
    """Keep a graph that Vela is lost on: the command that repeats it."""
    system, memory = _names(config)
    name = f"{sha256(file).hexdigest()[:12]}.{kind.lower()}"
    try:
        if not os.path.isdir(_folder()):
            _folder.cache_clear()
        path = Path(_folder()) / name
        path.write_bytes(file)
    except OSError as problem:
        return f"the graph cannot be kept: {first_line(problem)}"
    words = [
        "vela", f"--accelerator-config={config.accelerator}", f"--config={config.ini or _INI}",
        f"--system-config={system}", f"--memory-mode={memory}", "--output-format=raw",
        *config.flags, str(path),
    ]  # fmt: skip
    return f"to repeat it: {shlex.join(words)}"


@cache
def _folder() -> str:
    """Where graphs are kept that Vela is lost on: a folder of this process, and its user's own."""
    return tempfile.mkdtemp(prefix="tosaic-vela-")


def check(config: VelaConfig) -> None:
    """InvalidInput if Vela's configuration file, or a name or flag in the config, is wrong."""
    _system(config)
    _check_memories(config)
    _options(config)


def _ini(config: VelaConfig) -> Path:
    """The file of systems and memories: the user's own, or one that comes with Vela."""
    if config.ini and os.path.isfile(config.ini):
        return Path(config.ini)
    found = importlib.util.find_spec("ethosu")
    for place in (found.submodule_search_locations or ()) if found else ():
        file = Path(place) / "config_files" / (config.ini or _INI)
        if file.is_file():
            return file
    raise InvalidInput(f"there is no Vela configuration file '{config.ini or _INI}'")


def _read_ini(config: VelaConfig) -> tuple[str, configparser.ConfigParser]:
    file = _ini(config)
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    return text, _parsed(text, file)


@lru_cache(4)
def _parsed(text: str, file: Path) -> configparser.ConfigParser:
    """The sections of a configuration, which a compile asks for time and again."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as problem:
        reason = first_line(problem)
        raise InvalidInput(f"'{file}' is no Vela configuration: {reason}") from None
    return parser


def _names(config: VelaConfig) -> tuple[str, str]:
    system, memory = ACCELERATORS[config.accelerator][2]
    return config.system_config or system, config.memory_mode or memory


def _system(config: VelaConfig) -> str:
    """Regor's description of the hardware."""
    text, parser = _read_ini(config)
    system, memory = _names(config)
    for kind, name in (("System_Config", system), ("Memory_Mode", memory)):
        if not parser.has_section(f"{kind}.{name}"):
            names = [s.partition(".")[2] for s in parser.sections() if s.startswith(kind)]
            known = ", ".join(names) or "none"
            raise InvalidInput(f"the Vela configuration has no {kind} {name!r}; it has {known}")
    macs, cores, _ = ACCELERATORS[config.accelerator]
    return (
        f"[architecture]\nmacs={macs}\ncores={cores}\n"
        f"[vela]\nsystem_config_name={system}\nmemory_mode_name={memory}\n{text}"
    )


def _arena(config: VelaConfig) -> int:
    """The size of the arena that a memory mode allows."""
    size, most = _setting(config, "Memory_Mode", "arena_cache_size"), config.addresses
    if size and (not size.isdecimal() or not 0 < int(size) <= most):
        raise InvalidInput(
            f"Vela's arena_cache_size must be a whole number up to {most}, not {size!r}"
        )
    return int(size) if size else most


def _check_memories(config: VelaConfig) -> None:
    """InvalidInput if system and memory mode do not say where things lie, or say it wrongly."""
    system, memory = _names(config)
    _real(_setting(config, "System_Config", "core_clock"), f"core_clock of {system}")
    for key in ("const_mem_area", "cache_mem_area", "arena_mem_area"):
        port = _setting(config, "Memory_Mode", key)
        place = _setting(config, "System_Config", f"{port.lower()}_port")
        if place.lower() not in _MEMORIES:
            raise InvalidInput(
                f"the memory mode {memory} has {key}={port}, and {system} has "
                f"{f'{port}_port={place}' if place else 'no such port'}: a port is one of Sram, "
                "Dram, OnChipFlash and OffChipFlash"
            )
    if "flash" in place.lower():
        raise InvalidInput(
            f"the memory mode {memory} puts the arena into {place} of {system}, which cannot be "
            "written: take another memory mode, or a system with Dram"
        )


def clock(config: VelaConfig) -> float:
    """The clock of the system in hertz."""
    return _real(_setting(config, "System_Config", "core_clock"), "core_clock")


def has_constants_in_sram(config: VelaConfig) -> bool:
    """Whether constants lie in fast memory all the time, of which they leave less."""
    port = _setting(config, "Memory_Mode", "const_mem_area")
    return _setting(config, "System_Config", f"{port.lower()}_port").lower() == "sram"


def _setting(config: VelaConfig, kind: str, key: str) -> str:
    """A value of the system or the memory mode, which may inherit it; empty if it is not there."""
    _, parser = _read_ini(config)
    name = _names(config)[kind == "Memory_Mode"]
    section: str = f"{kind}.{name}"
    seen: list[str] = []
    while section:
        if section in seen or not parser.has_section(section):
            raise InvalidInput(
                f"{seen[-1]} of the Vela configuration inherits from {section}, which "
                f"{'inherits from it' if section in seen else 'is not there'}"
            )
        seen.append(section)
        found = parser.get(section, key, fallback="")
        if found:
            return found
        section = parser.get(section, "inherit", fallback="")
    return ""


def _real(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise InvalidInput(f"Vela's {name} must be a number above 0, not {text!r}")
    return value


def _options(config: VelaConfig) -> str:
    """Regor's options from the flags of Vela's command line."""
    chosen: dict[str, dict[str, str]] = {
        "compiler": {"output_format": "Raw", "cop_format": "COP1"},
        "scheduler": {
            "optimize": "Performance", "arena_size_limit": str(_arena(config)),
            "cpu_tensor_alignment": "16", "tensor_allocator": "HillClimb",
        },
        "graph": {},
    }  # fmt: skip
    disabled = []
    for name, value in _flags(config.flags):
        if name in _FEATURES:
            disabled.append(_FEATURES[name])
        elif name in _OPTIONS:
            section, key = _OPTIONS[name]
            chosen[section][key] = value or "true"
        elif not (name in _SILENT or name.startswith("verbose-") or (name, value) == _RAW):
            known = ", ".join(f"--{n}" for n in (*_OPTIONS, *_FEATURES))
            raise InvalidInput(f"Vela's flag --{name} has no meaning here; there are {known}")
    chosen["scheduler"]["disable_feature"] = "|".join(disabled)
    lines = []
    for section, entries in chosen.items():
        lines += [f"[{section}]", *(f"{key}={value}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def _flags(flags: tuple[str, ...]) -> list[tuple[str, str]]:
    """``--name=value``, ``--name value`` and ``--name`` as pairs."""
    words = [w for flag in flags for w in flag.replace("=", " ", 1).split()]
    pairs: list[tuple[str, str]] = []
    for word in words:
        if word.startswith("--"):
            pairs.append((word[2:], ""))
        elif pairs and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], word)
        else:
            raise InvalidInput(f"{word!r} is no flag of Vela; flags start with --")
    return pairs


def _placed(tensors: Sequence[Any]) -> tuple[Boundary, ...]:
    return tuple(Boundary(tuple(shape), *places) for shape, *places in tensors)

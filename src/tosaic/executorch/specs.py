"""Compile specs: what to compile for, under the names that users of ExecuTorch know."""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput, ToolFailed
from tosaic.executorch.api import ETHOSU_BACKEND, TOSA_BACKEND, VGF_BACKEND
from tosaic.executorch.delegates import Blob, ethosu_blob, tosa_blob
from tosaic.files import flatbuffer
from tosaic.files.whole import write_folder
from tosaic.ir.graph import Graph
from tosaic.lowering.target import Target
from tosaic.sim.ethosu import velabin
from tosaic.spec.env import Env
from tosaic.targets.catalog import target_of
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.vgf.doctor import checks

_KEY = "target"
_U55 = "+u55"
_OWN_INI = "Arm/vela.ini"  # Vela's, by the name that Vela finds it by


@dataclass(frozen=True)
class TosaSpecification(Env):
    """A version of TOSA with profiles and extensions, and whether an Ethos-U55 must run it."""

    is_U55_subset: bool = False  # noqa: N815  (the name that users know)

    @staticmethod
    def create_from_string(repr: str) -> TosaSpecification:
        """Read a string such as ``TOSA-1.0+INT+int16+u55``."""
        parts = str(repr).replace(_U55, "")
        found = TosaSpecification.parse(parts)
        assert isinstance(found, TosaSpecification)
        return replace(found, is_U55_subset=parts != str(repr))

    def support_integer(self) -> bool:
        return "INT" in self.profiles

    def support_float(self) -> bool:
        return "FP" in self.profiles

    def support_extension(self, extension: str) -> bool:
        return extension in self.extensions

    def __str__(self) -> str:
        return super().__str__() + _U55 * self.is_U55_subset


@dataclass(frozen=True, slots=True)
class VelaExternalBlockPlacements:
    """Files, by their names without suffix, that get commands and weights; None keeps them in."""

    cmd_data: str | None = None
    weight_data: str | None = None

    def __post_init__(self) -> None:
        for placement in (self.cmd_data, self.weight_data):
            if placement is not None and not (placement and placement.isascii()):
                raise InvalidInput(f"{placement!r} is no name of a file for parts of a delegate")

    def to_block_placements(self) -> dict[str, str]:
        """The names that are given, by block."""
        given = {"cmd_data": self.cmd_data, "weight_data": self.weight_data}
        return {block: name for block, name in given.items() if name is not None}


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


class ArmCompileSpec(ABC):
    """What all compile specs have in common; users make one of the others."""

    backend: str
    """The name by which a runtime knows the delegate."""
    target: str

    class DebugMode(Enum):
        """What is written of a delegate for those who look for a fault."""

        JSON = 1
        TOSA = 2

    def __init__(self) -> None:
        self.linux = LinuxOptions()
        self.path_for_intermediates: str | None = None
        self.tosa_debug_mode: Any = None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.target))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    def dump_intermediate_artifacts_to(
        self, output_path: str | os.PathLike[str] | None
    ) -> ArmCompileSpec:
        """Write each delegate's TOSA file and blob into a folder; None writes nothing."""
        self.path_for_intermediates = None if output_path is None else os.fspath(output_path)
        return self

    def dump_debug_info(self, debug_mode: Any) -> ArmCompileSpec:
        """Kept for its users: a dumped TOSA file names modules and source lines in any mode."""
        self.tosa_debug_mode = debug_mode
        return self

    def set_pass_pipeline_config(self, config: Any) -> None:
        """Kept for its users: it chooses among expressions that rules choose among themselves."""
        del config

    @property
    def tosa_spec(self) -> TosaSpecification:
        """What TOSA the target takes."""
        return TosaSpecification.create_from_string(str(self.device.env))

    @property
    @abstractmethod
    def device(self) -> Target:
        """What Tosaic compiles for."""

    def blob(self, graph: Graph, made: Any = None) -> Blob:
        """A TOSA graph as the target's delegate, of what it is compiled to if it is already."""
        return tosa_blob(graph)

    def dump(self, graph: Graph, blob: Blob) -> None:
        """Write what was asked for of a delegate."""
        if self.path_for_intermediates is None:
            return
        folder = Path(self.path_for_intermediates)
        name = f"delegate_{len(list(folder.glob('delegate_*.tosa')))}"
        write_folder(folder, {f"{name}.tosa": flatbuffer.write(graph), f"{name}.bin": blob.data})

    def entries(self) -> list[tuple[str, bytes]]:
        """What a runtime reads beside the target."""
        return self.linux.entries()

    def to_list(self) -> list[Any]:
        """ExecuTorch's form: what a runtime reads, with this object riding along unwritten.

        A path on the machine that compiles has no place in a file for a device, so only the
        target and the runtime's own options are entries.
        """
        from executorch.exir.backend.compile_spec_schema import CompileSpec as Entry

        entries = [(_KEY, self.target.encode()), *self.entries()]
        made = [Entry(key, value) for key, value in entries]
        made[0].origin = self
        return made


def is_own(entries: Sequence[Any]) -> bool:
    """Whether a compile spec of Tosaic's rides along with ExecuTorch's list."""
    return any(isinstance(getattr(e, "origin", None), ArmCompileSpec) for e in entries)


def spec_of(entries: Sequence[Any]) -> ArmCompileSpec:
    """The compile spec that rides along with ExecuTorch's list."""
    found = next((getattr(e, "origin", None) for e in entries if e.key == _KEY), None)
    if not isinstance(found, ArmCompileSpec):
        raise InvalidInput("the compile specs are none that tosaic.executorch made: use to_list()")
    return found


class TosaCompileSpec(ArmCompileSpec):
    """Delegates that hold TOSA itself, for tests."""

    backend = TOSA_BACKEND

    def __init__(self, tosa_spec: Any) -> None:
        super().__init__()
        self.target = str(TosaSpecification.create_from_string(str(tosa_spec)))

    @property
    def tosa_spec(self) -> TosaSpecification:
        return TosaSpecification.create_from_string(self.target)

    @property
    def device(self) -> Target:
        plain = target_of(self.target.removesuffix(_U55))
        limits = ETHOS_U["ethos-u55-128"].constraints if self.tosa_spec.is_U55_subset else ()
        return replace(plain, constraints=(*plain.constraints, *limits))


class EthosUCompileSpec(ArmCompileSpec):
    """Delegates for an Ethos-U; what is None is what the ecosystem takes for the accelerator."""

    backend = ETHOSU_BACKEND

    def __init__(
        self,
        target: str,
        system_config: str | None = None,
        memory_mode: str | None = None,
        extra_flags: Sequence[str] | None = None,
        config_ini: str | None = _OWN_INI,
        external_block_placements: VelaExternalBlockPlacements | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.external_block_placements = external_block_placements or VelaExternalBlockPlacements()
        self.options = {
            "system_config": system_config,
            "memory_mode": memory_mode,
            "vela_ini": None if config_ini == _OWN_INI else config_ini,
            "vela_flags": extra_flags if isinstance(extra_flags, str) else tuple(extra_flags or ()),
        }
        self.device  # noqa: B018  (what Vela does not have is said here and now)

    @property
    def device(self) -> Target:
        if self.target not in ETHOS_U:
            known = ", ".join(ETHOS_U)
            raise InvalidInput(f"there is no accelerator {self.target!r}; there are {known}")
        return target_of(self.target, self.options)

    @property
    def tosa_spec(self) -> TosaSpecification:
        return replace(super().tosa_spec, is_U55_subset=not self.target.startswith("ethos-u85"))

    @property
    def compiler_flags(self) -> list[str]:
        """What Vela is told beside target, configuration and memory."""
        given = self.options["vela_flags"] or ()
        return given.split() if isinstance(given, str) else list(given)

    def blob(self, graph: Graph, made: Any = None) -> Blob:
        if made is None:
            assert self.device.emit is not None
            made = self.device.emit(graph)
        stream: velabin.Stream = made.result.stream
        return ethosu_blob(graph, stream, self.external_block_placements.to_block_placements())


class VgfCompileSpec(ArmCompileSpec):
    """Delegates for Vulkan ML; the converter's flags may be given."""

    backend = VGF_BACKEND
    target = "vgf"

    def __init__(self, tosa_spec: Any = None, compiler_flags: Sequence[str] | None = None) -> None:
        super().__init__()
        self.specification = str(Env.parse(str(tosa_spec or "TOSA-1.0+FP+INT+int4+int16")))
        self.compiler_flags = list(compiler_flags or ())
        self.device  # noqa: B018  (what the converter does not take is said here and now)

    @property
    def device(self) -> Target:
        options = {"spec": self.specification, "converter_flags": tuple(self.compiler_flags)}
        return target_of("vgf", options)

    def blob(self, graph: Graph, made: Any = None) -> Blob:
        assert self.device.emit is not None
        return Blob(VGF_BACKEND, (made or self.device.emit(graph)).data)

    def entries(self) -> list[tuple[str, bytes]]:
        flags = " ".join(self.compiler_flags).encode()
        found = [("tosa_spec", self.specification.encode()), ("output_format", b"vgf")]
        return [*found, *([("compile_flags", flags)] if flags else [])]

    def validate_environment(
        self, build_dir: str | os.PathLike[str] | None = None, *,
        require_runtime_build: bool = False,
    ) -> None:  # fmt: skip
        """ToolFailed if a file cannot be compiled here, or InvalidInput where a build is missing.

        ``build_dir`` is a folder of ExecuTorch's runtime that was built with its VGF backend.
        """
        problems = [check for check in checks(("aot",)) if check.state == "FAIL"]
        if problems:
            raise ToolFailed("; ".join(f"{check.told}: {check.way}" for check in problems))
        if build_dir is None and not require_runtime_build:
            return
        if build_dir is None or not any(Path(build_dir).rglob("libvgf_backend*")):
            place = "no folder is named" if build_dir is None else f"'{build_dir}' has none"
            raise InvalidInput(
                f"a runtime with the VGF backend is needed, and {place}: build ExecuTorch with "
                "EXECUTORCH_BUILD_VGF=ON"
            )

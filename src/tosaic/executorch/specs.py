"""Compile specs: what to compile for, under the names that users of ExecuTorch know."""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput, Unsupported
from tosaic.executorch.delegates import (
    ETHOSU_BACKEND,
    TOSA_BACKEND,
    VGF_BACKEND,
    Blob,
    ethosu_blob,
    tosa_blob,
)
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph
from tosaic.spec.env import Env
from tosaic.targets.base import Target
from tosaic.targets.catalog import target_of
from tosaic.targets.ethosu import ETHOS_U

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


class CompileSpec(ABC):
    """What all compile specs have in common; users make one of the others."""

    backend: str
    """The name by which a runtime knows the delegate."""
    target: str

    def __init__(self) -> None:
        self.linux = LinuxOptions()
        self.artifacts: str | None = None
        self.debug_mode: Any = None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), self.target))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"

    def dump_intermediate_artifacts_to(self, path: str | os.PathLike[str] | None) -> CompileSpec:
        """Write each delegate's TOSA file and blob into a folder; None writes nothing."""
        self.artifacts = None if path is None else os.fspath(path)
        return self

    def dump_debug_info(self, mode: Any) -> CompileSpec:
        """Kept for its users: a dumped TOSA file names modules and source lines in any mode."""
        self.debug_mode = mode
        return self

    @property
    @abstractmethod
    def device(self) -> Target:
        """What Tosaic compiles for."""

    def blob(self, graph: Graph) -> Blob:
        """A TOSA graph as the target's delegate."""
        return tosa_blob(graph)

    def dump(self, graph: Graph, blob: Blob) -> None:
        """Write what was asked for of a delegate."""
        if self.artifacts is None:
            return
        folder = Path(self.artifacts)
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("delegate_*.tosa")))
        flatbuffer.write(graph, folder / f"delegate_{number}.tosa")
        (folder / f"delegate_{number}.bin").write_bytes(blob.data)

    def to_list(self) -> list[Any]:
        """ExecuTorch's form: what a runtime reads, with this object riding along unwritten.

        A path on the machine that compiles has no place in a file for a device, so only the
        target and the runtime's own options are entries.
        """
        from executorch.exir.backend.compile_spec_schema import CompileSpec as Entry

        entries = [(_KEY, self.target.encode()), *self.linux.entries()]
        made = [Entry(key, value) for key, value in entries]
        made[0].origin = self
        return made


def spec_of(entries: Sequence[Any]) -> CompileSpec:
    """The compile spec that rides along with ExecuTorch's list."""
    found = next((getattr(e, "origin", None) for e in entries if e.key == _KEY), None)
    if not isinstance(found, CompileSpec):
        raise InvalidInput("the compile specs are none that tosaic.executorch made: use to_list()")
    return found


class TosaCompileSpec(CompileSpec):
    """Delegates that hold TOSA itself, for tests."""

    backend = TOSA_BACKEND

    def __init__(self, tosa_spec: Any) -> None:
        super().__init__()
        self.target = str(Env.parse(str(tosa_spec)))

    @property
    def device(self) -> Target:
        return target_of(self.target)


class EthosUCompileSpec(CompileSpec):
    """Delegates for an Ethos-U; what is None is what the ecosystem takes for the accelerator."""

    backend = ETHOSU_BACKEND

    def __init__(
        self,
        target: str,
        system_config: str | None = None,
        memory_mode: str | None = None,
        extra_flags: Sequence[str] | None = None,
        config_ini: str | None = None,
    ) -> None:
        super().__init__()
        self.target = target
        self.options = {
            "system_config": system_config,
            "memory_mode": memory_mode,
            "vela_ini": config_ini,
            "vela_flags": tuple(extra_flags or ()),
        }
        self.device  # noqa: B018  (what Vela does not have is said here and now)

    @property
    def device(self) -> Target:
        if self.target not in ETHOS_U:
            known = ", ".join(ETHOS_U)
            raise InvalidInput(f"there is no accelerator {self.target!r}; there are {known}")
        return target_of(self.target, self.options)

    def blob(self, graph: Graph) -> Blob:
        assert self.device.emit is not None
        return ethosu_blob(graph, self.device.emit(graph).result.stream)


class VgfCompileSpec(CompileSpec):
    """Delegates for Vulkan ML."""

    backend = VGF_BACKEND

    def __init__(self, tosa_spec: Any = None, compiler_flags: Sequence[str] | None = None) -> None:
        super().__init__()
        self.target = str(Env.parse(str(tosa_spec or "TOSA-1.0+FP+INT")))
        self.compiler_flags = tuple(compiler_flags or ())

    @property
    def device(self) -> Target:
        return target_of(self.target)

    def blob(self, graph: Graph) -> Blob:
        raise Unsupported("there is no VGF output yet: use an Ethos-U or a TOSA compile spec")

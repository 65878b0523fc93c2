"""What a run did: a record for each operation, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tosaic.sim.ethosu.featuremap import FeatureMap
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.program import Step
from tosaic.sim.ethosu.registers import Elementwise, Pooling, Resize


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of an operation: where it lies and how."""

    role: str
    region: int
    addresses: tuple[int, ...]
    shape: tuple[int, ...]
    type: str
    format: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Record:
    """One operation of a run."""

    command: int
    offset: int
    operation: str
    origin: str
    tensors: tuple[Tensor, ...]
    macs: int
    bytes_read: int
    bytes_written: int
    details: str

    def __str__(self) -> str:
        moved = f"{self.bytes_read:,} bytes in, {self.bytes_written:,} out"
        macs = f", {self.macs:,} multiply-accumulates" if self.macs else ""
        origin = f" of {self.origin}" if self.origin else ""
        details = f"\n        {self.details}" if self.details else ""
        return f"{self.command:>6}  {self.operation}{origin}: {moved}{macs}{details}"


@dataclass(frozen=True, slots=True)
class Trace:
    """The operations of a run in their order."""

    accelerator: str
    records: tuple[Record, ...]

    @property
    def macs(self) -> int:
        return sum(record.macs for record in self.records)

    def __str__(self) -> str:
        return "\n".join([self.accelerator, *map(str, self.records)])

    def json(self) -> str:
        """The same for other programs."""
        rows = [asdict(record) for record in self.records]
        return json.dumps({"accelerator": self.accelerator, "records": rows})


_MODES = {"POOL": Pooling, "ELEMENTWISE": Elementwise, "RESIZE": Resize}


def record(step: Step, origins: Mapping[int, str]) -> Record:
    """What a step does."""
    command = step.command
    origin = origins.get(command.offset, "")
    name, details = command.name, ""
    tensors: tuple[Tensor, ...] = ()
    read = written = 0
    if step.transfer is not None:
        details, read = str(step.transfer), step.transfer.bytes
        written = read
    elif step.operation is not None:
        operation = step.operation
        if operation.kind in _MODES:
            name = f"{operation.kind} {_MODES[operation.kind](operation.mode).name}"
        tensors = _tensors(operation)
        written = sum(t.bytes for t in tensors if t.role == "OFM")
        blocks = (*(operation.coded.weights if operation.coded else ()), *operation.scales)
        read = sum(t.bytes for t in tensors if t.role != "OFM") + sum(b.bytes for b in blocks)
        details = "; ".join(str(part) for part in (*operation.inputs, operation.output))
    return Record(
        command.index, command.offset, name, origin, tensors, step.macs, read, written, details
    )


def _tensors(operation: Operation) -> tuple[Tensor, ...]:
    maps = (*(operand.map for operand in operation.inputs), operation.output.map)
    return tuple(_tensor(found) for found in maps if found is not None)


def _tensor(found: FeatureMap) -> Tensor:
    addresses = tuple(part.block.start for part in found.parts)
    return Tensor(
        found.name, found.region, addresses, found.shape, str(found.dtype), found.format,
        found.bytes,
    )  # fmt: skip

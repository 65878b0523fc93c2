"""Commands in words, and what a run did: a record for each operation, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from tosaic.sim.ethosu.featuremap import FeatureMap
from tosaic.sim.ethosu.operation import Operation
from tosaic.sim.ethosu.program import Step
from tosaic.sim.ethosu.registers import Elementwise, Pooling, Resize
from tosaic.sim.ethosu.stream import Command, Config, Stream


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


_ADDRESSES = ("BASE", "STRIDE", "DMA0_SRC", "DMA0_DST", "DMA0_IDX")
_WIDTHS = ("8 bit", "16 bit", "32 bit", "64 bit")


def disassemble(stream: Stream) -> str:
    """A line for each command: its number, offset, bits, name and what they mean."""
    lines = [f"{stream.config.name}, {len(stream.commands)} commands"]
    for command in stream.commands:
        payload = "" if command.payload is None else f"{command.payload:08x}"
        words = describe(command, stream.config)
        line = f"{command.index:>6}  {command.offset:#08x}  {command.param:04x} {payload:8}"
        lines.append(f"{line}  {command!s:32}{words}".rstrip())
    return "\n".join(lines)


def describe(command: Command, config: Config) -> str:
    """What the bits of a command say."""
    name, value = command.name, command.param
    if name in _MODES:
        known = {mode.value: mode.name for mode in _MODES[name]}
        return known.get(value, f"mode {value}")
    if name == "BRANCH":
        return f"{'if true' if value & 0xF else 'always'} to {command.payload or 0:#x}"
    if name.endswith("_PRECISION"):
        return _precision(name, value)
    if name.endswith("_SCALE") and command.payload is not None:
        return f"{command.payload} >> {value & 0x3F}"
    if name.endswith("_M1"):
        return str(value + 1)
    if name == "ACTIVATION_MIN" or name.endswith(("ZERO_POINT", "OFFSET")):
        return str(value - (value >> 15 << 16))
    if any(part in name for part in _ADDRESSES) and command.payload is not None:
        return f"{(value << 32 | command.payload) & (1 << 40) - 1:#x}"
    if name == "CONV":
        return "weights from the second input" if value & 1 else ""
    return "" if name in ("DEPTHWISE", "DMA_START", "STOP") else str(command.value)


def _precision(name: str, value: int) -> str:
    shift = 1 if name.startswith("OFM") else 2
    sign = "signed" if value & 1 else "unsigned"
    layout = "NHCWB16" if value >> 6 & 1 else "NHWC"
    scale = ""
    if name.startswith("OFM"):
        scale = ", one scale" if value >> 8 & 1 else ", scale by channel"
    return f"{sign} {_WIDTHS[value >> shift & 3]}, {layout}{scale}"

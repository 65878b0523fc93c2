"""Commands in words."""

from __future__ import annotations

from tosaic.sim.ethosu.registers import Elementwise, Pooling, Resize
from tosaic.sim.ethosu.stream import Command, Config, Stream

_ADDRESSES = ("BASE", "STRIDE", "DMA0_SRC", "DMA0_DST", "DMA0_IDX")
_MODES = {"POOL": Pooling, "ELEMENTWISE": Elementwise, "RESIZE": Resize}
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

"""QEMU's boards with Cortex-M cores: the machine's name, compiler flags and memories."""

from __future__ import annotations

from dataclasses import dataclass

from tosaic.errors import InvalidInput

K, M = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Region:
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Board:
    """A board that QEMU emulates, and the core whose code runs on it."""

    machine: str
    flags: tuple[str, ...]
    code: Region
    data: Region
    large: Region
    """Weights and tensors."""

    def link_script(self) -> str:
        code, data, large = (
            f"ORIGIN = {region.start:#x}, LENGTH = {region.size:#x}"
            for region in (self.code, self.data, self.large)
        )
        return _SCRIPT % {
            "code": code, "data": data, "large": large, "end": self.large.start + self.large.size
        }  # fmt: skip


_SCRIPT = """
ENTRY(vectors)
MEMORY
{
  code (rx) : %(code)s
  data (rw) : %(data)s
  large (rw) : %(large)s
}
SECTIONS
{
  .text :
  {
    KEEP(*(.vectors))
    *(EXCLUDE_FILE(*weights*) .text* EXCLUDE_FILE(*weights*) .rodata*) . = ALIGN(16);
  } > code
  .ARM.exidx : { *(.ARM.exidx*) } > code
  .large : { *weights*(.rodata* .net_weights*) *(.large*) . = ALIGN(16); board_large = .; } > large
  board_large_end = %(end)d;
  board_data_image = LOADADDR(.data);
  .data : { board_data = .; *(.data*) . = ALIGN(16); board_data_end = .; } > data AT > code
  .bss (NOLOAD) : { board_bss = .; *(.bss* COMMON) . = ALIGN(16); board_bss_end = .; } > data
  board_stack = ORIGIN(data) + LENGTH(data);
}
"""

_MPS2 = Region(0, 4 * M), Region(0x20000000, 4 * M), Region(0x21000000, 16 * M)
_M7 = Region(0, 4 * M), Region(0x20000000, 4 * M), Region(0x60000000, 16 * M)
_M33 = Region(0x10000000, 4 * M), Region(0x38000000, 2 * M), Region(0x80000000, 16 * M)
_M55 = Region(0, 512 * K), Region(0x20000000, 512 * K), Region(0x60000000, 1 << 31)

BOARDS = {
    # M0+ code runs on an M3, M85 code on an M55: QEMU has neither core.
    "m0plus": Board("mps2-an385", ("-mcpu=cortex-m0plus", "-mfloat-abi=soft"), *_MPS2),
    "m3": Board("mps2-an385", ("-mcpu=cortex-m3", "-mfloat-abi=soft"), *_MPS2),
    "m4": Board("mps2-an386", ("-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"), *_MPS2),
    "m7": Board("mps2-an500", ("-mcpu=cortex-m7", "-mfloat-abi=hard", "-mfpu=fpv5-d16"), *_M7),
    "m33": Board(
        "mps2-an505", ("-mcpu=cortex-m33", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"), *_M33
    ),
    "m55": Board("mps3-an547", ("-mcpu=cortex-m55", "-mfloat-abi=hard"), *_M55),
    "m85": Board("mps3-an547", ("-mcpu=cortex-m55", "-mfloat-abi=hard"), *_M55),
}


def board(core: str) -> Board:
    """The board for a core's name, with or without ``cortex-``."""
    found = BOARDS.get(core.removeprefix("cortex-"))
    if found is None:
        raise InvalidInput(f"QEMU has no board for '{core}'; it has one for {', '.join(BOARDS)}")
    return found

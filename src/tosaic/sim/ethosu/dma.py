"""DMA: copies of one to three dimensions, and U85's copies by an index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.errors import Unsupported
from tosaic.sim.ethosu.fields import Registers
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Block
from tosaic.sim.ethosu.stream import Config


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy of bytes between two blocks of the same sizes."""

    source: Block
    target: Block

    def __str__(self) -> str:
        return f"{self.source.span} to {self.target.span}, {self.source.bytes} bytes"

    def __call__(self, machine: Machine) -> None:
        found = machine.memory.view(self.source, np.dtype("u1"))
        machine.memory.view(self.target, np.dtype("u1"))[...] = found.copy()

    @property
    def bytes(self) -> int:
        return self.source.bytes


def decode(registers: Registers, config: Config) -> Transfer:
    r = registers
    dimensions = r.bits("DMA0_SRC_REGION", 9, 2) + 1
    sizes = [r.address("DMA0_LEN")]
    if dimensions > 3:
        raise Unsupported(f"DMA0_SRC_REGION {r['DMA0_SRC_REGION']:#x}: its stride mode")
    if dimensions > 1:
        sizes.insert(0, r["DMA0_SIZE0"])
    if dimensions > 2:
        sizes.insert(0, r["DMA0_SIZE1"])
    if config.is_u85 and (r.bits("DMA0_SRC_REGION", 11) or r.bits("DMA0_DST_REGION", 11)):
        raise Unsupported("DMA by an index")
    return Transfer(*(_block(r, config, side, tuple(sizes)) for side in ("SRC", "DST")))


def _block(r: Registers, config: Config, side: str, sizes: tuple[int, ...]) -> Block:
    word = r[f"DMA0_{side}_REGION"]
    region = INTERNAL if word >> 8 & 1 else word & 0xFF
    start = r.address(f"DMA0_{side}")
    strides = [1]
    for dimension in range(len(sizes) - 1):
        if config.is_u85:
            strides.insert(0, r.address(f"DMA0_{side}_STRIDE{dimension}"))
        else:
            # U55 and U65: what is skipped on the strided side; the other is dense.
            raise Unsupported("DMA of more than one dimension")
    return Block(region, start, sizes, tuple(strides), 1)

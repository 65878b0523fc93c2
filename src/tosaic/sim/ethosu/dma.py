"""DMA: copies of one to three dimensions, and U85's copies to and from places in a list."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tosaic.errors import InvalidInput, Unsupported
from tosaic.sim.ethosu.fields import Registers
from tosaic.sim.ethosu.machine import Machine
from tosaic.sim.ethosu.memory import INTERNAL, Block, Sanitizer
from tosaic.sim.ethosu.stream import Config

_BYTE = np.dtype("u1")


@dataclass(frozen=True, slots=True)
class Transfer:
    """A copy of bytes between two blocks: of the same sizes, or one with places to choose from."""

    source: Block
    target: Block
    index: Block | None = None
    """Places, of 4 bytes each, along the second last axis of the indexed side."""
    scatter: bool = False
    """Is the target indexed?"""

    def __str__(self) -> str:
        by = "" if self.index is None else f" by the places at {self.index.span}"
        return f"{self.source.span} to {self.target.span}{by}, {self.bytes} bytes"

    def __call__(self, machine: Machine) -> None:
        memory = machine.memory
        found, place = memory.view(self.source, _BYTE), memory.view(self.target, _BYTE)
        if self.index is None:
            place[...] = found.copy()
            return
        index = memory.view(self.index, np.dtype("i4"))
        chosen = place if self.scatter else found
        limit = chosen.shape[-2]
        if index.size and (index.min() < 0 or index.max() >= limit):
            raise Sanitizer(f"a place in the DMA's list lies outside of 0 to {limit - 1}")
        shadow = memory.shadow(self.target)
        for group in np.ndindex(index.shape[:-1]):
            rows: object = index[group] if self.scatter else slice(None)
            place[group][rows] = found[group] if self.scatter else found[group][index[group]]
            shadow[group][rows] = True

    @property
    def bytes(self) -> int:
        return self.source.bytes if self.index is None or self.scatter else self.target.bytes


def decode(registers: Registers, config: Config) -> Transfer:
    r = registers
    dimensions = r.bits("DMA0_SRC_REGION", 9, 2) + 1
    sizes = [r.address("DMA0_LEN")]
    if dimensions > 3:
        raise Unsupported(f"DMA0_SRC_REGION {r['DMA0_SRC_REGION']:#x}: its stride mode")
    gather, scatter = (
        config.is_u85 and bool(r.bits(f"DMA0_{side}_REGION", 11)) for side in ("SRC", "DST")
    )
    if dimensions > 1 or gather or scatter:
        sizes.insert(0, r["DMA0_SIZE0"] if dimensions > 1 else 1)
    if dimensions > 2:
        sizes.insert(0, r["DMA0_SIZE1"])
    if 0 in sizes:
        raise InvalidInput(f"the DMA copies nothing: its sizes are {sizes}")
    if gather and scatter:
        raise Unsupported("a DMA with places for its source and for its target")
    if not gather and not scatter:
        source, target = (_block(r, config, side, sizes) for side in ("SRC", "DST"))
        return Transfer(source, target)
    limit = (r["DMA0_IDX_MAX"] & 0xFFFFFFFF) + 1
    chosen = [*sizes[:-2], limit, sizes[-1]]
    source = _block(r, config, "SRC", chosen if gather else sizes)
    target = _block(r, config, "DST", chosen if scatter else sizes)
    return Transfer(source, target, _index(r, sizes[:-1]), scatter)


def _index(r: Registers, sizes: list[int]) -> Block:
    strides = [4]
    if len(sizes) > 1:
        strides.insert(0, 4 * sizes[-1] + r.stride("DMA0_IDX_SKIP1"))
    region = r["DMA0_IDX_REGION"] & 0xFF
    return Block(region, r.address("DMA0_IDX"), tuple(sizes), tuple(strides), 4)


def _block(r: Registers, config: Config, side: str, sizes: list[int]) -> Block:
    word = r[f"DMA0_{side}_REGION"]
    region = INTERNAL if word >> 8 & 1 else word & 0xFF
    strides = [1]
    if len(sizes) > 1 and not config.is_u85:
        raise Unsupported(f"a DMA of {len(sizes)} dimensions on {config.product}")
    for dimension, size in enumerate(sizes[-2::-1]):  # one row needs no stride
        stride = r.stride(f"DMA0_{side}_STRIDE{dimension}") if size > 1 else sizes[-1]
        strides.insert(0, stride)
    return Block(region, r.address(f"DMA0_{side}"), tuple(sizes), tuple(strides), 1)

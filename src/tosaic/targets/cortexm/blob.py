"""The weights of a network as one file: constants that are equal are there once.

The file is one part, or several for memories of their own, those that are read most often first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tosaic.targets.cortexm.program import Program

ALIGN = 16
SLACK = 16  # readable bytes behind the last constant of a part


@dataclass(slots=True)
class Blob:
    """Constants one after another, each aligned; ``parts`` are memories and where each ends."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)
    parts: list[tuple[str, int]] = field(default_factory=list)

    def place(self, constant: bytes) -> int:
        """Where a constant lies, which is added if it is new."""
        if constant not in self.places:
            self.data += bytes(-len(self.data) % ALIGN)
            self.places[constant] = len(self.data)
            self.data += constant
        return self.places[constant]

    def address(self, symbol: str, constant: bytes, offset: int = 0) -> str:
        """The address of a byte of a constant in C."""
        at, begin = self.place(constant), 0
        for memory, end in self.parts:
            if at < end:
                return f"tk_opaque({symbol}_{memory}) + {at - begin + offset}"
            begin = end
        return f"tk_opaque({symbol}) + {at - begin + offset}"

    def close(self, memory: str) -> None:
        """End a part, which lies in a memory."""
        self.data += bytes(-len(self.data) % ALIGN + SLACK)
        self.parts.append((memory, len(self.data)))

    @property
    def bytes(self) -> bytes:
        return bytes(self.data) + bytes(-len(self.data) % ALIGN) + bytes(SLACK)


def spread(program: Program, memories: Mapping[str, int]) -> Blob:
    """A blob whose constants that are read most often, byte by byte, lie in memories by size."""
    heat: dict[bytes, float] = {}
    for step in program.steps():
        own = [step.call.blob, step.call.lut] if step.call is not None else []
        read = max([step.macs, *(buffer.count for buffer in step.writes)])
        for constant in (*own, *(b.data for b in step.reads if b.kind == "const")):
            if constant:
                heat[constant] = heat.get(constant, 0) + read / len(constant)
    blob = Blob()
    waiting = sorted(heat, key=lambda constant: (-heat[constant], len(constant), constant))
    for memory, limit in memories.items():
        begin, rest = len(blob.data), []
        for constant in waiting:
            end = len(blob.data) + -len(blob.data) % ALIGN + len(constant)
            if end + -end % ALIGN + SLACK - begin <= limit:
                blob.place(constant)
            else:
                rest.append(constant)
        blob.close(memory)
        waiting = rest
    return blob

"""The weights of a network as one file: constants that are equal are there once."""

from __future__ import annotations

from dataclasses import dataclass, field

ALIGN = 16
SLACK = 16  # readable bytes behind the last constant


@dataclass(slots=True)
class Blob:
    """Constants one after another, each aligned."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)

    def place(self, constant: bytes) -> int:
        """Where a constant lies, which is added if it is new."""
        if constant not in self.places:
            self.data += bytes(-len(self.data) % ALIGN)
            self.places[constant] = len(self.data)
            self.data += constant
        return self.places[constant]

    @property
    def bytes(self) -> bytes:
        return bytes(self.data) + bytes(-len(self.data) % ALIGN) + bytes(SLACK)

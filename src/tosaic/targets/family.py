"""A family of targets: what an entry point of the group ``tosaic.targets`` names.

It knows names alone, so that listing targets loads no compiler; ``make`` gives the target itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tosaic.errors import InvalidInput

if TYPE_CHECKING:
    from tosaic.lowering.target import Target


@dataclass(frozen=True, slots=True)
class Family:
    """Targets by name, each with a line about it.

    ``make`` takes a name and the user's options and gives the target; InvalidInput says what is
    wrong with them. Names that begin with ``prefix`` are the family's too, for ``make`` to parse.
    ``kinds`` are the targets that differ in what they take, each with the title of its columns in
    the table of operators; one without a title has none. Calibration is stored for all of them.
    """

    names: Mapping[str, str]
    make: Callable[[str, Mapping[str, Any]], Target]
    prefix: str = ""
    kinds: Mapping[str, str] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        is_parsed = bool(self.prefix) and name.upper().startswith(self.prefix.upper())
        return name in self.names or is_parsed


_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def bytes_of(text: str) -> int:
    """Bytes, as 393216, 384K, 384KiB or 2M."""
    plain = text.lower().removesuffix("b").removesuffix("i").strip()
    digits = plain.rstrip("kmg")
    unit = plain[len(digits) :]
    if not digits.isdigit() or unit not in _UNITS:
        raise InvalidInput(f"'{text}' is no size: write it as 393216, 384K or 2M")
    return int(digits) * _UNITS[unit]

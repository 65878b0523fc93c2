"""A family of targets: what an entry point of the group ``tosaic.targets`` names.

It knows names alone, so that listing targets loads no compiler; ``make`` gives the target itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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

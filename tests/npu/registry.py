"""Where operator families register: a name, on which machines it can run, how a graph is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from npu.maker import Maker
from tosaic.ir.graph import Graph

Make = Callable[[Maker], Graph]


@dataclass(frozen=True, slots=True)
class Family:
    """Graphs of one kind; ``machines`` says whether U55 and U65, U85, or both can run them."""

    name: str
    machines: tuple[str, ...]
    make: Make


FAMILIES: dict[str, Family] = {}


def family(*machines: str) -> Callable[[Make], Make]:
    """Register a generator under its own name, for both kinds of machines unless told."""

    def register(make: Make) -> Make:
        name = make.__name__
        if name in FAMILIES:
            raise ValueError(f"two families are called {name}")
        FAMILIES[name] = Family(name, machines or ("u55", "u85"), make)
        return make

    return register

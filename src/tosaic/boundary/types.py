"""The types that a user requests for inputs and outputs; this module does not need PyTorch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tosaic.errors import InvalidInput

FLOAT = "float"
# The least and the largest zero point that TOSA has with each type of integers.
ZERO_POINTS = {"uint8": (0, 255), "int8": (-128, 127), "int16": (0, 0)}
_WAYS = "give a type, a dict of types by name or index, or a pair of these: (inputs, outputs)"


def misfit(kind: str, zero_point: int) -> str | None:
    """Why integers of a type cannot have a zero point in TOSA; None if they can."""
    low, high = ZERO_POINTS.get(kind, (0, 0))
    if low <= zero_point <= high:
        return None
    allowed = f"is {low} to {high}" if high else "is 0"
    return f"the zero point of {kind} {allowed} in TOSA, it cannot be {zero_point}"


@dataclass(frozen=True, slots=True)
class IO:
    """The type of an input or an output: "uint8", "int8", "int16" or "float".

    ``scale`` and ``zero_point`` are what its integers mean: real = scale · (integer − zero_point).
    Without a scale, they follow from what the program was quantized with.
    """

    dtype: str
    scale: float | None = None
    zero_point: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _type_name(self.dtype))
        if self.scale is None and self.zero_point is None:
            return
        if self.dtype == FLOAT:
            raise InvalidInput("a float has no scale and no zero point: leave them out")
        object.__setattr__(self, "scale", _scale(self.scale))
        object.__setattr__(self, "zero_point", _zero_point(self.zero_point, self.dtype))


def _scale(given: Any) -> float:
    if given is None:
        raise InvalidInput("a zero point needs a scale: give both")
    if not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise InvalidInput(f"a scale is a positive number, not {given!r}")
    return float(given)


def _zero_point(given: Any, kind: str) -> int:
    zero = 0 if given is None else given
    if not isinstance(zero, int) or isinstance(zero, bool):
        raise InvalidInput(f"a zero point is a whole number, not {given!r}")
    problem = misfit(kind, zero)
    if problem:
        raise InvalidInput(problem)
    return zero


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that a program takes or gives; ``fixed`` says why its type cannot be chosen."""

    name: str
    dtype: str = FLOAT
    fixed: str = ""


def requested(
    io: Any, inputs: Sequence[Leaf], outputs: Sequence[Leaf]
) -> tuple[list[IO | None], list[IO | None]]:
    """For each input and output the type that is asked for; None where it stays as it is."""
    sides = {"input": inputs, "output": outputs}
    if isinstance(io, (tuple, list)):
        if len(io) != 2:
            raise InvalidInput(f"io has {len(io)} parts: {_WAYS}")
        return _side("input", io[0], inputs), _side("output", io[1], outputs)
    if not isinstance(io, Mapping):
        return _side("input", io, inputs), _side("output", io, outputs)
    found: dict[str, dict[Any, Any]] = {"input": {}, "output": {}}
    for key, value in io.items():
        found[_which(key, sides)][key] = value
    return _side("input", found["input"], inputs), _side("output", found["output"], outputs)


def _which(key: Any, sides: Mapping[str, Sequence[Leaf]]) -> str:
    """Whether a key means an input or an output; an index counts the inputs."""
    if isinstance(key, int):
        return "input"
    named = [side for side, leaves in sides.items() if any(leaf.name == key for leaf in leaves)]
    if not named:
        there = "; ".join(f"its {side}s are {_listed(leaves)}" for side, leaves in sides.items())
        raise InvalidInput(f"the model has no input or output named {key!r}; {there}")
    if len(named) > 1:
        raise InvalidInput(f"an input and an output are named {key!r}: give io=(inputs, outputs)")
    return named[0]


def _side(side: str, io: Any, leaves: Sequence[Leaf]) -> list[IO | None]:
    if not isinstance(io, Mapping):
        wanted = _io(io)
        return [None if leaf.fixed else wanted for leaf in leaves]
    found: list[IO | None] = [None] * len(leaves)
    for key, value in io.items():
        index, wanted = _index(side, key, leaves), _io(value)
        leaf = leaves[index]
        is_already = (
            wanted is not None and wanted == IO(wanted.dtype) and wanted.dtype == leaf.dtype
        )
        if leaf.fixed and wanted is not None and not is_already:
            raise InvalidInput(f"{side} {leaf.name} cannot be {wanted.dtype}: {leaf.fixed}")
        found[index] = None if leaf.fixed else wanted
    return found


def _index(side: str, key: Any, leaves: Sequence[Leaf]) -> int:
    names = [leaf.name for leaf in leaves]
    if isinstance(key, int) and not isinstance(key, bool):
        if not 0 <= key < len(leaves):
            raise InvalidInput(f"the model has no {side} {key}; its {side}s are {_listed(leaves)}")
        return key
    if key not in names:
        raise InvalidInput(
            f"the model has no {side} named {key!r}; its {side}s are {_listed(leaves)}"
        )
    return names.index(key)


def _listed(leaves: Sequence[Leaf]) -> str:
    return ", ".join(f"{number} ({leaf.name})" for number, leaf in enumerate(leaves)) or "none"


def _io(value: Any) -> IO | None:
    """The type that is asked for; "float" asks for nothing, as the program has floats."""
    made = value if value is None or isinstance(value, IO) else IO(value)
    return None if made is None or made.dtype == FLOAT else made


def _type_name(given: Any) -> str:
    """``uint8`` for "uint8" and torch.uint8, ``float`` for any name of float32."""
    name = str(given).removeprefix("torch.")
    name = FLOAT if name == "float32" else name
    if name not in (*ZERO_POINTS, FLOAT):
        known = ", ".join((*ZERO_POINTS, FLOAT))
        raise InvalidInput(f"io has no type {given!r}; its types are {known}: {_WAYS}")
    return name

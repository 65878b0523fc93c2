"""``--io`` on the command line: types of inputs and outputs, and what their integers mean."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tosaic.boundary.types import IO
from tosaic.errors import InvalidInput

HELP = (
    "uint8, int8, int16 or float; for all, or as inputs=uint8, outputs=float, NAME=uint8, 0=uint8; "
    "with a meaning as uint8:SCALE:ZERO_POINT; may be given several times"
)
_SIDES = ("inputs", "outputs")


def boundary(words: list[str] | None) -> Any:
    """What ``tosaic.compile`` takes as io; None without a word."""
    named: dict[Any, IO] = {}
    for word in words or ():
        name, is_named, kind = word.rpartition("=")
        if not is_named and len(words or ()) > 1:
            raise InvalidInput(f"--io {word} is for all, so it is the only one: name the others")
        if not is_named:
            return _io(kind)
        named[int(name) if name.isdigit() else name] = _io(kind)
    if not named or not named.keys() & set(_SIDES):
        return named or None
    if named.keys() - set(_SIDES):
        raise InvalidInput("--io names either inputs= and outputs=, or single tensors, not both")
    return named.get("inputs"), named.get("outputs")


def _io(text: str) -> IO:
    kind, *numbers = text.split(":")
    try:
        scale, zero = [*numbers, None, None][:2] if len(numbers) < 3 else [""] * 2
        return IO(
            kind,
            None if scale is None else float(Fraction(scale)),
            None if zero is None else int(zero),
        )
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(f"--io {text}: write a meaning as uint8:1/255:0") from None

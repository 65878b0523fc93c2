"""What to do about a refusal, and the user's own lines that it is about."""

from __future__ import annotations

import linecache
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tosaic.lowering.partition import Refusal

Sayings = tuple[tuple[str, str], ...]
_AROUND = 2  # lines shown before and after

_SAYINGS = (
    (r"^it needs .* which is not lowered",
     "This follows from the refusal of the call that it names: look there."),
    (r"there is no rule",
     "Write it with operators that lower (tosaic ops lists them), or leave it on the CPU."),
    (r"size that depends on the input|dynamic",
     "Give the size as a constant, or do this step before or after the compiled part."),
    (r"the 32 bits",
     "Clamp the integers before this call, so that they are known to be small, or compute this "
     "outside of the model."),
    (r"which TOSA does not have|int64|float64|complex",
     "Convert to a type that the target has before this call: int32, int16, int8 or float32."),
    (r"FP profile",
     "A float in a graph of integers: mostly the call before it was refused. Look at the first "
     "refusal, the others often follow from it."),
    (r"lacks|needs|extension|profile",
     "Choose a target that has what is missing, or a scheme that does not need it."),
    (r"dilation|stride|kernel|padding|pad ",
     "Choose smaller kernels, strides or paddings, or split the call into several."),
    (r"axis|axes|rank|dimension|shape",
     "Reshape so that the call has fewer or smaller axes, or split it along one."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the user's source; ``is_it`` marks the one that was refused."""

    number: int
    text: str
    is_it: bool


@dataclass(frozen=True, slots=True)
class Other:
    """Another call that is refused for the same reason."""

    place: str
    node: int


@dataclass(frozen=True, slots=True)
class Told:
    """A refusal as a page shows it."""

    op: str
    reason: str
    advice: str
    module: str
    file: str
    line: int
    lines: tuple[Line, ...]
    node: int = -1
    others: tuple[Other, ...] = ()


def told_together(refused: Sequence[Refusal], nodes: Mapping[str, int], own: Sayings = ()) -> Told:
    """Refusals of one operator for one reason as one; ``nodes`` are places of calls on the page."""
    first = told(refused[0], nodes.get(refused[0].node, -1), own)
    others = tuple(Other(r.where, nodes.get(r.node, -1)) for r in refused[1:])
    return replace(first, others=others)


def told(refusal: Refusal, node: int, own: Sayings = ()) -> Told:
    """A refusal with advice and the lines round it; ``node`` is its place on the page.

    ``own`` is advice of the target itself.
    """
    place, _, rest = refusal.where.rpartition(", ")
    file, _, number = rest.rpartition(":")
    if not number.isdigit():
        return Told(
            refusal.op, refusal.reason, advice(refusal.reason, own), refusal.where, "", 0, (), node
        )
    line = int(number)
    return Told(
        refusal.op, refusal.reason, advice(refusal.reason, own), place, file, line,
        _lines(file, line), node,
    )  # fmt: skip


def advice(reason: str, own: Sayings = ()) -> str:
    """What a user can do, by what the reason is about; nothing where that is not known."""
    known = (say for pattern, say in (*own, *_SAYINGS) if re.search(pattern, reason, re.IGNORECASE))
    return next(known, "")


def _lines(file: str, line: int) -> tuple[Line, ...]:
    numbers = range(max(line - _AROUND, 1), line + _AROUND + 1)
    found = [(n, text.rstrip()) for n in numbers if (text := linecache.getline(file, n))]
    plain = textwrap.dedent("\n".join(text for _, text in found)).split("\n")
    return tuple(Line(n, text, n == line) for (n, _), text in zip(found, plain))

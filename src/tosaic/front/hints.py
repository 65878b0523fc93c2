"""Hints for the quantizer on a node, beside the policy of its rule."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

MARK = "tosaic.mark"
CALL = "tosaic.call"  # the name of the exported call that a call was made of
LACKS = "tosaic.lacks"  # which part of a call that has no rule is refused, and why
HELD = "tosaic.held"  # whether an input of a program is one of its parameters or buffers


@dataclass(frozen=True, slots=True)
class Mark:
    """``wide`` asks for 16 bits where the target has them, ``tie`` names calls whose results have
    one range. Behind a slash in it is what only 16 bits have room for. ``limits`` is the range
    of a wide value that matters to those that read it. ``reads`` says whether the call's operands
    have 16 bits as well, or what they have. ``carried`` is a running sum or what is added to it:
    it has 16 bits on every target, since sums have, and others than sums read 8 of them. ``long``
    is a "signed" part of a spectrum or its "magnitude", which have 32 bits; ``split`` says that a
    layer has a part of another's weights."""

    wide: bool = False
    tie: str = ""
    limits: tuple[float, float] | None = None
    reads: bool = True
    carried: bool = False
    long: str = ""
    split: bool = False


_NONE = Mark()


def mark_of(node: fx.Node) -> Mark:
    found = node.meta.get(MARK)
    return found if isinstance(found, Mark) else _NONE

"""The precision chosen for a call: its integer types, or float, and the reason."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

CHOICE = "tosaic.choice"  # where a node keeps it
UNNAMED = 5  # the rank of a rule for everything


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheme, or None for float, the rule that it comes from, and why it could not be followed.

    ``rank`` says how exactly the rule names a part: 0 is one call. ``schemes`` are all that there
    were to choose from.
    """

    scheme: Any
    rule: str
    rank: int = UNNAMED
    reason: str = ""
    schemes: Any = field(default=None, repr=False, compare=False)

    def refused(self, reason: str) -> Choice:
        """The same for a call that stays in float."""
        return replace(self, scheme=None, reason=reason)


def left_in_float(node: fx.Node) -> str:
    """The words of a rule that leaves a call in float, in front of another reason."""
    choice = node.meta.get(CHOICE)
    if isinstance(choice, Choice) and choice.scheme is None and not choice.reason:
        return f"it is left in float ({choice.rule}), and "
    return ""


def refused_in_integers(node: fx.Node) -> str:
    """Why a call could not be quantized, which is why it is in float; "" if that is not it.

    What takes a result out of several has no reason but that of the call that gives them.
    """
    choice = None if node.target is operator.getitem else node.meta.get(CHOICE)
    return choice.reason if isinstance(choice, Choice) and choice.scheme is None else ""

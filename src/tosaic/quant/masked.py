"""What softmax reads behind a mask, where it is no attention that is known as a whole.

A sum with −10000 or −∞ leaves no room for the other numbers: a condition chooses between them and
one that is far below, or the mask is no farther below than has an effect. What then is far below
the largest of its row does not count for the range either: see ``quant.readers``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.quant.annotations import values_of
from tosaic.quant.masking import FAR, Masking, allowed, held, terms

aten = torch.ops.aten
SOFTMAXES = frozenset({"aten.softmax.int", "aten._softmax.default"})
_SIGNS = {
    "aten.add.Tensor": 1,
    "aten.add_.Tensor": 1,
    "aten.sub.Tensor": -1,
    "aten.sub_.Tensor": -1,
}


def part_masks(module: fx.GraphModule) -> None:
    """Let each softmax read its scores where a mask allows them, and ``FAR`` elsewhere."""
    found = False
    for node in list(module.graph.nodes):
        if node.op == "call_function" and torchapi.target_name(node) in SOFTMAXES:
            while (made := _parted(module, node, node.args[0])) is not None:
                node.replace_input_with(node.args[0], made)
                found = True
    if found:
        module.graph.eliminate_dead_code()
        module.recompile()


def _parted(module: fx.GraphModule, home: fx.Node, scores: Any) -> fx.Node | None:
    """Scores and a mask that are added up, chosen instead; None if they are something else."""
    if not isinstance(scores, fx.Node) or len(scores.users) != 1 or scores.op != "call_function":
        return None
    sign, bound = _SIGNS.get(torchapi.target_name(scores)), torchapi.bound_arguments(scores)
    if sign is None or bound["alpha"] != 1:
        return None
    for one, other in (("self", "other"), ("other", "self"))[: 2 if sign > 0 else 1]:
        base, mask = bound[one], bound[other]
        if not all(isinstance(n, fx.Node) for n in (base, mask)) or values_of(base) is not None:
            continue
        if base.meta["val"].shape != scores.meta["val"].shape:
            continue
        with module.graph.inserting_before(home):
            known = values_of(mask)
            made = (
                _conditional(home, base, mask, sign)
                if known is None
                else _limited(module, home, base, known * sign)
            )
        if made is not None:
            return made
    return None


def _limited(module: fx.GraphModule, home: fx.Node, base: fx.Node, mask: Tensor) -> fx.Node | None:
    """A known mask whose numbers are no lower than has an effect."""
    if not bool((mask < FAR).any()):
        return None
    near = held(module, home, mask.detach().clamp(min=FAR))
    return torchapi.new_call(home, aten.add.Tensor, (base, near))


def _conditional(home: fx.Node, base: fx.Node, mask: fx.Node, sign: int) -> fx.Node | None:
    """Scores where the condition behind a mask that is computed allows them."""
    shape = torchapi.known_shape(base.meta["val"]) or ()
    found = terms(home, Masking(mask, shape=shape), sign)
    if any(term.value is None or term.value > FAR for term in found):
        return None
    made = base
    for term in found:
        args = allowed(home, term), made, FAR
        made = torchapi.new_call(home, aten.where.ScalarOther, args)
    return made

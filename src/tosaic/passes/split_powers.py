"""Makes of a power with constant exponents, or constant bases, one function for each of them.

A power of two tensors has no table of 16 bits; one with a number for exponent or base has. A few
different numbers are as many tables, between which a constant mask selects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, fx

from tosaic.front import torchapi
from tosaic.passes.decompose import inline
from tosaic.passes.engine import Replacement, node_pass
from tosaic.passes.match import constant_of

_MOST, _LARGEST = 8, 1 << 14  # different numbers, and elements of the mask


@node_pass("aten.pow.Tensor_Tensor")
def split_powers(node: fx.Node) -> Replacement:
    base, exponent = (constant_of(v) for v in torchapi.bound_arguments(node).values())
    known, module = exponent if base is None else base, node.graph.owning_module
    if module is None or known is None or (base is not None and exponent is not None):
        return None
    numbers = sorted(set(known.flatten().tolist()))
    shape = torchapi.known_shape(node.meta["val"])
    if not 0 < len(numbers) <= _MOST or known.numel() > _LARGEST or shape is None:
        return None
    function = _power if base is None else _exponential
    parts = torchapi.decomposed(node, partial(_selected, function, known.tolist(), numbers, shape))
    return None if parts is None else inline(module, node, parts)


def _selected(
    function: Callable[[Tensor, Tensor, float], Tensor],
    known: object, numbers: list[float], shape: tuple[int, ...], one: Tensor, other: Tensor,
) -> Tensor:  # fmt: skip
    made = function(one, other, numbers[0])
    for number in numbers[1:]:
        made = torch.where(torch.tensor(known) == number, function(one, other, number), made)
    return made if made.shape == shape else made.expand(shape)


def _power(base: Tensor, exponent: Tensor, number: float) -> Tensor:
    return base ** (int(number) if number.is_integer() else number)


def _exponential(base: Tensor, exponent: Tensor, number: float) -> Tensor:
    return number**exponent

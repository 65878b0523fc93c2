"""Statements of the registry's own samples: each overload that has a rule, fed with the values of
the program, which are brought to the shapes and the domain that the sample wants.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tosaic.rules  # noqa: F401  (fills the registry)
from judges.fuzz.writer import Retry, Writer
from judges.rendezvous import name_by_number
from tosaic.lowering.samples import Case, cases


class _Name:
    """A name among the arguments of a call, which prints as it is."""

    def __init__(self, text: str) -> None:
        self.text = text


@cache
def _cases() -> dict[str, Case]:
    return {str(c): c for c in cases() if "out" not in c.target.rsplit(".", 1)[1]}


def sample(w: Writer) -> None:
    """``torch.ops.aten.…`` with the arguments of a sample, and results of the program in it."""
    known = _cases()
    case = known[name_by_number(tuple(known), w.below(1 << 63))]
    fixed = case.rule.policy == "WEIGHTED" or case.rule.constants
    names: list[Any] = []
    for i, made in enumerate(case.tensors()):
        kind = case.sample.kind(i)
        if kind == "bool" and w.chance(0.7):
            brought = _brought(w, tuple(made.shape), (-100.0, 100.0))
            names.append(_Name(f"({brought} > {w.number()})"))
        elif kind or (i and (fixed or w.chance(0.3))):
            names.append(_Name(_constant(w, made)))
        else:
            brought = _brought(w, tuple(made.shape), case.sample.domain)
            names.append(_Name(f"{brought}.clone()" if "_." in case.target and not i else brought))
    given = [_written(w, a) for a in case._arguments(names)]
    given += [f"{name}={_written(w, a)}" for name, a in case._keywords().items()]
    packet, overload = case.target.removeprefix("aten.").rsplit(".", 1)
    call = f"torch.ops.aten.{packet}.{overload}({', '.join(given)})"
    returns = case.overload._schema.returns
    several = len(returns) > 1 or (returns and "List" in str(returns[0].type))
    w.bind(f"{call}[{w.below(max(len(returns), 1))}]" if several else call)


def _written(w: Writer, argument: Any) -> str:
    if isinstance(argument, _Name):
        return argument.text
    if isinstance(argument, Tensor):
        return _constant(w, argument)
    if isinstance(argument, (list, tuple)):
        inner = ", ".join(_written(w, a) for a in argument)
        return f"[{inner}]"
    if isinstance(argument, torch.device):
        return f"torch.{argument!r}"
    if isinstance(argument, float):
        return f"float('{argument}')" if not np.isfinite(argument) else repr(argument)
    return repr(argument)


def _constant(w: Writer, made: Tensor) -> str:
    """A buffer with the numbers of a sample, as text."""
    if made.numel() > 512:
        raise Retry("too long a text")
    numbers = made.tolist()
    if made.is_floating_point():
        numbers = np.round(np.asarray(numbers), 4).tolist()
    return w.member(
        f"torch.tensor({numbers}, dtype={made.dtype}).reshape({tuple(made.shape)})", "c"
    )


def _brought(w: Writer, shape: tuple[int, ...], domain: tuple[float, float]) -> str:
    """A value in the shape and the range that an operator wants."""
    name = w.pick("f")
    value, size = w.values[name], int(np.prod(shape))
    text = name
    if tuple(value.shape) != shape:
        if value.numel() == size:
            text = f"{name}.reshape({shape})"
        elif value.numel() > size:
            text = f"{name}.flatten()[:{size}].reshape({shape})"
        else:
            times = -(-size // value.numel())
            text = f"{name}.flatten().repeat({times})[:{size}].reshape({shape})"
    low, high = domain
    if float(value.min()) < low or float(value.max()) > high:
        text = f"({low} + {high - low} * torch.sigmoid({text}))"
    return w.bind(text)[0] if text != name else name

"""Checks run-time arguments against the inputs that the program was exported with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from tosaic.boundary.qparams import QParams, input_qparams
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.program import Program

INT32 = torch.iinfo(torch.int32)


@dataclass(frozen=True, slots=True)
class Given:
    """A leaf of a call's arguments; ``was_real`` if integers were made of real numbers."""

    value: Any
    was_real: bool = False


def given_values(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Given]:
    """The leaves of a call's arguments, each checked; InvalidInput says what does not fit.

    Where the program takes integers for real numbers, both are accepted.
    """
    return checked_leaves(program, leaves_of(program, args, kwargs))


def checked_leaves(program: Program, flat: list[Any], is_free: bool = False) -> list[Given]:
    """Leaves of a call's arguments, each checked; sizes are not where they are free."""
    if len(flat) != len(program.arguments):
        wanted = len(program.arguments)
        raise _wrong_count(wanted, len(flat))
    return [
        _checked(number, node, value, input_qparams(program, node), is_free)
        for number, (node, value) in enumerate(zip(program.arguments, flat))
    ]


def _wrong_count(wanted: int, given: int) -> InvalidInput:
    return InvalidInput(f"the program takes {wanted} input{'s' * (wanted != 1)}, not {given}")


def first_values(
    program: Program, given: Iterable[Any], states: Iterable[Any]
) -> dict[fx.Node, Any]:
    """What a run begins with: constants, regions, inputs and state, by node."""
    values: dict[fx.Node, Any] = {**program.tensors, **program.regions}
    values.update(zip(program.inputs, [*given, *states], strict=True))
    return values


def leaves_of(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's arguments, in order or by name."""
    if program.in_spec is None:
        if kwargs:
            raise InvalidInput(f"the program takes no argument named {next(iter(kwargs))}")
        return torchapi.flatten(args)[0]
    positions, names = torchapi.arguments_of(program.in_spec)
    if kwargs and not names:
        args, kwargs = _in_order(program, args, kwargs), {}
    if len(args) != positions:
        raise _wrong_count(positions, len(args))
    for name in kwargs.keys() - names:
        raise InvalidInput(f"the program takes no argument named {name}")
    for name in sorted(names - kwargs.keys()):
        raise InvalidInput(f"the argument {name} is missing")
    try:
        return torchapi.flatten_as((args, kwargs), program.in_spec)
    except ValueError as problem:
        text = str(problem).strip().splitlines()[0]
        raise InvalidInput(f"the inputs are not nested like the example: {text}") from None


def _in_order(program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments that were given by name, behind those that were given in order."""
    wanted = _names(program)
    for name in kwargs:
        if name not in wanted:
            raise InvalidInput(f"the program takes no argument named {name}; it takes "
                               f"{', '.join(wanted) or 'none'}")  # fmt: skip
        if name in wanted[: len(args)]:
            raise InvalidInput(f"the argument {name} is given twice")
    known = {n.name: n.meta["val"] for n in program.arguments if "val" in n.meta}
    fixed = {name: value for name, value in known.items() if not isinstance(value, Tensor)}
    given = {**fixed, **kwargs}
    for name in wanted[len(args) :]:
        if name not in given:
            raise InvalidInput(f"the argument {name} is missing")
    return (*args, *(given[name] for name in wanted[len(args) :]))


def _names(program: Program) -> list[str]:
    """The arguments by name: a nested one has the name that its parts begin with."""
    found, rest = [], [node.name for node in program.arguments]
    for child in torchapi.positional_of(program.in_spec):
        own, rest = rest[: child.num_leaves], rest[child.num_leaves :]
        if child.is_leaf():
            found += own
        else:
            alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*own))
            begin = "".join(letters[0] for letters in alike)
            found.append(begin.rstrip("_") if len(own) > 1 else begin.rpartition("_")[0])
    return found


def _checked(
    number: int, node: fx.Node, value: Any, qparams: QParams | None, is_free: bool = False
) -> Given:
    example = node.meta.get("val")
    if not isinstance(example, Tensor):
        if "val" in node.meta and (type(value) is not type(example) or value != example):
            raise InvalidInput(
                f"input {number} ({node.name}) was {example!r} at export and is part of the "
                f"program, so it cannot be {value!r}: compile again for that value"
            )
        return Given(value)
    wanted = _described(example) + (" or the floats it stands for" if qparams else "")
    if isinstance(value, np.ndarray):
        value = torch.as_tensor(value)
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise InvalidInput(f"input {number} ({node.name}) must be {wanted}, not {kind}")
    if value.layout is not torch.strided or value.is_meta or value.is_nested:
        layout = str(value.layout).removeprefix("torch.")
        kind = "meta" if value.is_meta else "nested" if value.is_nested else layout
        raise InvalidInput(f"input {number} ({node.name}) must be a dense tensor, not a {kind} one")
    was_real = qparams is not None and value.dtype.is_floating_point
    if qparams is not None and was_real:
        value = qparams.quantize(value)
    fits = is_free or torchapi.known_shape(value) == torchapi.known_shape(example)
    if value.dtype is not example.dtype or not fits:
        raise InvalidInput(
            f"input {number} ({node.name}) must be {wanted}, as in the export, "
            f"not {_described(value)}"
        )
    return Given(value.cpu(), was_real)


def _described(tensor: Tensor) -> str:
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{kind}[{','.join(map(str, torchapi.known_shape(tensor) or tensor.shape))}]"


def narrowed(name: str, value: Any) -> Tensor:
    """A tensor as a graph takes it: TOSA's integers have 32 bits at most."""
    tensor = torch.as_tensor(value).detach()
    if tensor.dtype is not torch.int64:
        return tensor
    low, high = (int(end) for end in torch.aminmax(tensor)) if tensor.numel() else (0, 0)
    if low < INT32.min or high > INT32.max:
        worst = low if low < INT32.min else high
        raise InvalidInput(
            f"{name} holds {worst}, which does not fit the 32 bits of TOSA's integers"
        )
    return tensor.to(torch.int32)

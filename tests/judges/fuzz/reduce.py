"""Reduction of a faulty program: statements are dropped as long as the fault stays the same."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from judges.fuzz.generate import runs
from judges.fuzz.program import NAME, Input, Program, plain_cond

_CALLS = re.compile(r"(?:\b|\.)([A-Za-z]\w*)\(|( [-+*/@<>%&|^=]{1,2} )|(\[)")


def reduced(made: Program, fails: Callable[[Program], bool], seconds: float = 12.0) -> Program:
    """The smallest program found in some CPU seconds for which ``fails`` holds."""
    start, best = time.process_time(), made
    improved = True
    while improved:
        improved = False
        for candidate in _smaller(best):
            if time.process_time() - start > seconds:
                return best
            if runs(candidate) and fails(candidate):
                best, improved = candidate, True
                break
    return best


def _smaller(made: Program) -> Iterator[Program]:
    """One result only; without a statement; with its result as an operand or as an input."""
    if len(made.outputs) > 1:
        for name in made.outputs:
            yield replace(made, outputs=(name,)).without_unread()
        for name in made.outputs:
            rest = tuple(o for o in made.outputs if o != name)
            yield replace(made, outputs=rest).without_unread()
    values = _values(made)
    for place in reversed(range(len(made.statements))):
        statement = made.statements[place]
        rest = made.statements[:place] + made.statements[place + 1 :]
        bare = replace(made, statements=rest)
        if not statement.makes:
            yield bare.without_unread()
            continue
        for operand in dict.fromkeys(NAME.findall(statement.text.partition(" = ")[2])):
            if not operand.startswith("self."):
                yield _renamed(bare, statement.makes[0], operand).without_unread()
        if all(name in values for name in statement.makes):
            drawn = [Input(name, _drawn(values[name])) for name in statement.makes]
            yield replace(bare, inputs=(*made.inputs, *drawn)).without_unread()


def _renamed(made: Program, name: str, other: str) -> Program:
    found = re.compile(rf"\b{name}\b")
    return replace(
        made,
        statements=tuple(replace(s, text=found.sub(other, s.text)) for s in made.statements),
        outputs=tuple(dict.fromkeys(found.sub(other, o) for o in made.outputs)),
    )


def _drawn(value: Tensor) -> str:
    """The expression of an input that is like a value."""
    shape = tuple(value.shape)
    if value.dtype == torch.bool:
        return f"torch.randint(0, 2, {shape}, generator=g).bool()"
    low, high = value.min().item(), value.max().item()
    if not value.is_floating_point():
        cast = ".int()" if value.dtype == torch.int32 else ""
        return f"torch.randint({low}, {high + 1}, {shape}, generator=g){cast}"
    return f"torch.rand({shape}, generator=g) * {high - low:.4g} + {low:.4g}"


def _values(made: Program) -> dict[str, Tensor]:
    """What each name is first, on the inputs of seed 0."""
    space: dict[str, object] = {"torch": torch, "nn": nn, "F": F, "self": nn.Module()}
    space["g"] = torch.Generator().manual_seed(0)
    lines = [line for _, line in made.members]
    lines += [f"{i.name} = {i.drawn}" for i in made.inputs]
    found: dict[str, Tensor] = {}
    with torch.no_grad(), plain_cond(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in lines:
            exec(line, space)
        space["self"].eval()  # type: ignore[attr-defined]
        for statement in made.statements:
            exec(statement.text, space)
            for name in statement.makes:
                value = space[name]
                if isinstance(value, Tensor):
                    found[name] = value.clone()
    return found


def operators(text: str) -> str:
    """The kinds of calls in a program, by which faults are told apart."""
    body = text.partition("def forward")[2].partition("        return (")[0].partition("\n")[2]
    layers = re.findall(r"nn\.(\w+)\(", text)
    calls = {next(filter(None, groups)).strip() for groups in _CALLS.findall(body)}
    return " ".join(sorted({*layers, *calls} - {"clone"}))

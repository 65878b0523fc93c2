"""A fuzzed program: an ``nn.Module`` as source text, which is printed, saved and run again."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

NAME = re.compile(r"(?<![\w.])(?:v|x)\d+\b|self\.\w+")


@dataclass(frozen=True, slots=True)
class Input:
    """An argument of ``forward``: its name and the expression that draws it with ``g``."""

    name: str
    drawn: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A line of ``forward`` and the names that it binds; none where it writes in place."""

    text: str
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """Inputs, members of the module with the lines that make them, statements and results."""

    inputs: tuple[Input, ...]
    members: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]
    outputs: tuple[str, ...]
    is_named: bool = False  # whether the results are a dict with a list in it

    @property
    def text(self) -> str:
        """The module and the function ``inputs`` as Python."""
        body = [s.text for s in self.statements]
        used = set(NAME.findall("\n".join([*body, *self.outputs])))
        made = [line for name, line in self.members if name in used]
        results = ", ".join(self.outputs) + ("," if len(self.outputs) == 1 else "")
        if self.is_named:
            results = f"{{'first': {self.outputs[0]}, 'rest': [{', '.join(self.outputs[1:])}]}}"
        drawn = "".join(f"        {i.drawn},\n" for i in self.inputs)
        return "\n".join([
            "import torch",
            "from torch import nn",
            "from torch.nn import functional as F",
            "",
            "",
            "class Program(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {line}" for line in made),
            "",
            f"    def forward(self, {', '.join(i.name for i in self.inputs)}):",
            *(f"        {line}" for line in body),
            f"        return ({results})",
            "",
            "",
            "def inputs(seed):",
            "    g = torch.Generator().manual_seed(seed)",
            f"    return (\n{drawn}    )",
            "",
        ])  # fmt: skip

    def without_unread(self) -> Program:
        """The program without statements and inputs that no result needs."""
        needed = set(self.outputs)
        kept: list[Statement] = []
        for s in reversed(self.statements):
            if not s.makes or needed.intersection(s.makes):
                kept.append(s)
                needed.update(NAME.findall(s.text))
        inputs = tuple(i for i in self.inputs if i.name in needed) or self.inputs[:1]
        return replace(self, statements=tuple(reversed(kept)), inputs=inputs)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the text of a program defines: the module's class and the source of its inputs."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]

    def results(self, seeds: Iterable[int]) -> list[list[Tensor]]:
        """What eager PyTorch gives for inputs in turn, with the state that each leaves."""
        model = self.make()
        return [eager(model, self.inputs(seed)) for seed in seeds]


def load(text: str, path: str = "<program>") -> Loaded:
    """Execute the text; tracebacks and reports show its lines."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    made = ModuleType("fuzzed")
    sys.modules["fuzzed"] = made  # torch.export looks a class up in its module
    exec(compile(text, path, "exec"), made.__dict__)
    return Loaded(lambda: made.Program().eval(), made.inputs)


@contextmanager
def plain_cond() -> Iterator[None]:
    """torch.cond as Python's own branch: eagerly it would be compiled, which takes seconds."""
    with patch.object(torch, "cond", lambda chosen, a, b, given: (a if chosen else b)(*given)):
        yield


def eager(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The results and the inputs behind them, which the program may have written to."""
    given = tuple(t.clone() for t in inputs)
    with torch.no_grad(), plain_cond():
        results = [t.clone() for t in tree_leaves(model(*given))]
    return [*results, *given]

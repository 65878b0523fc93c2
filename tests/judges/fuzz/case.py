"""A fuzzed program with what its judgements share, and what they find."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from judges.fuzz.edges import FakeQuant
from judges.fuzz.generate import SEEDS
from judges.fuzz.program import NAME, load
from tosaic.front import torchapi
from tosaic.front.functionalize import is_functional
from tosaic.pipeline.artifact import Artifact

# Calls whose result jumps: two right answers may be on its two sides.
JUMPS = re.compile(
    r"floor|ceil|round|trunc|frac|sign|sgn|heaviside|[<>]|==|\b(eq|ne|lt|gt|le|ge)\(|isclose|"
    r"logical|isfinite|arg(max|min|sort)|bucketize|searchsorted|\bany|\ball|nonzero|remainder|"
    r"fmod|%|//|histc|sort|topk|kthvalue|median|quantile|cummax|hardshrink|softshrink|threshold|"
    r"\.int\(|\.long\(|\.bool\(|copysign|2: .*max\(|, v\d+ = |torch\.cond|int32|one_hot|max_pool|"
    r"nextafter|half|bfloat16"
)
TIES = re.compile(r"arg(max|min|sort)|sort|topk|kthvalue|median|, v\d+ = |one_hot|mode|cummax")
WHOLE = re.compile(r"round\(|floor\(|ceil\(|trunc\(|sign\(|sgn\(| [<>]=? | == |\.(int|long|bool)\(")
EVALUATED = range(4)  # seeds of the inputs that results are compared on
CONFIRMED = range(12)  # those on which too much noise is confirmed


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, with the key by which equal faults are recognised."""

    kind: str
    told: str
    key: str = ""


@dataclass(slots=True)
class Verdict:
    """Faults of a program on a configuration, what is listed only, and where its calls went."""

    faults: list[Finding] = field(default_factory=list)
    listed: list[Finding] = field(default_factory=list)
    whole: bool = False


class Case:
    """A program with what its judgements share: eager results, references, one export."""

    def __init__(self, text: str, path: str = "<program>") -> None:
        self.text = text
        self.loaded = load(text, path)
        self.has_jumps = JUMPS.search(_body(text)) is not None
        self._references: dict[int, FakeQuant] = {}
        self._exported: Any = None

    @cached_property
    def expected(self) -> list[list[Tensor]]:
        return self.loaded.results(CONFIRMED)

    def reference(self, bits: int) -> FakeQuant:
        if bits not in self._references:
            self._references[bits] = FakeQuant(self.loaded, SEEDS, bits)
        return self._references[bits]

    @property
    def model(self) -> Any:
        """The module, and for further configurations the program that was exported of it.

        To make a program with writes functional takes PyTorch seconds.
        """
        if self._exported is None:
            self._exported = False
            return self.loaded.make()
        if self._exported is False:
            made = torchapi.captured(self.loaded.make(), self.loaded.inputs(0), None)
            known = is_functional(made.graph_module)
            self._exported = made if known else torchapi.functional(made)
        return self._exported

    def is_whole(self, number: int) -> bool:
        """Whether a result is whole by construction, and no index among equals."""
        names = NAME.findall(_body(self.text).partition("return (")[2])
        if number >= len(names) or TIES.search(_body(self.text)):
            return False
        value = self.expected[0][number].double()
        made = re.search(rf"\b{names[number]} = (.*)", self.text)
        line = made.group(1) if made is not None else "cond"
        known = WHOLE.search(line) is not None and not re.search(
            "cond|where|softmax|fill|attn_mask", line
        )
        return known and bool((value == value.round()).all())


def _body(text: str) -> str:
    return text.partition("def forward")[2].partition("def inputs")[0]


def run(art: Artifact, given: Sequence[Tensor], engine: str | None = None) -> list[Tensor]:
    """Results, and behind them the inputs, which may be written to."""
    copies = [t.clone() for t in given]
    return [*tree_leaves(art.run(*copies, engine=engine)), *copies]


def runs(art: Artifact, case: Case, seeds: range) -> list[list[Tensor]]:
    """Results for inputs in turn, from the first state on."""
    art.reset()
    rows = [run(art, case.loaded.inputs(s), "tosa") for s in seeds]
    art.reset()
    return rows

"""Explains which calls of a model a target runs, and why it refuses the rest."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tosaic.front import torchapi
from tosaic.front.calls import DEQUANTIZE, QUANTIZE
from tosaic.front.program import Program
from tosaic.lowering.partition import Partition, Refusal
from tosaic.lowering.sides import partition
from tosaic.pipeline.driver import program_for
from tosaic.pipeline.report import placements, refusals
from tosaic.runtime.printed import Printed, grid
from tosaic.targets.catalog import target_of


@dataclass(frozen=True, slots=True)
class Call:
    """An operator of the program, the place that runs it, and why it is not compiled.

    With ``is_hosted`` the device takes it, and the host is faster.
    """

    op: str
    compiled: bool
    reason: str
    where: str
    is_hosted: bool = False


@dataclass(frozen=True)
class Explanation(Printed):
    """Every call of a program in order; prints as a summary and the refusals."""

    target: str
    graphs: int
    calls: tuple[Call, ...]

    @property
    def refused(self) -> list[Refusal]:
        return self._outside(False)

    @property
    def hosted(self) -> list[Refusal]:
        return self._outside(True)

    def _outside(self, is_hosted: bool) -> list[Refusal]:
        found = (c for c in self.calls if not c.compiled and c.is_hosted is is_hosted)
        return [Refusal(c.op, c.reason, c.where) for c in found]

    def parts(self) -> Iterable[Any]:
        inside = Counter(c.op for c in self.calls if c.compiled)
        outside = Counter(c.op for c in self.calls if not c.compiled)
        graphs = "graph" if self.graphs == 1 else "graphs"
        yield (
            f"{self.target}: {inside.total()} of {len(self.calls)} calls "
            f"would be compiled, in {self.graphs} {graphs}"
        )
        table = grid("operator", "compiled", "in PyTorch", numbers=["compiled", "in PyTorch"])
        for op in sorted(inside.keys() | outside.keys()):
            table.add_row(op, str(inside[op] or ""), str(outside[op] or ""))
        yield table
        yield from placements(self.hosted)
        yield from refusals(self.refused, bool(self.hosted))


def explain_model(
    model: Any, example_inputs: tuple[Any, ...], target: str, scheme: Any
) -> Explanation:
    """Run the rules of every call, and keep their answers alone."""
    chosen = target_of(target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ranges of the examples do for this
        program = program_for(model, example_inputs, chosen, scheme, None)
    found = partition(program, chosen)
    return Explanation(chosen.name, len(found.graphs), tuple(_calls(program, found)))


def _calls(program: Program, found: Partition) -> Iterable[Call]:
    reasons = {refusal.node: refusal for refusal in (*found.refused, *found.hosted)}
    hosted = {call.node for call in found.hosted}
    for node in program.calls:
        target = torchapi.target_name(node)
        if target == QUANTIZE or target in DEQUANTIZE or target == "getitem":
            continue
        refusal = reasons.get(node.name)
        place = torchapi.location(node).place
        why = refusal.reason if refusal else ""
        yield Call(target, refusal is None, why, place, node.name in hosted)

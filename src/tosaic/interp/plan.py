"""A plan: a graph prepared once, run many times.

Each step holds a prepared kernel and the registers it reads, writes and frees. A fused step
keeps its parts, so that a value inside it can be observed without a second run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp.exact import strict_float32
from tosaic.interp.fuse import FUSED, Group, groups
from tosaic.interp.kernel import KERNELS, Context, Run, to_torch
from tosaic.ir.graph import Graph, Op, Value


@dataclass(slots=True)
class Step:
    """One prepared kernel, the registers around it, and its parts if it was fused."""

    run: Run
    op: Op
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...] = ()
    parts: tuple[Step, ...] = ()
    inside: frozenset[int] = frozenset()


class Plan:
    """The prepared steps of a graph; regions of control flow have plans of their own."""

    def __init__(self, graph: Graph, context: Context | None = None) -> None:
        self.graph = graph
        self.context = context or Context(lambda region: Plan(region, self.context).execute)
        self._registers = {value: i for i, value in enumerate(graph.values())}
        self._initial = [_initial(value) for value in self._registers]
        self._inputs = tuple(self._registers[v] for v in graph.inputs)
        self._outputs = tuple(self._registers[v] for v in graph.outputs)
        self.steps = [step for group in groups(graph) for step in self._steps(group)]
        self._plan_frees()

    def _steps(self, group: Group) -> Iterator[Step]:
        maker = FUSED.get(group.kind or "")
        run = maker(group, self.context) if maker else None
        parts = tuple(self._single(op) for op in group.ops)
        if run is None:
            yield from parts
            return
        reads = tuple(self._registers[v] for v in group.ins)
        writes = tuple(self._registers[v] for v in group.outs)
        inside = frozenset(r for part in parts[:-1] for r in part.writes)
        yield Step(run, group.ops[-1], reads, writes, parts=parts, inside=inside)

    def _single(self, op: Op) -> Step:
        maker = KERNELS.get(op.name)
        if maker is None:
            raise Unsupported(f"the interpreter does not run {op.name}", op)
        reads = tuple(self._registers[v] for v in op.ins)
        writes = tuple(self._registers[v] for v in op.outs)
        return Step(maker(op, self.context), op, reads, writes)

    def _plan_frees(self) -> None:
        """Let each register go after the last step that reads it; constants and results stay."""
        kept = {r for v, r in self._registers.items() if v.is_const} | set(self._outputs)
        for step in reversed(self.steps):
            dead = {*step.reads, *step.writes, *step.inside} - kept
            kept |= dead
            step.frees = tuple(dead)

    def execute(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for tensors in graph order, already of the right types and shapes."""
        return self.observe(inputs, ())[0]

    def observe(
        self, inputs: Sequence[Tensor], watch: Collection[Value]
    ) -> tuple[list[Tensor], dict[Value, Tensor]]:
        """The outputs, and the values to watch, from one run."""
        registers = self._initial.copy()
        for register, tensor in zip(self._inputs, inputs, strict=True):
            registers[register] = tensor
        wanted = {self._registers[v]: v for v in watch}
        seen = {v: t for r, v in wanted.items() if (t := registers[r]) is not None}
        with torch.inference_mode(), strict_float32():
            for step in self.steps:
                fused = wanted.keys().isdisjoint(step.inside)
                for part in (step,) if fused else step.parts:
                    _run(part, registers)
                if wanted:
                    for register in (*step.inside, *step.writes):
                        if register in wanted:
                            seen[wanted[register]] = _present(registers[register])
                for register in step.frees:
                    registers[register] = None
        return [_present(registers[r]) for r in self._outputs], seen


def _run(step: Step, registers: list[Tensor | None]) -> None:
    try:
        result = step.run(*[registers[r] for r in step.reads])
    except Unpredictable as problem:
        raise Unpredictable(f"{step.op.name}: {problem.reason}", step.op) from None
    if isinstance(result, Tensor):
        registers[step.writes[0]] = result
    else:
        for register, tensor in zip(step.writes, result or (), strict=True):
            registers[register] = tensor


def _initial(value: Value) -> Tensor | None:
    if value.const is None or value.producer is not None:
        return None
    return to_torch(value.const.array, value.dtype)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor

"""A plan: a graph prepared once, run many times.

Each step holds a prepared kernel and the registers it reads, writes and frees. A fused step that
fails also runs as its parts, which tell the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tosaic.errors import Unpredictable, Unsupported
from tosaic.interp import onednn
from tosaic.interp.device import CPU, on
from tosaic.interp.exact import strict_float32
from tosaic.interp.fuse import FUSED, Group, carried, groups
from tosaic.interp.kernel import KERNELS, TORCH, Context, Run, place, to_torch
from tosaic.interp.row_chains import RowChain, in_places, row_chains
from tosaic.interp.static import StaticRun, static_runs
from tosaic.ir.graph import Graph, Op, Value
from tosaic.runtime.memory import reused_memory

_RUNS: dict[str, Callable[[Group, Context, list[Value]], Run]] = {
    "rows": RowChain, "static": StaticRun,
}  # fmt: skip
Registers = list[Tensor | None]


@dataclass(slots=True)
class Step:
    """One prepared kernel and the registers around it."""

    run: Run
    op: Op
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...] = ()


class Plan:
    """The prepared steps of a graph; regions of control flow have plans of their own."""

    def __init__(self, graph: Graph, context: Context | None = None, device: str = CPU) -> None:
        self.graph, self._device = graph, device
        self.context = context or Context(lambda region: Plan(region, self.context, device).execute)
        self._registers = {value: i for i, value in enumerate(graph.values())}
        with on(device):
            self._initial: Registers = [_initial(value) for value in self._registers]
        self.context.constants.update(place(t) for t in self._initial if t is not None)
        self.context.bounds.add(graph)
        large = (v.type.size * 4 for op in graph.ops for v in op.outs)
        self._largest = max(large, default=0) if device == CPU else 0
        self._inputs = tuple(self._registers[v] for v in graph.inputs)
        self._outputs = tuple(self._registers[v] for v in graph.outputs)
        with torch.inference_mode(), strict_float32(), on(device):
            self._prepare()
        for value in (*graph.inputs, *graph.outputs):
            if value.dtype not in TORCH:
                raise Unsupported(f"the interpreter does not run on {value.dtype}", value.name)
        self._plan_frees()

    def _prepare(self) -> None:
        taken = groups(self.graph)
        gpu = self._device != CPU  # with caches and kernels of its own
        found = in_places(self.graph, taken) if gpu else row_chains(self.graph, taken)
        found = static_runs(found, self.context.bounds) if not gpu else found
        passing = set() if gpu else carried(self.graph, list(dict.fromkeys(taken.values())))
        uses, kept = self.graph.uses(), set(self.graph.outputs)
        self.steps: list[Step] = []
        self._fused: dict[int, Group] = {}  # index of a step -> the group it computes
        for group in found:
            if not group.kind:
                self.steps.append(self._single(group.ops[0]))
                continue
            if group.kind in _RUNS:
                own = set(group.ops)
                made = (op.outs[0] for op in group.ops)
                outs = [v for v in made if v in kept or not own.issuperset(uses.get(v, ()))]
                self._fused[len(self.steps)] = group
                reads = tuple(self._registers[v] for v in group.ins)
                writes = tuple(self._registers[v] for v in outs)
                run = _RUNS[group.kind](group, self.context, outs)
                self.steps.append(Step(run, group.ops[-1], reads, writes))
                continue
            fused = FUSED[group.kind](group, self.context, group.result in passing)
            if fused is None:
                parts = [self._single(op) for op in group.ops]
                self.steps += [replace(part, run=_uncarried(part.run)) for part in parts]
                continue
            self._fused[len(self.steps)] = group
            reads = tuple(self._registers[v] for v in group.ins)
            writes = (self._registers[group.result],)
            self.steps.append(Step(fused, group.ops[-1], reads, writes))

    def _single(self, op: Op) -> Step:
        maker = KERNELS.get(op.name)
        if maker is None:
            raise Unsupported(f"the interpreter does not run {op.name}", op)
        for value in (*op.ins, *op.outs):
            if value.dtype not in TORCH:
                raise Unsupported(f"the interpreter does not run {op.name} on {value.dtype}", op)
        reads = tuple(self._registers[v] for v in op.ins)
        writes = tuple(self._registers[v] for v in op.outs)
        return Step(maker(op, self.context), op, reads, writes)

    def _plan_frees(self) -> None:
        """Let each register go after the last step that reads it; constants and results stay."""
        kept = {r for v, r in self._registers.items() if v.is_const} | set(self._outputs)
        for index in reversed(range(len(self.steps))):
            step = self.steps[index]
            dead = {*step.reads, *step.writes} - kept
            kept |= dead
            step.frees = tuple(dead)

    def execute(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for tensors in graph order, already of the right types and shapes."""
        registers = self._initial.copy()
        for register, tensor in zip(self._inputs, inputs, strict=True):
            registers[register] = tensor
        kept = reused_memory(self._largest)
        with kept, torch.inference_mode(), strict_float32(), on(self._device):
            for index, step in enumerate(self.steps):
                self._run_step(index, registers)
                for register in step.frees:
                    registers[register] = None
            return [onednn.from_carrier(_present(registers[r])) for r in self._outputs]

    def _run_step(self, index: int, registers: Registers) -> None:
        try:
            _run(self.steps[index], registers)
        except Unpredictable:
            if index in self._fused:  # one by one, the operators tell which of them it is
                self._run_parts(self._fused[index], registers)
            raise

    def _run_parts(self, group: Group, registers: Registers) -> None:
        """Run a fused group operator by operator."""
        for value in group.ins:
            register = self._registers[value]
            registers[register] = onednn.from_carrier(_present(registers[register]))
        for op in group.ops:
            _run(self._single(op), registers)


def _run(step: Step, registers: Registers) -> None:
    try:
        result = step.run(*[registers[r] for r in step.reads])
    except Unpredictable as problem:
        if problem.where is not None:  # an operator in a region has told already
            raise
        raise Unpredictable(f"{step.op.name}: {problem.reason}", step.op) from None
    if isinstance(result, Tensor):
        registers[step.writes[0]] = result
    else:
        for register, tensor in zip(step.writes, result or (), strict=True):
            registers[register] = tensor


def _uncarried(run: Run) -> Run:
    """A plain kernel in the place of a fused one, whose operands may come as carriers."""
    return lambda *ins: run(*map(onednn.from_carrier, ins))


def _initial(value: Value) -> Tensor | None:
    if value.const is None or not value.is_const or value.dtype not in TORCH:
        return None
    return to_torch(value.const.array, value.dtype)


def _present(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor

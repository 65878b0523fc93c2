"""Dataflow check of a memory plan: each tensor that a step of C reads is still as it was written.

Every byte of a memory carries the buffer that was written there last. The steps are walked in
order, loops twice and branches both ways. So tensors that overlap while both are needed, scratch
memory over an operand, and pointers outside of their buffer are found whatever the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tosaic.errors import ToolFailed
from tosaic.targets.cortexm.memory import Plan
from tosaic.targets.cortexm.packing import Storage
from tosaic.targets.cortexm.program import Branch, Chain, Item, Program, Step
from tosaic.targets.cortexm.views import Buffer, View

TOLD = "dataflow: each step reads what was written for it"
_NOTHING, _SCRATCH, _EITHER = 0, -1, -2  # labels; those of buffers are above 0


def check_dataflow(program: Program, plan: Plan) -> None:
    """ToolFailed with the first step that would read or write what it should not."""
    walk = _Walk(plan)
    walk.items(program.items)


class _Walk:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.labels: list[NDArray[np.int32]] = [
            np.full(size, _NOTHING, np.int32) for _, size in plan.memories
        ]
        self.numbers: dict[Buffer, int] = {}

    def items(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Step):
                self._step(item)
            elif isinstance(item, Chain):  # rows of all stages in turn
                for stage in (*item.stages, *item.stages):
                    self._step(stage.step, in_rows=True)
            elif isinstance(item, Branch):
                self._branch(item)
            else:
                for _ in range(2):
                    self.items(item.before)
                    self._intact(item.condition.buffer, "the condition of a loop")
                    self.items(item.body)
                self.items(item.before)

    def _branch(self, item: Branch) -> None:
        self._intact(item.condition.buffer, "a condition")
        before = [labels.copy() for labels in self.labels]
        self.items(item.then)
        then, self.labels = self.labels, before
        self.items(item.other)
        for mine, other in zip(self.labels, then):
            mine[mine != other] = _EITHER

    def _step(self, step: Step, in_rows: bool = False) -> None:
        known = {*step.reads, *step.writes}
        for view in step.function.pointers:
            if view.buffer.kind == "arena" and view.buffer not in known:
                raise _wrong(f"{step.kind} uses memory that the plan does not know of")
            if not in_rows:  # of which a few are kept at a time
                _check_bounds(view, step)
        scratch = self.plan.scratch.get(step)
        if scratch is not None:
            self._part(scratch, step.scratch)[...] = _SCRATCH
        for buffer in step.reads:
            self._intact(buffer, step.kind)
        for buffer in step.writes:
            if buffer.kind == "arena":
                self._write(step, buffer)
        if scratch is not None:  # nothing reads it any more
            self._part(scratch, step.scratch)[...] = _NOTHING

    def _write(self, step: Step, buffer: Buffer) -> None:
        place = self._part(self.plan.places[buffer], buffer.size)
        held = {self.numbers.get(b) for b in step.reads if b not in (*step.same_place, buffer)}
        found = set(np.unique(place).tolist())
        if (step.scratch and _SCRATCH in found) or found & held:
            raise _wrong(f"{step.kind} writes its result over what it reads")
        place[...] = self.numbers.setdefault(buffer, len(self.numbers) + 1)

    def _intact(self, buffer: Buffer, reader: str) -> None:
        if buffer.kind != "arena":
            return
        storage = self.plan.places.get(buffer)
        label = self.numbers.get(buffer, _EITHER)
        if storage is None or (self._part(storage, buffer.size) != label).any():
            raise _wrong(f"{reader} reads memory that others have written since, or nobody")

    def _part(self, storage: Storage, size: int) -> NDArray[np.int32]:
        memory = self.labels[storage.memory]
        if storage.offset < 0 or storage.offset + size > len(memory):
            raise _wrong(f"{size:,} bytes at {storage.offset:,} lie outside of the arena")
        return memory[storage.offset : storage.offset + size]


def _check_bounds(view: View, step: Step) -> None:
    if 0 in view.shape:
        return
    ends = [(n - 1) * stride for n, stride in zip(view.shape, view.strides)]
    low = view.offset + sum(e for e in ends if e < 0)
    high = view.offset + sum(e for e in ends if e > 0)
    if low < 0 or high >= view.buffer.count:
        raise _wrong(f"{step.kind} reaches beyond a tensor of {view.buffer.count:,} elements")


def _wrong(what: str) -> ToolFailed:
    return ToolFailed(f"the memory plan is wrong: {what}")

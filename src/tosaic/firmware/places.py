"""The arena of a network: stages one after another, and the tensors that pass between them.

The NPU's block begins where the arena does, since its command stream has fixed offsets. What it
writes stays where it is as long as nothing needs the place, and C writes where the NPU will read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import fx

from tosaic.firmware.network import Network, Stage
from tosaic.ir.graph import Value
from tosaic.targets.ethosu.vela import VelaResult

ALIGNMENT = 16


@dataclass(slots=True)
class Item:
    """Bytes that live during the stages from ``first`` to ``last``."""

    size: int
    first: int
    last: int
    offset: int = -1

    def meets(self, other: Item) -> bool:
        in_time = self.first <= other.last and other.first <= self.last
        return in_time and self.offset < other.offset + other.size and other.offset < self.end

    @property
    def end(self) -> int:
        return self.offset + self.size


@dataclass(slots=True)
class Places:
    """Offsets in the arena: of values between stages, and of each stage's own memory."""

    size: int = 0
    fast: int = 0
    values: dict[fx.Node, Item] = field(default_factory=dict)
    stages: list[Item] = field(default_factory=list)


def bytes_of(value: Value) -> int:
    import numpy as np

    return value.type.size * np.dtype(value.dtype.array).itemsize


def place(network: Network) -> Places:
    """Lay out a network."""
    stages, found = network.stages, Places()
    for time, stage in enumerate(stages):
        made = stage.made
        if isinstance(made, VelaResult):
            found.stages.append(Item(_padded(made.scratch_size), time, time, 0))
            found.fast = max(found.fast, _padded(made.scratch_fast_size))
        else:
            found.stages.append(Item(_padded(made.plan.size), time, time))
    wanted = dict(_lives(network))
    for node, item in wanted.items():  # in the place where the NPU makes or takes them
        for at in _preferred(network, node, item):
            item.offset = at
            if _fits(network, node, item, found):
                found.values[node] = item
                break
            item.offset = -1
    rest: list[tuple[fx.Node | None, Item]] = [(None, i) for i in found.stages if i.offset < 0]
    rest += [(n, i) for n, i in wanted.items() if i.offset < 0]
    for each, item in rest:
        others = [i for i in (*found.stages, *found.values.values()) if i.offset >= 0]
        ends = sorted({0, *(_padded(other.end) for other in others)})
        for at in ends:
            item.offset = at
            if not any(item.meets(other) for other in others if other is not item):
                break
        if each is not None:
            found.values[each] = item
    found.size = max((_padded(i.end) for i in (*found.stages, *found.values.values())), default=0)
    return found


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _lives(network: Network) -> Iterator[tuple[fx.Node, Item]]:
    """The values that one stage makes and another takes, or that outlast the run as a state."""
    kept = {state.output for state in network.states}
    for time, stage in enumerate(network.stages):
        for node in stage.piece.outputs:
            last = [t for t, s in enumerate(network.stages) if node in s.piece.inputs]
            if node in kept:
                last.append(len(network.stages))
            if last or (node in network.outputs and stage.on_npu):
                yield node, Item(bytes_of(network.values[node]), time, max(last, default=time))


def address(stage: Stage, node: fx.Node, is_output: bool) -> int | None:
    """Where the NPU has a value of a stage; None where it is none of its."""
    made = stage.made
    if not isinstance(made, VelaResult):
        return None
    nodes = stage.piece.outputs if is_output else stage.piece.inputs
    side = made.outputs if is_output else made.inputs
    return side[nodes.index(node)].address if node in nodes else None


def _preferred(network: Network, node: fx.Node, item: Item) -> Iterator[int]:
    made = address(network.stages[item.first], node, True)
    if made is not None:
        yield made
    for stage in network.stages[item.first + 1 : item.last + 1]:
        taken = address(stage, node, False)
        if taken is not None:
            yield taken


def _fits(network: Network, node: fx.Node, item: Item, found: Places) -> bool:
    """Whether a value may lie where it does: where the NPU makes it or takes it last, or beside."""
    for time in range(item.first, min(item.last, len(network.stages) - 1) + 1):
        own = None
        if time in (item.first, item.last):
            own = address(network.stages[time], node, time == item.first)
        block = found.stages[time]
        if block.offset >= 0 and item.meets(block) and item.offset != own:
            return False
    stage = network.stages[item.first]
    return not any(
        item.meets(other)
        and not (other.last == item.first and other.offset == address(stage, taken, False))
        for taken, other in found.values.items()
    )

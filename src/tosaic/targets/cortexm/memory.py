"""The memory plan: where each tensor of the arena lies, at the bound of what lives at one time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tosaic.errors import InvalidInput
from tosaic.targets.cortexm.packing import Storage, arrange, live_bound
from tosaic.targets.cortexm.program import Branch, Chain, Item, Loop, Program, Step
from tosaic.targets.cortexm.views import Buffer

_WORK = 4_000  # of a search whether one storage more fits a memory

Memories = Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Offsets of all buffers and of each step's scratch memory, and the size of the arena.

    ``memories`` are those that the caller gives, each with the bytes that are used of it.
    """

    places: dict[Buffer, Storage]
    scratch: dict[Step, Storage]
    storages: tuple[Storage, ...]
    size: int
    bound: int
    times: dict[Step, int]
    memories: tuple[tuple[str, int], ...]


def plan(program: Program, memories: Memories = ()) -> Plan:
    """Lay out the arena of a program, or tensors over several memories, the fastest first."""
    lives = _Lives()
    lives.walk(program.items)
    places: dict[Buffer, Storage] = {}
    storages: list[Storage] = []
    scratch: dict[Step, Storage] = {}
    by_time: dict[int, Storage] = {}
    for step, time in lives.times.items():
        for buffer in step.writes:
            if buffer.kind == "arena" and buffer not in places:
                place = _in_place(step, buffer, time, lives, places)
                if place is None:
                    start, end = lives.ranges[buffer]
                    place = Storage(_rounded(buffer.size), _align(buffer), start, end)
                    storages.append(place)
                place.buffers.append(buffer)
                place.end = max(place.end, lives.ranges[buffer][1])
                places[buffer] = place
        if step.scratch:
            assert step.call is not None
            made = by_time.get(time)
            if made is None:  # the stages of a chain run one after another: they share it
                made = by_time[time] = Storage(0, 4, time, time)
                storages.append(made)
            made.size = max(made.size, _rounded(step.scratch))
            made.align = max(made.align, step.call.align)
            scratch[step] = made
    for number, storage in enumerate(storages):
        storage.number = number
    bound = live_bound(storages)
    if memories:
        _heat(lives.times, places, scratch)
        used = spread(storages, memories)
    else:
        used = (("arena", arrange(storages, bound)),)
    size = sum(size for _, size in used)
    return Plan(places, scratch, tuple(storages), size, bound, lives.times, used)


def _heat(
    times: Mapping[Step, int], places: Mapping[Buffer, Storage], scratch: Mapping[Step, Storage]
) -> None:
    """How many bytes of each storage all steps read and write; products read theirs often."""
    for step in times:
        often = 8 if step.call is not None and step.call.blob else 1
        for buffer in (*step.reads, *step.writes):
            if buffer in places:
                places[buffer].touched += often * buffer.size
        if step in scratch:
            scratch[step].touched += often * scratch[step].size


def spread(storages: Sequence[Storage], memories: Memories) -> tuple[tuple[str, int], ...]:
    """Offsets in several memories: what is touched most often, byte by byte, in the first ones."""
    inside: list[list[Storage]] = [[] for _ in memories]
    for storage in sorted(storages, key=lambda s: (-s.touched / s.size, -s.size, s.start)):
        for number, (_, limit) in enumerate(memories):
            tried = [*inside[number], storage]
            if live_bound(tried) <= limit and arrange(tried, limit, _WORK) <= limit:
                inside[number].append(storage)
                storage.memory = number
                break
        else:
            room = ", ".join(f"{name} {size:,}" for name, size in memories)
            raise InvalidInput(
                f"a tensor of {storage.size:,} bytes fits no memory beside the others ({room}); "
                "give more, or memory='small'"
            )
    return tuple((name, _arranged(part, limit)) for (name, limit), part in zip(memories, inside))


def _arranged(storages: Sequence[Storage], limit: int) -> int:
    """Offsets at the bound, or as they were found to fit."""
    size = arrange(storages, live_bound(storages))
    return size if size <= limit else arrange(storages, limit, _WORK)


class _Lives:
    """When each buffer is first written and last read, in steps."""

    def __init__(self) -> None:
        self.times: dict[Step, int] = {}
        self.ranges: dict[Buffer, tuple[int, int]] = {}
        self.now = 0

    def touch(self, buffer: Buffer, time: int) -> None:
        start, end = self.ranges.get(buffer, (time, time))
        self.ranges[buffer] = min(start, time), max(end, time)

    def walk(self, items: Sequence[Item]) -> None:
        for item in items:
            if isinstance(item, Step):
                self.times[item] = self.now
                for buffer in (*item.reads, *item.writes):
                    self.touch(buffer, self.now)
                self.now += 1
            elif isinstance(item, Branch):
                self.touch(item.condition.buffer, self.now)
                begin, outside = self.now, set(self.ranges)
                self.walk(item.then)
                self.walk(item.other)
                self._hold(outside, begin)
            elif isinstance(item, Chain):
                for stage in item.stages:
                    self.times[stage.step] = self.now
                    for buffer in (*stage.step.reads, *stage.step.writes):
                        self.touch(buffer, self.now)
                self.now += 1
            else:
                self._loop(item)

    def _loop(self, item: Loop) -> None:
        begin, outside = self.now, set(self.ranges)
        self.walk(item.before)
        self.touch(item.condition.buffer, self.now)
        self.walk(item.body)
        self._hold(outside, begin)

    def _hold(self, outside: set[Buffer], begin: int) -> None:
        """What is from before and read inside lives to the end: every time round needs it."""
        for buffer in outside:
            if self.ranges[buffer][1] >= begin:
                self.touch(buffer, self.now)
        self.now += 1


def _in_place(
    step: Step, buffer: Buffer, time: int, lives: _Lives, places: dict[Buffer, Storage]
) -> Storage | None:
    """The storage of an operand that ends here, if the result may be written over it."""
    for source in step.same_place:
        place = places.get(source)
        if (
            place is not None and place.end == time and lives.ranges[buffer][0] == time
            and place.size >= buffer.size and place.align >= _align(buffer)
        ):  # fmt: skip
            return place
    return None


def _rounded(size: int) -> int:
    return -(-size // 4) * 4


def _align(buffer: Buffer) -> int:
    return 8 if buffer.ctype == "int64_t" else 4

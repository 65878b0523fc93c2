"""Static memory planning: offsets of storages whose lifetimes are known.

Placing one storage after another at the lowest free offset meets the bound for most networks. For
the others a search places them from the bottom of the memory up, and goes back as soon as what is
left at some time no longer fits below the limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

_WORK = 1_600_000  # looks at a storage's times that one search may take
_ROUNDS = 6  # limits between the bound and what was found that are tried


@dataclass(slots=True, eq=False)
class Storage:
    """A place in the arena that one buffer has, or several one after another."""

    size: int
    align: int
    start: int
    end: int
    buffers: list[Any] = field(default_factory=list)
    offset: int = 0
    number: int = 0
    memory: int = 0
    touched: int = 0  # bytes that steps read and write there


_ORDERS: tuple[Callable[[Storage], tuple[int, ...]], ...] = (
    lambda s: (-s.size, s.start),
    lambda s: (s.start, -s.size),
    lambda s: (s.start - s.end, -s.size),
    lambda s: (-s.size * (s.end - s.start + 1), s.start),
)


def live_bound(storages: Sequence[Storage]) -> int:
    """The most bytes that live at one time: no arena is smaller."""
    changes: dict[int, int] = {}
    for s in storages:
        changes[s.start] = changes.get(s.start, 0) + s.size
        changes[s.end + 1] = changes.get(s.end + 1, 0) - s.size
    most = now = 0
    for time in sorted(changes):
        now += changes[time]
        most = max(most, now)
    return most


def arrange(storages: Sequence[Storage], bound: int, work: int = _WORK) -> int:
    """Offsets for all storages within a bound, or within as little more as was found."""
    best: tuple[int, list[int]] | None = None
    for offsets in _tried(storages, bound, work):
        size = max((s.size + at for s, at in zip(storages, offsets)), default=0)
        if best is None or size < best[0]:
            best = size, offsets
        if best[0] <= bound:
            break
    if best is None:
        return 0
    for storage, offset in zip(storages, best[1]):
        storage.offset = offset
    return best[0]


def _tried(storages: Sequence[Storage], bound: int, work: int) -> Iterator[list[int]]:
    """Offsets, the quick ways first; the last ones are for limits between bound and best."""
    least = 0
    for key in _ORDERS:
        yield (found := _first_fit(storages, sorted(storages, key=key)))
        size = max((s.size + at for s, at in zip(storages, found)), default=0)
        least = min(least or size, size)
    low = bound
    for turn in range(_ROUNDS):
        limit = low if turn == 0 else (low + least) // 8 * 4
        for share, key in product((8,) if turn else (8, 1), _ORDERS):
            search = _Search(sorted(storages, key=key), limit, work // share)
            if search.found():
                yield [search.offsets[id(s)] for s in storages]
                least = limit
                break
        else:
            low = limit + 4
        if low >= least:
            break


def _first_fit(storages: Sequence[Storage], order: Sequence[Storage]) -> list[int]:
    """Each at the lowest offset that is free while it lives, one after another."""
    placed: list[tuple[int, Storage]] = []
    offsets = {}
    for s in order:
        offset = 0
        for at, other in placed:  # by offset
            if other.end < s.start or s.end < other.start:
                continue
            if _up(offset, s.align) + s.size <= at:
                break
            offset = max(offset, at + other.size)
        offsets[id(s)] = offset = _up(offset, s.align)
        place = next((i for i, (at, _) in enumerate(placed) if at > offset), len(placed))
        placed.insert(place, (offset, s))
    return [offsets[id(s)] for s in storages]


class _Search:
    """Places storages by rising offset, so that each lies on top of what is placed already.

    A branch ends where a moment has too little room left, or where another storage would fit
    below; there are none left where no offsets meet the limit.
    """

    def __init__(self, order: Sequence[Storage], limit: int, work: int) -> None:
        self.order, self.limit, self.work = order, limit, work
        moments = _moments(order)
        self.spans = [[k for k, at in enumerate(moments) if s.start <= at <= s.end] for s in order]
        self.floor = [0] * len(moments)
        self.left = [sum(s.size for s in order if s.start <= at <= s.end) for at in moments]
        self.is_placed = [False] * len(order)
        self.done: list[tuple[int, int, list[int]]] = []  # storage, offset, floors before

    @property
    def offsets(self) -> dict[int, int]:
        return {id(self.order[i]): offset for i, offset, _ in self.done}

    def found(self) -> bool:
        """Whether all are placed; not so too where the work ends before."""
        branches = [self.choices(0)]
        while len(self.done) < len(self.order) and self.work > 0:
            for offset, i in branches[-1]:
                if self.place(i, offset):
                    branches.append(self.choices(offset))
                    break
                self.undo()
            else:
                branches.pop()
                if not branches:
                    return False
                self.undo()
        return len(self.done) == len(self.order)

    def choices(self, low: int) -> Iterator[tuple[int, int]]:
        """Storages that may come next and where, the lowest first, then in the search's order."""
        offsets, top = [], self.limit
        for i, storage in enumerate(self.order):
            if not self.is_placed[i]:
                offset = max(low, *(self.floor[k] for k in self.spans[i]))
                offset = _up(offset, storage.align)
                offsets.append((offset, i))
                top = min(top, offset + max(1, storage.size))
                self.work -= len(self.spans[i])
        return iter(sorted(each for each in offsets if each[0] < top))

    def place(self, i: int, offset: int) -> bool:
        """Place one; whether what is left may still fit."""
        spans, size = self.spans[i], self.order[i].size
        self.done.append((i, offset, [self.floor[k] for k in spans]))
        self.is_placed[i] = True
        for k in spans:
            self.left[k] -= size
            self.floor[k] = offset + size
        self.work -= len(self.floor)
        return offset + size <= self.limit and all(
            not left or max(floor, offset) + left <= self.limit
            for floor, left in zip(self.floor, self.left)
        )

    def undo(self) -> None:
        """Take the last one away."""
        i, _, before = self.done.pop()
        self.is_placed[i] = False
        for k, floor in zip(self.spans[i], before):
            self.left[k] += self.order[i].size
            self.floor[k] = floor


def _moments(storages: Sequence[Storage]) -> list[int]:
    """Times at which something begins and something ends before the next begins: all others hold
    a part of what one of these holds."""
    starts = sorted({s.start for s in storages})
    ends = sorted({s.end for s in storages})
    return [
        start for start, after in zip(starts, [*starts[1:], ends[-1] + 1] if ends else [])
        if (at := bisect_left(ends, start)) < len(ends) and ends[at] < after
    ]  # fmt: skip


def _up(offset: int, align: int) -> int:
    return -(-offset // align) * align

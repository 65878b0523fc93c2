"""Offsets of the arena: apart, aligned, and at the bound wherever the bound can be met."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from tosaic.targets.cortexm.packing import Storage, arrange, live_bound

Rectangle = tuple[int, int, int, int]  # bytes and times, from and to


def cut(random: Random, memory: int, times: int, count: int) -> list[Storage]:
    """A rectangle of memory and time in pieces that fill it: the bound is met by where they lie."""
    pieces: list[Rectangle] = [(0, memory, 0, times)]
    while len(pieces) < count:
        low, high, begin, end = pieces.pop(random.randrange(len(pieces)))
        if random.random() < 0.5 and high - low >= 8:
            at = random.randrange(low + 4, high, 4)
            pieces += [(low, at, begin, end), (at, high, begin, end)]
        elif end - begin >= 2:
            at = random.randrange(begin + 1, end)
            pieces += [(low, high, begin, at), (low, high, at, end)]
        else:
            pieces.append((low, high, begin, end))
    random.shuffle(pieces)
    return [Storage(high - low, 4, begin, end - 1) for low, high, begin, end in pieces]


def drawn(random: Random, count: int) -> list[Storage]:
    made = []
    for _ in range(count):
        begin = random.randrange(8)
        made.append(
            Storage(4 * random.randrange(1, 9), random.choice((4, 8)), begin,
                    begin + random.randrange(4))
        )  # fmt: skip
    return made


def check(storages: list[Storage], size: int) -> None:
    assert size == max(s.offset + s.size for s in storages)
    for i, a in enumerate(storages):
        assert a.offset % a.align == 0
        for b in storages[:i]:
            if a.start <= b.end and b.start <= a.end:
                assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def least(storages: list[Storage]) -> int:
    """The smallest arena, by placing storages in every order on top of those they live with.

    Some order is that of the offsets of a smallest arena, whose storages may all sink so far.
    """
    best = 1 << 30
    for order in permutations(storages):
        placed: list[tuple[int, Storage]] = []
        for s in order:
            top = max((at + o.size for at, o in placed if o.start <= s.end and s.start <= o.end),
                      default=0)  # fmt: skip
            placed.append((-(-top // s.align) * s.align, s))
        best = min(best, max(at + s.size for at, s in placed))
    return best


def test_the_bound_is_the_most_that_lives() -> None:
    assert live_bound([Storage(8, 4, 0, 2), Storage(4, 4, 2, 3), Storage(8, 4, 3, 3)]) == 12


@pytest.mark.parametrize("seed", range(60))
def test_pieces_of_a_full_memory_lie_within_it_again(seed: int) -> None:
    random = Random(seed)
    storages = cut(random, 400, 30, random.randrange(10, 60))
    assert live_bound(storages) == 400
    size = arrange(storages, 400)
    check(storages, size)
    assert size == 400


@pytest.mark.parametrize("seed", range(40))
def test_a_few_storages_take_the_least_memory_there_is(seed: int) -> None:
    storages = drawn(Random(seed), 6)
    size = arrange(storages, live_bound(storages))
    check(storages, size)
    assert size == least(storages)


@pytest.mark.parametrize("seed", range(5))
def test_many_storages_lie_apart(seed: int) -> None:
    random = Random(seed)
    storages = [
        Storage(4 * random.randrange(1, 500), random.choice((4, 8)), t, t + random.randrange(9))
        for t in range(150)
    ]
    size = arrange(storages, live_bound(storages))
    check(storages, size)
    assert size <= 1.15 * live_bound(storages)


def test_nothing_takes_no_memory() -> None:
    assert arrange([], 0) == 0

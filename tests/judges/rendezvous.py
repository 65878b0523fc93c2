"""Rendezvous hashing: a choice by name, which other names on the list hardly change.

Random graphs and programs are drawn from the samples of all rules. By its place on the list a draw
would be another one for every sample that is added; so each name gets a weight from the number that
was drawn, and the name of the largest is chosen. A new name takes its share of the numbers and
leaves all others what they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np


@lru_cache(maxsize=4)
def _hashes(names: tuple[str, ...]) -> np.ndarray:
    digests = (blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), "<u8")


def name_by_number(names: Sequence[str], number: int) -> str:
    """The name that a number of 64 bits chooses."""
    mixed = _hashes(tuple(names)) ^ np.uint64(number)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return names[int(np.argmax(mixed ^ (mixed >> np.uint64(31))))]

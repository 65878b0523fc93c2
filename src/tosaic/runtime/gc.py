"""Pauses Python's garbage collector while modules load and programs compile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_YOUNG = 20_000  # objects that are made before the first look; Python itself says 700


@contextmanager
def rarely() -> Iterator[None]:
    """Let the collector look once for many new objects: loading PyTorch makes them to stay."""
    youngest, *older = gc.get_threshold()
    gc.set_threshold(max(youngest, _YOUNG) if youngest else 0, *older)
    try:
        yield
    finally:
        gc.set_threshold(youngest, *older)


@contextmanager
def of_new_objects() -> Iterator[None]:
    """Let the collector look at what is made in here alone, and rarely.

    PyTorch and what else is loaded are hundreds of thousands of objects: looking through them for
    garbage, time and again, takes up to a fifth of the time, more the larger a network is. A
    program that has set objects aside itself is left to do so.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        with rarely():
            yield
    finally:
        gc.unfreeze()

"""The collector of garbage while programs are compiled."""

from __future__ import annotations

import gc

import pytest

from tosaic.runtime.gc import of_new_objects


class Loop:
    """Refers to itself, so only the collector finds it."""

    def __init__(self) -> None:
        self.own = self


def _fail() -> None:
    with of_new_objects():
        assert gc.get_freeze_count()
        raise ValueError("within")


@pytest.mark.parametrize("thresholds", [(700, 10, 10), (0, 10, 10), (50_000, 5, 5)])
def test_the_collector_is_left_as_it_was_even_by_an_error(thresholds: tuple[int, ...]) -> None:
    before = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        with pytest.raises(ValueError, match="within"):
            _fail()
        assert gc.get_threshold() == thresholds
        assert gc.get_freeze_count() == 0
    finally:
        gc.set_threshold(*before)


def test_garbage_of_a_compile_is_collected_while_it_runs() -> None:
    with of_new_objects():
        for _ in range(100):
            Loop()
        assert gc.collect() >= 100


def test_objects_that_a_program_has_set_aside_stay_aside() -> None:
    gc.freeze()
    try:
        with of_new_objects():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()

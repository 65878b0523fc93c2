"""Samples of rules with a free size have, at every size, the bits of a compile for that size."""

import logging
from collections.abc import Iterator

import pytest

from judges.dynamic import TARGETS, judged, models

PARTS, STRIDE = 4, 4  # a quarter of the samples, in so many tests


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TOSAIC_VERIFY", raising=False)
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", TARGETS)
def test_samples_with_a_free_size(kind: str, part: int) -> None:
    """Two hundred on each target, three sizes each; others have a size that is in the operator."""
    found = [judged(*each, kind) for each in list(models())[part :: PARTS * STRIDE]]
    free = [f for f in found if f is not None]
    assert [f"{f.case} in axis {f.axis}: {f.wrong}" for f in free if f.wrong] == []
    assert len(free) >= 50

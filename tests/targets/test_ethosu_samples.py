"""What is called supported on an Ethos-U, Vela compiles wholly for the NPU."""

from __future__ import annotations

import pytest

from judges.npu import TARGETS, count, part
from tosaic.spec.dtypes import I8, I16, DType

SHARE = 24  # a part for each target and type; python -m judges.npu sees all
# What is refused: on the older ones whole quotients, orders, right shifts and products of int16
# matrices; int16 images between pixels.
# Of the few samples that a run takes. Of all of them Ethos-U55 refuses 0.05 and 0.14.
MOST_REFUSED = {I8: 0.1, I16: 0.25}


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_a_supported_sample_compiles_and_few_are_refused(target: str, kind: DType) -> None:
    turn = TARGETS.index(target) + (3 if kind is I16 else 0)
    found = count(part(SHARE, turn), target, kind)
    print(found)
    assert not found.wrong, found.wrong
    assert found.all > 20
    assert found.all - found.supported <= MOST_REFUSED[kind] * found.all, found.refused

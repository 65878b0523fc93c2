"""tosa-tools' list of PyTorch operators: every case lowers, and gives what PyTorch gives."""

from __future__ import annotations

import pytest

from judges.oplist import Entry, entries
from judges.programs import check

# Floats in the floating-point profile; int32 and bool, which it mostly lacks, where both are.
ENTRIES = list(entries())
FLOAT, BOTH = "TOSA-1.0+FP", "TOSA-1.0+INT+FP"


def test_the_list_is_the_whole_list() -> None:
    assert len({entry.name.rsplit("_", 1)[0] for entry in ENTRIES}) > 40
    assert sum(entry.cases for entry in ENTRIES) > 1_400


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.name for entry in ENTRIES])
def test_an_operator_of_the_list_lowers_in_all_cases(entry: Entry) -> None:
    target = FLOAT if entry.name.endswith("float32") else BOTH
    art = check(entry.model, entry.inputs, target=target)
    assert art.partition.graphs or entry.name.startswith("fill")  # constants need no graph

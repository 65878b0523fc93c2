"""Damaged streams, weights and blobs are refused or run: no crash, no hang, no other error."""

from __future__ import annotations

from npu.fuzz import run_apart

_COUNT = 2000  # `make simulate` runs more


def test_damaged_streams_are_refused_or_run() -> None:
    fine, words = run_apart(0, _COUNT)
    assert fine, words
    last = words.splitlines()[-1]
    for outcome in ("InvalidInput", "Sanitizer", "Unsupported", "result"):
        assert outcome in last, f"no damaged stream ended in {outcome}: {last}"

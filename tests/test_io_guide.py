"""The guide to types at the boundary: its code runs as it is written."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "io.md"


def test_the_code_of_the_guide_runs_in_its_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(compile(block, str(GUIDE), "exec"), names)
    assert str(names["heard"].dtype) == "torch.int8"  # type: ignore[attr-defined]

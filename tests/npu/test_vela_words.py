"""Vela's own words do not come between a program's data."""

from __future__ import annotations

import numpy as np
import pytest

from tosaic.files import flatbuffer
from tosaic.ir.build import Builder
from tosaic.targets.ethosu.vela import VelaConfig, run_vela


def test_vela_writes_nothing_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """It would, for each SCATTER whose cost it does not know."""
    b = Builder("TOSA-1.0+INT")
    x, y = b.input("i8", (1, 6, 16), "x"), b.input("i8", (1, 2, 16), "y")
    b.output(b.SCATTER(x, b.const(np.array([[1, 3]], np.int32), "i32"), y))
    print("before")
    run_vela(flatbuffer.write(b.graph), VelaConfig("ethos-u85-256"))
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"

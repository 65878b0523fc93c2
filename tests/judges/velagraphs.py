"""A small graph for Vela, and a worker process that goes wrong on such as have a mark."""

from __future__ import annotations

from pathlib import Path

from tosaic.files import flatbuffer
from tosaic.ir.build import Builder

FAULTY = Path(__file__).with_name("faulty_worker.py")


def pooled(name: str = "plain", size: int = 4) -> bytes:
    """A small graph whose input has a name."""
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, size, size, 8), name)
    b.output(b.MAX_POOL2D(x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0)))
    return flatbuffer.write(b.graph)

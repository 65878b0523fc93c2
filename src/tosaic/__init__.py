"""Tosaic takes PyTorch models to Arm edge devices.

``load`` reads a TOSA graph and gives an object that runs it exactly, here and now.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tosaic.errors import InvalidGraph, InvalidInput, ToolFailed, TosaicError, Unsupported

if TYPE_CHECKING:
    from tosaic.interp.model import Model

__all__ = ["InvalidGraph", "InvalidInput", "ToolFailed", "TosaicError", "Unsupported", "load"]
__version__ = "0.1.0"


def load(source: bytes | str | os.PathLike[str]) -> Model:
    """Read a ``.tosa`` file (a path, or its bytes), verify it, and prepare it to run.

    The result has ``run(*inputs)``, ``inputs`` and ``outputs``. A file that breaks a rule of
    TOSA or of the format raises InvalidGraph.
    """
    from tosaic.files.flatbuffer import read
    from tosaic.interp.model import Model
    from tosaic.ir.verify import verify
    from tosaic.spec.env import everything

    graph = read(source)
    verify(graph, everything(graph.version, level="none"))
    return Model(graph)

"""Tosaic takes PyTorch models to Arm edge devices.

``compile`` lowers a model to TOSA; ``load`` reads a TOSA graph. Both give objects that run the
graph exactly, here and now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tosaic.errors import (
    InvalidGraph,
    InvalidInput,
    ToolFailed,
    TosaicError,
    Unpredictable,
    Unsupported,
)

if TYPE_CHECKING:
    from tosaic.interp.model import Model
    from tosaic.targets.artifact import Artifact

__all__ = [
    "InvalidGraph", "InvalidInput", "ToolFailed", "TosaicError", "Unpredictable", "Unsupported",
    "compile", "load",
]  # fmt: skip
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


def compile(
    model: Any,
    example_inputs: tuple[Any, ...],
    *,
    target: str = "TOSA-1.0+INT",
    scheme: str | None = None,
    calibration: Iterable[Any] | None = None,
) -> Artifact:
    """Lower a PyTorch model to TOSA.

    ``model`` is an nn.Module, an ExportedProgram or a GraphModule that PT2E has converted. For a
    target of integers it is quantized first (int8 unless ``scheme`` says otherwise), calibrated
    with the inputs in ``calibration``. What cannot be lowered raises Unsupported with the
    operator, the reason and the line of the user's own source.
    """
    from tosaic.targets.driver import compile_model

    return compile_model(model, example_inputs, target, scheme, calibration)

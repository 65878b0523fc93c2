"""Tosaic takes PyTorch models to Arm edge devices.

``compile`` lowers a model to TOSA; ``load`` reads a TOSA graph or a ``.pte``. Both give objects that run the
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
from tosaic.targets import formats

if TYPE_CHECKING:
    from tosaic.executorch.runner import Runner
    from tosaic.interp.model import Model
    from tosaic.targets.artifact import Artifact

__all__ = [
    "InvalidGraph", "InvalidInput", "ToolFailed", "TosaicError", "Unpredictable", "Unsupported",
    "compile", "load",
]  # fmt: skip
__version__ = "0.1.0"


def load(
    source: bytes | str | os.PathLike[str],
    *,
    external_weights: str | os.PathLike[str] | None = None,
) -> Model | Runner:
    """Read a ``.tosa`` or ``.pte`` file (a path, or its bytes), and prepare it to run.

    The result has ``run(*inputs)``, ``inputs`` and ``outputs``. A file that breaks a rule of
    TOSA or of its format raises InvalidGraph or InvalidInput. ``external_weights`` is the ``.ptd``
    file of a ``.pte`` whose weights lie outside of it.
    """
    if _is_pte(source):
        from tosaic.executorch.runner import load_pte

        return load_pte(source, external_weights)
    from tosaic.files.flatbuffer import read
    from tosaic.interp.model import Model
    from tosaic.ir.verify import verify
    from tosaic.spec.env import everything

    graph = read(source)
    verify(graph, everything(graph.version, level="none"))
    return Model(graph)


def _is_pte(source: bytes | str | os.PathLike[str]) -> bool:
    """Whether bytes, or a file, are ExecuTorch's: by identifier, or by suffix if it has none."""
    if isinstance(source, bytes):
        return source[4:6] == b"ET"
    return os.path.splitext(os.fspath(source))[1] == ".pte"


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


def _save_pte(artifact: Artifact, path: str | os.PathLike[str], **options: Any) -> None:
    from tosaic.executorch.package import save

    save(artifact, path, **options)


formats.WRITERS.update(dict.fromkeys((".pte", ".bpte"), _save_pte))

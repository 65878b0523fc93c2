"""ExecuTorch for the tests that need it: found or skipped, imported quietly, its own reader."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tosaic.executorch.api import quiet


def executorch_or_skip() -> None:
    """Skip a module's tests where ExecuTorch is not installed."""
    found = importlib.util.find_spec("executorch")
    if found is None or importlib.util.find_spec("executorch.exir") is None:
        pytest.skip("ExecuTorch is not installed (extra 'executorch')", allow_module_level=True)
    with quiet():
        import executorch.exir
        import executorch.kernels.quantized  # noqa: F401


def deserialized(data: bytes) -> Any:
    """A file as ExecuTorch's own reader sees it."""
    with quiet():
        from executorch.exir._serialize._program import deserialize_pte_binary

        return deserialize_pte_binary(data)


def blobs(data: bytes) -> list[tuple[str, bytes]]:
    """Backend and blob of each delegate of a file."""
    program = deserialized(data).program
    return [
        (d.id, bytes(program.backend_delegate_data[d.processed.index].data))
        for d in program.execution_plan[0].delegates
    ]

"""The backends as ExecuTorch finds them: by the name of the class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from torch.export import ExportedProgram

from tosaic.executorch.plan import whole_graph
from tosaic.executorch.specs import CompileSpec, spec_of
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph


def _preprocess(program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
    spec = spec_of(compile_specs)
    graph = whole_graph(program, spec)
    blob = spec.blob(graph)
    if spec.artifacts is not None:
        _dump(spec, graph, blob.data)
    return PreprocessResult(processed_bytes=blob.data)


def _dump(spec: CompileSpec, graph: Graph, blob: bytes) -> None:
    folder = Path(spec.artifacts or ".")
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("delegate_*.tosa")))
    flatbuffer.write(graph, folder / f"delegate_{number}.tosa")
    (folder / f"delegate_{number}.bin").write_bytes(blob)


class TOSABackend(BackendDetails):  # type: ignore[misc]
    """TOSA itself."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
        return _preprocess(edge_program, compile_specs)


class EthosUBackend(BackendDetails):  # type: ignore[misc]
    """A command stream and weights for an Ethos-U."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
        return _preprocess(edge_program, compile_specs)


class VgfBackend(BackendDetails):  # type: ignore[misc]
    """A graph for Vulkan ML."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
        return _preprocess(edge_program, compile_specs)

"""The backends as ExecuTorch finds them: by the name of the class."""

from __future__ import annotations

from typing import Any

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from torch.export import ExportedProgram

from tosaic.executorch.plan import whole_graph
from tosaic.executorch.specs import spec_of


def _preprocess(program: ExportedProgram, compile_specs: list[Any]) -> PreprocessResult:
    spec = spec_of(compile_specs)
    graph = whole_graph(program, spec)
    blob = spec.blob(graph)
    spec.dump(graph, blob)
    return PreprocessResult(processed_bytes=blob.data, data_store_output=blob.named_data())


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

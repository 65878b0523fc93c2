"""The backends as ExecuTorch finds them: by the name of the class.

Another package may have classes of these names, as ExecuTorch's own Arm backend does. Of several,
ExecuTorch takes the last one that was made; each of ours hands on what another's compile specs ask.
"""

from __future__ import annotations

from typing import Any

from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from torch.export import ExportedProgram

from tosaic.executorch.plan import whole_graph
from tosaic.executorch.specs import is_own, spec_of


class _Preprocessing:
    """What all backends do."""

    @classmethod
    def preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[Any]
    ) -> PreprocessResult:
        """A delegate's blob."""
        other = _named(cls.__name__, own=False)
        if other and not is_own(compile_specs):
            return other[-1].preprocess(edge_program, compile_specs)
        spec = spec_of(compile_specs)
        graph = whole_graph(edge_program, spec)
        blob = spec.blob(graph)
        spec.dump(graph, blob)
        return PreprocessResult(processed_bytes=blob.data, data_store_output=blob.named_data())


class TOSABackend(_Preprocessing, BackendDetails):  # type: ignore[misc]
    """TOSA itself."""


class EthosUBackend(_Preprocessing, BackendDetails):  # type: ignore[misc]
    """A command stream and weights for an Ethos-U."""


class VgfBackend(_Preprocessing, BackendDetails):  # type: ignore[misc]
    """A graph for Vulkan ML."""


_LATER: dict[str, type] = {}  # kept alive: ExecuTorch finds what there is


def come_last(name: str) -> None:
    """See to it that ExecuTorch finds our backend of this name."""
    if not issubclass(_named(name)[-1], _Preprocessing):
        _LATER[name] = type(name, (_Preprocessing, BackendDetails), {"__module__": __name__})


def _named(name: str, own: bool = True) -> list[Any]:
    """Backends of a name, in the order in which they were made; with or without ours."""
    found = [c for c in BackendDetails.__subclasses__() if c.__name__ == name]
    return [c for c in found if own or not issubclass(c, _Preprocessing)]

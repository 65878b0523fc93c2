"""An imported program: its graph, the structure of arguments and results, and what it changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx
from torch.export import ExportedProgram

from tosaic.front import torchapi
from tosaic.front.state import Changes

KEPT = "tosaic.imported"


@dataclass(frozen=True, slots=True)
class Imported:
    """A program with the structure of the user's arguments and results, and what it changes.

    If it changes anything, the program itself takes and gives flat lists: see ``Changes``.
    ``outputs`` are names of the results, where they are known from before it was quantized.
    """

    model: ExportedProgram | fx.GraphModule
    in_spec: Any
    out_spec: Any
    changes: Changes = field(default_factory=Changes)
    outputs: tuple[str, ...] = ()

    @property
    def is_quantized(self) -> bool:
        graph = self.model.graph
        return any(
            n.op == "call_function" and torchapi.target_name(n).startswith("quantized_decomposed.")
            for n in graph.nodes
        )

    def with_model(self, model: ExportedProgram | fx.GraphModule) -> Imported:
        """Another form of the same program."""
        return replace(self, model=model)

    def remember(self, module: fx.GraphModule) -> None:
        """Let a module know what the program changes: its own arguments do not say it."""
        module.meta[KEPT] = self.with_model(module)

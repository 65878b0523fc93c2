"""What compiling gives: a graph, its boundary, and an exact run of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.files.text import print_graph
from tosaic.front import torchapi
from tosaic.front.partition import Partition, Piece
from tosaic.front.program import Program
from tosaic.interp.kernel import to_torch
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.targets import formats
from tosaic.targets.boundary import ordered, restored
from tosaic.targets.report import Report, report_of


@dataclass(eq=False)
class Artifact:
    """A compiled program: TOSA graphs, and what PyTorch runs round them.

    ``run`` takes and gives what the program does, in its own structure.
    """

    program: Program
    partition: Partition
    target: str

    @property
    def graph(self) -> Graph:
        """The one graph that the program became."""
        graphs = self.partition.graphs
        if len(graphs) != 1:
            raise InvalidInput(f"the program became {len(graphs)} graphs; see .partition.graphs")
        return graphs[0]

    @cached_property
    def _files(self) -> dict[int, bytes]:
        return {id(g): flatbuffer.write(g) for g in self.partition.graphs}

    @property
    def bytes(self) -> bytes:
        """The compiled file."""
        return self._files[id(self.graph)]

    @cached_property
    def _models(self) -> dict[int, Model]:
        return {key: Model(flatbuffer.read(data)) for key, data in self._files.items()}

    @cached_property
    def report(self) -> Report:
        """Operators, graphs with their boundaries, and refusals; prints as a table."""
        return report_of(self.target, self.partition)

    def run(self, *inputs: Any) -> Any:
        """The program's outputs for its inputs; TOSA graphs run as their compiled bytes do."""
        values = self.trace(*inputs)
        outputs = [values[o] if isinstance(o, fx.Node) else o for o in self.program.outputs]
        if self.program.out_spec is None:
            return outputs[0] if len(outputs) == 1 else outputs
        return torchapi.unflatten(outputs, self.program.out_spec)

    def trace(self, *inputs: Any) -> dict[fx.Node, Any]:
        """Every value that the program has between its pieces, by node."""
        flat, _ = torchapi.flatten(inputs)
        if len(flat) != len(self.program.inputs):
            wanted = len(self.program.inputs)
            raise InvalidInput(f"the program takes {wanted} inputs, not {len(flat)}")
        values: dict[fx.Node, Any] = dict(self.program.tensors)
        values.update(zip(self.program.inputs, flat, strict=True))
        with torch.no_grad():
            for piece in self.partition.pieces:
                self._run(piece, values)
        return values

    def _run(self, piece: Piece, values: dict[fx.Node, Any]) -> None:
        if piece.node is not None:
            values[piece.node] = torchapi.evaluate(piece.node, values)
            return
        assert piece.graph is not None
        ready = [_narrow(values[n]) for n in piece.inputs]
        ready = [ordered(*pair) for pair in zip(ready, piece.input_orders, strict=True)]
        arrays = self._models[id(piece.graph)].run(*ready)
        given = zip(piece.outputs, arrays, piece.graph.outputs, piece.output_orders, strict=True)
        for node, array, out, order in given:
            tensor, meant = restored(to_torch(array, out.dtype), order), node.meta.get("val")
            values[node] = tensor.to(meant.dtype) if out.quant is None and isinstance(
                meant, Tensor) else tensor  # fmt: skip

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the artifact, by suffix: ``.tosa`` is the flatbuffer, ``.mlir`` its text.

        ``.pte`` and ``.bpte`` are ExecuTorch's; ``tosaic.executorch.package.save`` has options.
        """
        suffix = os.path.splitext(os.fspath(path))[1]
        writer = formats.WRITERS.get(suffix)
        if writer is not None:
            writer(self, path, **options)
        elif options:
            raise InvalidInput(f"a {suffix} file has no option {next(iter(options))!r}")
        elif suffix == ".tosa":
            flatbuffer.write(self.graph, path)
        elif suffix == ".mlir":
            with open(path, "w", encoding="utf-8") as file:
                file.write(print_graph(self.graph))
        else:
            known = ", ".join((".mlir", *formats.WRITERS))
            raise InvalidInput(f"cannot save '{path}': the suffixes are .tosa, {known}")


def _narrow(value: Any) -> Tensor:
    """A tensor as a graph takes it: TOSA's indices have 32 bits."""
    tensor = torch.as_tensor(value).detach()
    return tensor.to(torch.int32) if tensor.dtype is torch.int64 else tensor

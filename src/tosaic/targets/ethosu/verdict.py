"""Checks a TOSA file on an Ethos-U: Vela's stream against the interpreter.

The file is compiled as it stands. Where the stream is wrong, the verdict says whether Tosaic's
workarounds make it right, and holds the fewest operators with which it is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tosaic.errors import InvalidInput, ToolFailed
from tosaic.files import flatbuffer
from tosaic.files.text import print_graph
from tosaic.files.whole import write_together
from tosaic.interp.minimize import Case, copy_graph, reduce
from tosaic.ir.graph import Array, Graph
from tosaic.ir.verify import verify
from tosaic.targets.ethosu.check import Fault
from tosaic.targets.ethosu.target import ETHOS_U
from tosaic.targets.ethosu.vela import VelaConfig
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler, mend, some_input

_COMPILES = 200  # of a reduction that a user asked for


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found: ``failure`` is what is wrong, None if nothing is.

    ``told`` are sentences on what was checked, or on what Tosaic makes of a wrong graph;
    ``reduced`` is the smallest part of it that was found to be wrong.
    """

    target: str
    failure: ToolFailed | None
    told: tuple[str, ...]
    operators: int
    reduced: Case | None = None

    def save(self, stem: str | os.PathLike[str]) -> tuple[Path, Path]:
        """Write the reduced graph as ``stem.tosa`` and ``stem.mlir``."""
        if self.reduced is None:
            raise InvalidInput("there is no reduced graph to write: nothing was wrong, or reduced")
        graph = self.reduced.graph
        paths = Path(f"{stem}.tosa"), Path(f"{stem}.mlir")
        files = dict(zip(paths, (flatbuffer.write(graph), print_graph(graph).encode())))
        write_together(files)
        return paths


def check(
    graph: Graph, target: str, inputs: Sequence[Array] | None = None, is_reduced: bool = False
) -> Verdict:
    """Compile a graph for an Ethos-U, and compare the stream with it."""
    if target not in ETHOS_U:
        known = ", ".join(ETHOS_U)
        raise InvalidInput(f"a check is for an Ethos-U, not {target!r}; there are {known}")
    env = ETHOS_U[target].env
    verify(graph, env)
    graph, inputs = _without_unread(graph, inputs)
    count = len(graph.ops)
    plain = Compiler(VelaConfig(target), env, has_workarounds=False)
    made = plain.compile(copy_graph(graph), inputs)
    if not isinstance(made, Fault):
        return Verdict(target, None, tuple(made.checks), count)
    given, case = some_input(graph, inputs), None
    if is_reduced and given is not None:
        case = reduce(graph, given, plain.alike(made.failure), _COMPILES)
    told = _repaired(graph, inputs, Compiler(VelaConfig(target), env))
    return Verdict(target, made.failure, (told,), count, case)


def _without_unread(
    graph: Graph, inputs: Sequence[Array] | None
) -> tuple[Graph, Sequence[Array] | None]:
    """A graph without inputs that nothing reads: Vela leaves them out of its stream."""
    read = {value for op in graph.walk() for value in op.ins}.union(graph.outputs)
    kept = [place for place, value in enumerate(graph.inputs) if value in read]
    made = replace(graph, inputs=[graph.inputs[place] for place in kept])
    return made, None if inputs is None else [inputs[place] for place in kept]


def _repaired(graph: Graph, inputs: Sequence[Array] | None, compiler: Compiler) -> str:
    made = compiler.compile(copy_graph(graph), inputs)
    if not isinstance(made, Fault):
        return "with Tosaic's workarounds the stream is right"
    mended = mend(copy_graph(graph), inputs, made.failure, compiler)
    return mended.checks[-1] if mended is not None else "Tosaic knows no workaround"

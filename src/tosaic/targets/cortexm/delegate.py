"""A graph compiled to C: its files, its memory plan, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tosaic.files import flatbuffer
from tosaic.ir.graph import Array, Graph
from tosaic.lowering.target import Compiled
from tosaic.targets.cortexm import calls, control, convolutions  # noqa: F401  (they register)
from tosaic.targets.cortexm.cores import Core
from tosaic.targets.cortexm.host import Host
from tosaic.targets.cortexm.lowering import Lowerer
from tosaic.targets.cortexm.memory import Plan, plan
from tosaic.targets.cortexm.program import Program
from tosaic.targets.cortexm.source import Source, Writer
from tosaic.targets.cortexm.streaming import stream


@dataclass(frozen=True, eq=False)
class Network(Compiled):
    """One graph as C: files by name, steps, and where its tensors lie."""

    core: Core = field(kw_only=True)
    name: str = field(kw_only=True)
    program: Program = field(kw_only=True)
    plan: Plan = field(kw_only=True)
    source: Source = field(kw_only=True)

    @property
    def files(self) -> dict[str, bytes]:
        return self.source.files

    @cached_property
    def host(self) -> Host:
        """The C itself, built for this machine."""
        return Host(self.files, self.name, self.plan.size, self.graph.inputs, self.graph.outputs)

    def run(self, *inputs: Array) -> Sequence[Array]:
        return self.host.run(*inputs)


def compile_graph(graph: Graph, core: Core, name: str = "net", is_small: bool = False) -> Network:
    """A graph as C; Unsupported says which operator has none. A small one streams rows."""
    program = Lowerer(graph, core).run()
    if is_small:
        stream(program, core)
    made = plan(program)
    source = Writer(program, made, core, name).write()
    return Network(
        graph, flatbuffer.write(graph), core=core, name=name, program=program, plan=made,
        source=source,
    )  # fmt: skip

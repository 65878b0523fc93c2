"""Mutated state: buffers and inputs that a program writes to become explicit outputs.

Both become plain values here. A kept buffer is one more input behind the user's own and its new
value one more output behind the user's own, in the program as in the TOSA graphs made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from tosaic.front import torchapi

_CHANGES = {
    OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changes:
    """Buffers that a run changes, with their first values, and positions of changed inputs.

    The new values are the last outputs: those of ``states``, then those of ``written``.
    """

    states: tuple[tuple[str, Tensor], ...] = ()
    written: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.states) + len(self.written)


def explicit(exported: ExportedProgram) -> tuple[ExportedProgram, Changes]:
    """The program with what it changes among its inputs and outputs, all in one flat list each."""
    signature = exported.graph_signature
    changed = [s for s in signature.output_specs if s.kind in _CHANGES]
    if not changed:
        return exported, Changes()
    kept = {s.target: s for s in changed if s.kind is not OutputKind.USER_INPUT_MUTATION}
    written = {s.target: s for s in changed if s.kind is OutputKind.USER_INPUT_MUTATION}
    user = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    fixed = [
        s for s in signature.input_specs
        if s.kind is not InputKind.USER_INPUT and s.target not in kept
    ]  # fmt: skip
    states = [s for s in signature.input_specs if s.target in kept and s not in fixed]
    names = [s.arg.name for s in user]
    positions = tuple(i for i, name in enumerate(names) if name in written)
    outs = [s for s in signature.output_specs if s.kind is OutputKind.USER_OUTPUT]
    outs += [kept[str(s.target)] for s in states] + [written[names[i]] for i in positions]
    inputs = [*fixed, *user, *(InputSpec(InputKind.USER_INPUT, s.arg, None) for s in states)]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, s.arg, None) for s in outs]
    order = [signature.output_specs.index(s) for s in outs]
    made = _rebuilt(exported, inputs, outputs, order, len(user) + len(states))
    first = tuple((str(s.target), _tensor(exported, str(s.target))) for s in states)
    return made, Changes(first, positions)


def _tensor(exported: ExportedProgram, target: str) -> Tensor:
    found = exported.state_dict.get(target)
    given = exported.constants[target] if found is None else found
    assert isinstance(given, Tensor)
    return given.detach().clone()


def _rebuilt(
    exported: ExportedProgram,
    inputs: list[InputSpec],
    outputs: list[OutputSpec],
    order: list[int],
    count: int,
) -> ExportedProgram:
    """The program with other specifications, its placeholders and outputs in their order."""
    module = torchapi.copied(exported.graph_module)
    _write_whole(module.graph, exported.graph_signature, outputs, order)
    _reorder(module.graph, [s.arg.name for s in inputs], order)
    module.recompile()
    _, in_spec = torchapi.flatten((tuple(range(count)), {}))
    _, out_spec = torchapi.flatten(tuple(range(len(outputs))))
    call = ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec)
    targets = {s.target for s in inputs if s.target is not None}
    return ExportedProgram(
        root=module, graph=module.graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={k: v for k, v in exported.state_dict.items() if k in targets},
        range_constraints=exported.range_constraints,
        module_call_graph=[ModuleCallEntry("", call)],
        constants={k: v for k, v in exported.constants.items() if k in targets},
    )  # fmt: skip


def _write_whole(
    graph: fx.Graph, given: ExportGraphSignature, outputs: list[OutputSpec], order: list[int]
) -> None:
    """Give what is written the shape and type of what was there: torch leaves that to its copy_."""
    nodes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    homes = {s.target: s.arg.name for s in given.input_specs}
    end = graph.output_node()
    written: Any = end.args[0]
    values = list(written)
    for spec, place in zip(outputs, order, strict=True):
        change, new = given.output_specs[place], values[place]
        if change.kind not in _CHANGES or not isinstance(new, fx.Node):
            continue
        old = nodes[homes.get(change.target, change.target)]
        if torchapi.same_shape(old, new) and old.meta["val"].dtype == new.meta["val"].dtype:
            continue
        with graph.inserting_before(end):
            made = graph.call_function(torch.ops.aten.copy.default, (old, new))
        made.meta = {**new.meta, "val": old.meta["val"]}
        values[place], spec.arg = made, TensorArgument(name=made.name)
    end.args = (tuple(values),)


def _reorder(graph: fx.Graph, names: list[str], order: list[int]) -> None:
    nodes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    first = next(iter(graph.nodes))
    for name in names:
        if nodes[name] is not first:
            first.prepend(nodes[name])
        else:
            first = first.next
    end = graph.output_node()
    given: Any = end.args[0]
    end.args = (tuple(given[i] for i in order),)

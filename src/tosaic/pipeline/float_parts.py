"""A program for a target of floats: refused calls as their parts, and loops as loops."""

from __future__ import annotations

from typing import Any

from torch import fx

from tosaic.front import torchapi
from tosaic.front.imported import Imported
from tosaic.front.program import program_of
from tosaic.lowering.sides import refusals
from tosaic.lowering.support import Trial, constants
from tosaic.lowering.target import Target
from tosaic.passes.decompose import expand
from tosaic.passes.roll_loops import CALLS, roll_loops
from tosaic.pipeline.float_check import agree


def rolled(source: Imported, target: Target) -> Imported:
    """The program with loops that Python has written out, for a target that has loops."""
    if not target.traits.longest_unrolled:
        return source
    module = torchapi.module_of(source.model)
    made = roll_loops(module, target.traits.longest_unrolled * CALLS)
    return source.with_model(module) if made else source


def in_parts(source: Imported, target: Target, example_inputs: tuple[Any, ...]) -> Imported:
    """The program with refused calls as their parts, where none of these is refused.

    Parts that compute something else than the call, as the example shows, are not taken.
    """
    program = program_of(source)
    refused = {r.node for r in refusals(program, target)}
    if not refused:
        return source
    made = _expanded(source, target, refused)
    if made is source or not target.check or agree(program, program_of(made), [example_inputs]):
        return made
    right = {
        name
        for name in refused
        if agree(program, program_of(_expanded(source, target, {name})), [example_inputs])
    }
    return _expanded(source, target, right)


def _expanded(source: Imported, target: Target, names: set[str]) -> Imported:
    """The program with calls of those names as their parts."""
    module = torchapi.module_of(source.model)
    return source.with_model(module) if _expand(module, target, names) else source


def _expand(module: fx.GraphModule, target: Target, names: set[str] | None) -> int:
    """Replace calls of some names, or all that are refused, by their parts; count them.

    Of a branch or a loop it is the calls within.
    """
    count, known, own = 0, constants(module.graph), set(module.graph.nodes)
    for call in [n for n in module.graph.nodes if torchapi.is_region_call(n)]:
        given = call.all_input_nodes if names is None or call.name in names else []
        for path in [str(n.target) for n in given if n.op == "get_attr"]:
            function = torchapi.attribute(module, path)
            made = torchapi.copied(function) if isinstance(function, fx.GraphModule) else None
            if made is not None and (found := _expand(made, target, None)):
                module.set_submodule(path, made)
                count += found
    trial = Trial(target, known)

    def refuses(node: fx.Node) -> str:
        if node in own and names is not None:
            return "it is refused" if node.name in names else ""
        refusal = trial.refusal(node)
        return "" if refusal is None else refusal.reason

    return count + expand(module, refuses, constants=known, traits=target.traits)

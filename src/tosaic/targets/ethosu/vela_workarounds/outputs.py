"""Results that Vela forgets or changes: inputs of the graph, and what the graph reads, too.

An input that is a result as it is has no writer, which Vela asks for. Of the second matrix of a
product Vela 5.2 lets two turns cancel, and then has no tensor for the result. A bool is 0 or -1
inside and 0 or 1 as a result, and what chooses by it then reads the latter.
tests/targets/test_ethosu_outputs.py has the forms.
"""

from __future__ import annotations

from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import dtypes as d
from tosaic.spec.env import Env
from tosaic.targets.ethosu.vela_workarounds.repairs import copy_of

_SAME = {"RESHAPE", "IDENTITY", "TRANSPOSE"}
_MOVES = {"RESHAPE", "TRANSPOSE", "RESCALE"}  # which Vela moves a turn through


def own_outputs(graph: Graph, env: Env) -> None:
    """Copy each result that would be lost."""
    uses = graph.uses()
    for number, value in enumerate(graph.outputs):
        if value in graph.inputs:
            wrong = True
        elif value.dtype is d.BOOL:
            wrong = _is_read(value, uses)
        else:
            wrong = value.dtype in (d.I8, d.I16, d.I32) and (
                _is_lost(value, uses) or _is_between_turns(value, uses)
            )
        if wrong:
            graph.outputs[number] = copy_output(graph, value, env)


def _is_read(value: Value, uses: dict[Value, list[Op]]) -> bool:
    """Whether anything else reads the tensor, in whatever shape."""
    if uses.get(value):
        return True
    made = value.producer
    while made is not None and made.name in _SAME:
        if len(uses[made.ins[0]]) > 1:
            return True
        made = made.ins[0].producer
    return False


def _is_lost(value: Value, uses: dict[Value, list[Op]]) -> bool:
    """Whether it is the second operand of a product, in whatever shape, order and scale."""
    for op in uses.get(value, ()):
        if op.name == "MATMUL" and op.ins[1] is value:
            return True
        if op.name in _MOVES and _is_lost(op.outs[0], uses):
            return True
    return False


def _is_between_turns(value: Value, uses: dict[Value, list[Op]]) -> bool:
    """Whether a TRANSPOSE makes it and another reads it, which become one.

    A RESHAPE that adds or removes axes of one element alone is such a TRANSPOSE.
    """
    made = value.producer
    while made is not None and made.name == "RESHAPE" and not _moves_ones(made):
        made = made.ins[0].producer
    return made is not None and made.name in ("TRANSPOSE", "RESHAPE") and _is_turned(value, uses)


def _moves_ones(op: Op) -> bool:
    before, after = ([n for n in v.shape if n > 1] for v in (op.ins[0], op.outs[0]))
    return before == after


def _is_turned(value: Value, uses: dict[Value, list[Op]]) -> bool:
    return any(
        op.name == "TRANSPOSE" or (op.name in _MOVES and _is_turned(op.outs[0], uses))
        for op in uses.get(value, ())
    )


def copy_output(graph: Graph, value: Value, env: Env) -> Value:
    """A copy that takes over the name of the result."""
    made, op = copy_of(value, env)
    made.name, value.name = value.name, f"{value.name}_inside"
    graph.ops.append(op)
    return made

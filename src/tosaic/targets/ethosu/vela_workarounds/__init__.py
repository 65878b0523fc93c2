"""The table of workarounds of Vela's faults, and the engine that applies them to a graph."""

from __future__ import annotations

from collections.abc import Sequence

from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec.env import Env
from tosaic.targets.ethosu.vela_workarounds.forms import SHAPES, WEIGHTS
from tosaic.targets.ethosu.vela_workarounds.operands import OPERANDS
from tosaic.targets.ethosu.vela_workarounds.outputs import OUTPUTS
from tosaic.targets.ethosu.vela_workarounds.rows import (
    COPIED,
    Operand,
    Output,
    Row,
    Use,
    Uses,
    copy_of,
    copy_output,
    readers_of,
    twin_of,
)

ROWS: tuple[Row, ...] = (*SHAPES, *OPERANDS, *OUTPUTS, *WEIGHTS)
USUAL = tuple(row for row in ROWS if not row.rare)


def apply_workarounds(graph: Graph, env: Env, device: str, rows: Sequence[Row] = USUAL) -> None:
    """Change a graph so that Vela compiles it rightly for a configuration, such as u55-128."""
    rows = [row for row in rows if device.startswith(row.products)]
    _prepare(graph, env, rows)
    uses, outputs = graph.uses(), [row for row in rows if isinstance(row, Output)]
    for place, value in enumerate(graph.outputs):
        if any(row.when(value, graph, uses) for row in outputs):
            graph.outputs[place] = copy_output(graph, value, env)
    for form in WEIGHTS:
        if form in rows:
            form.rewrite(graph, env)


def _prepare(graph: Graph, env: Env, rows: Sequence[Row]) -> None:
    """Other shapes, then copies of operands, in a graph and in its regions."""
    for form in SHAPES:
        if form in rows:
            form.rewrite(graph, env)
    faults: dict[str, list[Operand]] = {}
    for row in rows:
        if isinstance(row, Operand):
            for name in row.ops.split():
                faults.setdefault(name, []).append(row)
    uses, ops = readers_of(graph), list[Op]()
    copies: dict[tuple[object, ...], Value] = {}  # a loop overwrites its own
    for op in graph.ops:
        known = faults.get(op.name, ())
        for position, value in enumerate(op.ins if known else ()):
            if value.is_const or value.dtype not in COPIED:
                continue
            if any(row.matches(Use(op, position, uses)) for row in known):
                key = (value, op, position) if op.regions else (value,)
                if key not in copies:
                    copies[key], made = _copy_for(op, value, uses, env)
                    ops += made
                    for each in made:
                        for source in each.ins:
                            uses.setdefault(source, []).append(each)
                op.ins[position] = copies[key]
                uses.setdefault(copies[key], []).append(op)
        ops.append(op)
        for region in op.regions:
            _prepare(region, env, rows)
    graph.ops = ops


def _copy_for(op: Op, value: Value, uses: Uses, env: Env) -> tuple[Value, list[Op]]:
    """A copy; of a part that only got another shape, before it.

    Vela then makes such parts behind the others, the last one first: as it does where none are
    copied.
    """
    shape = value.producer
    if op.name != "CONCAT" or shape is None or shape.name != "RESHAPE" or len(uses[value]) > 1:
        copied, made = copy_of(value, env)
        return copied, [made]
    copied, made = copy_of(shape.ins[0], env)
    shaped = twin_of(value)
    shaped.ins[0] = copied
    return shaped.outs[0], [made, shaped]

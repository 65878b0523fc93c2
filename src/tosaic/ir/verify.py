"""The whole-graph verifier: every operator against the table, every value against its use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tosaic.errors import InvalidGraph, Unsupported
from tosaic.ir.build import Constraint, known
from tosaic.ir.graph import Graph, Op, Value
from tosaic.spec import OPS
from tosaic.spec.check import check_level, resolve
from tosaic.spec.dtypes import SHAPE, TensorType
from tosaic.spec.env import Env


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule and the operator that breaks it."""

    reason: str
    where: Op | Value | None = None

    def __str__(self) -> str:
        return f"{self.reason} (at {self.where})" if isinstance(self.where, Op) else self.reason


def verify(graph: Graph, env: Env | str, constraints: Sequence[Constraint] = ()) -> None:
    """Raise InvalidGraph with the first problem of a graph, if it has one."""
    for problem in problems(graph, env, constraints):
        raise InvalidGraph(problem.reason, problem.where)


def problems(
    graph: Graph, env: Env | str, constraints: Sequence[Constraint] = ()
) -> Iterator[Problem]:
    """Everything that is wrong with a graph in an environment, one sentence each."""
    yield from _Verifier(Env.parse(env), constraints).graph(graph, 0)


@dataclass(slots=True)
class _Verifier:
    env: Env
    constraints: Sequence[Constraint] = ()
    variables: dict[str, TensorType] = field(default_factory=dict)

    def graph(self, graph: Graph, depth: int) -> Iterator[Problem]:
        defined: set[Value] = set()
        for value in graph.inputs:
            if value in defined:
                yield Problem(f"input {value.name} is listed twice", value)
            elif value.const is not None or value.producer is not None:
                yield Problem(f"input {value.name} has a value already", value)
            defined.add(value)
            yield from self._level(value)
        for op in graph.ops:
            yield from self._operands(op, defined)
            yield from self._op(op, depth)
            for out in op.outs:
                if out in defined or out.producer is not op:
                    yield Problem(f"{out.name} is the result of two operators", op)
                defined.add(out)
        for value in graph.outputs:
            if value not in defined and not value.is_const:
                yield Problem(f"output {value.name} is computed by no operator", value)
            elif value.is_const:
                yield from self._constant(value, defined)

    def _level(self, value: Value) -> Iterator[Problem]:
        try:
            check_level(f"value {value.name}", value.type, self.env)
        except Unsupported as refusal:
            yield Problem(refusal.reason, value)

    def _operands(self, op: Op, defined: set[Value]) -> Iterator[Problem]:
        for value in op.ins:
            if value in defined:
                continue
            if value.is_const:
                yield from self._constant(value, defined)
            else:
                yield Problem(f"{op.name} reads {value.name} before it is computed", op)

    def _constant(self, value: Value, defined: set[Value]) -> Iterator[Problem]:
        """A constant needs the row of CONST that a file will use for it."""
        defined.add(value)
        yield from self._level(value)
        if value.dtype is not SHAPE and (value.dtype,) not in OPS["CONST"].allowed(self.env):
            row = next(r for r in OPS["CONST"].rows if r.types == (value.dtype,))
            missing = " and ".join(row.missing(self.env))
            reason = f"constant {value.name} of {value.dtype} needs {missing}"
            yield Problem(f"{reason}, which {self.env} lacks", value)

    def _op(self, op: Op, depth: int) -> Iterator[Problem]:
        outs = [v.type for v in op.outs]
        kinds = [v.type for v in op.ins]
        try:
            resolve(op.defn, self.env, kinds, op.attrs, partial(known, op.ins), outs, op.regions)
        except Unsupported as refusal:
            yield Problem(refusal.reason, op)
        else:
            yield from self._target(op)
        if op.defn.name.startswith("VARIABLE"):
            yield from self._variable(op)
        if op.regions and depth + 1 > self.env.level.max_nesting:
            most, level = self.env.level.max_nesting, self.env.level.name
            yield Problem(f"{op.name} nests {depth + 1} deep; level {level} allows {most}", op)
            return
        for region in op.regions:
            yield from self.graph(region, depth + 1)

    def _target(self, op: Op) -> Iterator[Problem]:
        for constraint in self.constraints:
            reason = constraint(op)
            if reason:
                yield Problem(f"{op.name}: {reason}", op)

    def _variable(self, op: Op) -> Iterator[Problem]:
        name = op.attrs["name"]
        if op.name == "VARIABLE":
            if name in self.variables:
                yield Problem(f"variable {name} is declared twice", op)
            self.variables[name] = op.attrs["type"]
            return
        declared = self.variables.get(name)
        used = (op.ins or op.outs)[0].type
        if declared is None:
            yield Problem(f"{op.name} uses variable {name}, which is not declared before", op)
        elif declared != used:
            yield Problem(f"{op.name} takes variable {name} as {used}; it is {declared}", op)

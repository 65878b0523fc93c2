"""Repair of a graph that Vela refuses or compiles wrongly: reduce it, then try workarounds.

The fault is first reduced to a few operators. Each workaround is tried on those alone, which takes
milliseconds; what helps there is applied to the whole graph. All of them are exact. The number of
compiles is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tosaic.errors import ToolFailed, TosaicError
from tosaic.interp.minimize import Case, Judge, copy_graph, reduce
from tosaic.ir.graph import Array, Graph, Op
from tosaic.spec.env import Env
from tosaic.targets.ethosu.check import Fault, WrongResult, inputs_for, trial
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.vela import VelaConfig, VelaLost
from tosaic.targets.ethosu.vela_workarounds import ROWS, USUAL, apply_workarounds
from tosaic.targets.ethosu.vela_workarounds.rows import (
    COPIED,
    Row,
    copy_of,
    copy_output,
    keeps_order,
    twin_of,
)

BUDGET = 60  # compiles that a reduction takes at most
_TRIED = 40  # workarounds of one fault
_FAULTS = 4  # faults of one graph
BUFFERING = "--disable-buffering"
_FLAGS = ("--disable-cascading", "--disable-chaining", "--disable-fwd", "--disable-ifm-reuse")


@dataclass(frozen=True, slots=True)
class Compiler:
    """Vela with its configuration, after the known workarounds, and the checks of its streams.

    Without workarounds a graph is compiled as it stands, once.
    """

    config: VelaConfig
    env: Env
    has_workarounds: bool = True

    def compile(
        self, graph: Graph, given: Sequence[Array] | None = None, check: bool = True
    ) -> Delegate | Fault:
        """Change a graph by the known workarounds and compile it, by rare ones if it is wrong.

        Weights that are brought while others are used come too early now and then, over what an
        operation still reads: then they are brought when they are needed.
        """
        if not self.has_workarounds:
            return trial(graph, self.config, given, check)
        self.work_around(graph, USUAL if check else ROWS)
        made, count = trial(graph, self.config, given, check), len(graph.ops)
        if _is_wrong(made):
            self.work_around(graph, ROWS)
            if len(graph.ops) > count:
                made = trial(graph, self.config, given, check)
        if _is_wrong(made):
            other = trial(graph, self.with_flag(BUFFERING).config, given, check)
            return other if isinstance(other, Delegate) else made
        return made

    def work_around(self, graph: Graph, rows: Sequence[Row] = USUAL) -> None:
        """Change a graph by known workarounds; a second time changes nothing."""
        apply_workarounds(graph, self.env, self.config.accelerator.removeprefix("ethos-"), rows)

    def with_flag(self, flag: str) -> Compiler:
        flags = self.config.flags
        more = flags if flag in flags else (*flags, flag)
        return replace(self, config=replace(self.config, flags=more))

    def judge(self, case: Case) -> str:
        """What is wrong with the stream of a case, in words; changes its graph."""
        made = self.compile(case.graph, case.inputs)
        return made.failure.reason if isinstance(made, Fault) else ""

    def alike(self, failure: ToolFailed) -> Judge:
        """A judge for which a case fails if it is wrong, or refused with the same words."""

        def judge(case: Case) -> str:
            made = self.compile(case.graph, case.inputs)
            if isinstance(made, Delegate):
                return ""
            found, is_wrong = made.failure, isinstance(failure, WrongResult)
            alike = isinstance(found, WrongResult) if is_wrong else _words(found) == _words(failure)
            return found.reason if alike else ""

        return judge


def _is_wrong(made: Delegate | Fault) -> bool:
    return isinstance(made, Fault) and isinstance(made.failure, WrongResult)


def _words(failure: ToolFailed) -> str:
    """What a failure says, whatever file it names."""
    return failure.how if isinstance(failure, VelaLost) else failure.reason


@dataclass(frozen=True, slots=True)
class Attempt:
    """A copy, or another RESHAPE, for an operand of an operator; a copy of a result."""

    kind: str
    op: int  # its place among the operators of the reduced graph
    operand: int = 0

    def apply(self, graph: Graph, op: Op, env: Env) -> None:
        if self.kind == "output":
            number = graph.outputs.index(op.outs[0])
            graph.outputs[number] = copy_output(graph, op.outs[0], env)
            return
        value = op.ins[self.operand]
        if self.kind == "copy":
            op.ins[self.operand], made = copy_of(value, env)
        else:
            made = twin_of(value)
            op.ins[self.operand] = made.outs[0]
        graph.ops.insert(graph.ops.index(op), made)

    def told(self, ops: Sequence[Op]) -> str:
        op = ops[self.op]
        if self.kind == "output":
            return f"a copy of the result of {op}"
        what = "a copy" if self.kind == "copy" else "a RESHAPE of its own"
        return f"{what} for operand {self.operand} of {op}"


def mend(
    graph: Graph, given: Sequence[Array] | None, failure: ToolFailed, compiler: Compiler
) -> Delegate | None:
    """Compile a graph that failed with workarounds, and say which in its checks; None if none help.

    ``graph`` is as it was before the known workarounds, and is changed.
    """
    if isinstance(failure, VelaLost) and failure.is_slow:
        return None  # all tries together would take many times as long
    told: list[str] = []
    for _ in range(_FAULTS):
        inputs = some_input(graph, given)
        if inputs is None:
            return None
        case = reduce(graph, inputs, compiler.alike(failure), BUDGET)
        chosen = _first_that_helps(case, compiler)
        if isinstance(chosen, str):
            compiler = compiler.with_flag(chosen)
            told.append(f"Vela runs with {chosen}")
        elif chosen is not None:
            chosen.apply(graph, case.sources[chosen.op], compiler.env)
            told.append(chosen.told(case.sources))
        else:
            return None
        made = compiler.compile(copy_graph(graph), given)
        if isinstance(made, Delegate):
            made.checks.append(f"repaired after a fault of Vela: {'; '.join(told)}")
            return made
        failure = made.failure
    return None


def some_input(graph: Graph, given: Sequence[Array] | None) -> list[Array] | None:
    """An input for which the graph has a result."""
    from tosaic.interp.model import Model

    model = Model(graph)
    for inputs in inputs_for(graph, given):
        try:
            model.run(*inputs)
        except TosaicError:
            continue
        return inputs
    return None


def _first_that_helps(case: Case, compiler: Compiler) -> Attempt | str | None:
    for number, chosen in enumerate(_workarounds(case)):
        if number == _TRIED:
            break
        changed = case.fresh()
        chosen.apply(changed.graph, changed.graph.ops[chosen.op], compiler.env)
        if not compiler.judge(changed):
            return chosen
    return next((f for f in _FLAGS if not compiler.with_flag(f).judge(case.fresh())), None)


def _workarounds(case: Case) -> Iterator[Attempt]:
    for place, op in enumerate(case.graph.ops):
        for operand, value in enumerate(op.ins):
            if value.is_const or value.dtype not in COPIED:
                continue
            if value.producer is not None and keeps_order(value.producer):
                yield Attempt("reshape", place, operand)
            yield Attempt("copy", place, operand)
    for place, op in enumerate(case.graph.ops):
        if op.outs[0] in case.graph.outputs and op.outs[0].dtype in COPIED:
            yield Attempt("output", place)

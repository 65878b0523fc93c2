"""A survey of faults: every small change of the simulator's source that the families should see.

``python -m npu.mutate`` changes operators, comparisons, numbers and choices one at a time, runs
the graphs that reach the changed line, and lists the changes that none of them notices. A survivor
is a missing graph, a check that only hostile input reaches, or a change without effect.
"""

from __future__ import annotations

import argparse
import ast
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from npu.configurations import ACCELERATORS, compile_stream
from npu.families import Case, case, difference, families
from npu.mutants import PACKAGE, Mutant, imported, source
from npu.runner import typed
from tosaic.errors import TosaicError
from tosaic.sim import ethosu

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Mod: ast.FloorDiv, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Change:
    """One changed expression of a module."""

    module: str
    line: int
    old: str
    new: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A case with its compiled stream."""

    case: Case
    compiled: Any

    def noticed(self, package: Any) -> bool:
        """Does the package compute something else, or refuse?"""
        try:
            actual = typed(package.load(self.compiled).run(*self.case.inputs), self.case.expected)
        except Exception:  # noqa: BLE001 - a fault may end in any error, and that is noticed
            return True
        return bool(difference(actual, self.case.expected))


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        yield ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        first = _SWAPS[type(node.ops[0])]()
        yield ast.Compare(node.left, [first, *node.ops[1:]], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(_SWAPS[type(node.op)](), node.values)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield ast.Constant(not node.value)


def changes(module: str) -> Iterator[Change]:
    """All changes of a module, sentences of errors left alone."""
    text = source(module)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data, tree = text.encode(), ast.parse(text)
    skipped = {n for top in ast.walk(tree) if isinstance(top, (ast.Raise, ast.JoinedStr))
               for n in ast.walk(top)}  # fmt: skip
    for top in ast.walk(tree):
        if isinstance(top, ast.FunctionDef) and top.name == "__str__":
            skipped |= set(ast.walk(top))
    for node in ast.walk(tree):
        if node in skipped or not hasattr(node, "col_offset"):
            continue
        for other in _replacements(node):
            first = starts[node.lineno - 1] + node.col_offset
            last = starts[node.end_lineno - 1] + node.end_col_offset
            new = f"({ast.unparse(other)})"
            whole = (data[:first] + new.encode() + data[last:]).decode()
            yield Change(module, node.lineno, ast.unparse(node), new, whole)


def prepare(count: int) -> list[Prepared]:
    """The graphs that `make test` runs, compiled."""
    found = []
    for machine in ACCELERATORS:
        for family in families(machine):
            for index in range(count):
                given = case(family.name, machine, index)
                found.append(Prepared(given, compile_stream(given.data, given.configuration)))
    return found


def lines_reached(prepared: Prepared) -> set[tuple[str, int]]:
    """Module and line of all that the right simulator executes for a case."""
    seen: set[tuple[str, int]] = set()
    folder = str(Path(sys.modules[PACKAGE].__file__ or "").parent)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(folder):
            return None
        seen.add((Path(name).stem, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        ethosu.load(prepared.compiled).run(*prepared.case.inputs)
    except TosaicError:
        pass
    finally:
        sys.settrace(None)
    return seen


def lines_at_import(module: str) -> set[int]:
    """Lines outside of functions, which every case reaches."""
    tree = ast.parse(source(module))
    inside = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    }
    return set(range(1, source(module).count("\n") + 1)) - inside


def modules() -> list[str]:
    folder = Path(sys.modules[PACKAGE].__file__ or "").parent
    return sorted(p.stem for p in folder.glob("*.py") if p.stem != "__init__")


def first_to_notice(change: Change, cases: list[Prepared]) -> Prepared | None:
    """The first case whose result the change spoils."""
    signal.alarm(_SECONDS)
    mutant = Mutant(str(change), change.module, source(change.module), change.text, ())
    try:
        with imported(mutant) as package:
            return next((c for c in cases if c.noticed(package)), None)
    except Exception:  # noqa: BLE001 - a package that cannot be imported is noticed
        return cases[0]
    finally:
        signal.alarm(0)


def _overdue(number: int, frame: FrameType | None) -> None:
    raise TimeoutError("the changed simulator does not end")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2, help="graphs of a family on a machine")
    parser.add_argument("--sample", type=int, default=300, help="changes to try, 0 for all")
    parser.add_argument("--only", nargs="*", default=[], help="modules")
    parser.add_argument("--cases", type=int, default=40, help="graphs to try for a change")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _overdue)
    cases = [c for c in prepare(options.count) if not c.noticed(ethosu)]
    reached = [(c, lines_reached(c)) for c in cases]
    tried = [c for m in options.only or modules() for c in changes(m)]
    random.Random(options.seed).shuffle(tried)
    outside = {m: lines_at_import(m) for m in modules()}
    caught = survived = unreached = 0
    for change in tried[: options.sample or None]:
        everywhere = change.line in outside[change.module]
        place = (change.module, change.line)
        covering = [c for c, lines in reached if everywhere or place in lines]
        if not covering:
            unreached += 1
            print(f"not reached  {change}", flush=True)
            continue
        random.Random(0).shuffle(covering)
        noticed = first_to_notice(change, covering[: options.cases])
        if noticed is None:
            survived += 1
            print(f"survived     {change}  ({len(covering)} graphs)", flush=True)
        else:
            caught += 1
            print(f"caught       {change}  by {noticed.case.family}", flush=True)
    print(f"{caught} caught, {survived} survived, {unreached} on lines that no graph reaches")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One rewrite by itself: a graph as MLIR text before it, and what the rewrite alone makes of it.

A file has a line ``// MODULE.FUNCTION on TARGET``, the graph before, ``// -----`` and the graph
after. ``python -m judges.alone FILE...`` writes what is behind that line anew.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from tosaic.files.parse import parse
from tosaic.files.text import print_graph
from tosaic.ir import verify
from tosaic.ir.graph import Graph
from tosaic.rewrite.match import FORMS, REWRITES, Matcher, Rewrite, remove_dead
from tosaic.targets.catalog import target_of

FOLDER = Path(__file__).resolve().parent.parent / "rewrite" / "alone"
_SPLIT = "// -----\n"


@dataclass(frozen=True, slots=True)
class Alone:
    """A file: the rewrite, the target that it is tried for, and both graphs as text."""

    name: str
    target: str
    before: str
    after: str

    @property
    def rewrite(self) -> Rewrite:
        module, _, function = self.name.partition(".")
        found: Rewrite = getattr(importlib.import_module(f"tosaic.rewrite.{module}"), function)
        return found

    def __str__(self) -> str:
        return f"// {self.name} on {self.target}\n{self.before}{_SPLIT}{self.after}"


def read(path: Path) -> Alone:
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    name, _, target = first.removeprefix("// ").partition(" on ")
    before, _, after = rest.partition(_SPLIT)
    return Alone(name, target, before, after)


def applied(function: Rewrite, target: str, graph: Graph) -> tuple[Graph, bool]:
    """The graph after a rewrite of the first operator that it takes, whatever that costs."""
    known = target_of(target)
    matcher = Matcher(
        remove_dead(graph), known.env, known.refuses, known.cost, True, traits=known.traits
    )
    names = {name for kept in (REWRITES, FORMS) for name in kept if function in kept[name]}
    done = any(
        matcher.attempt(function, op) for op in graph.ops if not names or {op.name, ""} & names
    )
    graph.ops = matcher._ordered()
    remove_dead(graph)
    verify(graph, known.env, known.constraints)
    return graph, done


def text_after(case: Alone) -> str:
    return print_graph(applied(case.rewrite, case.target, parse(case.before))[0])


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        case = read(path)
        after = text_after(case)
        path.write_text(str(Alone(case.name, case.target, case.before, after)), encoding="utf-8")


if __name__ == "__main__":
    main()

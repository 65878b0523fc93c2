"""The Cortex-M targets and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.ir.graph import Array, Graph
from tosaic.ir.traits import Traits
from tosaic.lowering.target import Target
from tosaic.spec.env import Env
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.cortexm.delegate import Network, compile_graph

_ENV = "TOSA-1.0+INT+int16+int4+cf"
_TRAITS = Traits(sums_ride=False, steps_at_once=8, fuses_widening=True, fuses_epilogue=True)


@dataclass(frozen=True, slots=True)
class Options:
    """How the C is made: ``name`` is the prefix of its functions and files.

    ``memory`` is "small" for an arena as small as it can be: layers run row by row.
    """

    name: str = "net"
    memory: str = "fast"
    check: bool = True


def with_options(name: str, given: Mapping[str, Any]) -> Target:
    """A target with options by their names; InvalidInput if it has no such."""
    names = [field.name for field in fields(Options)]
    for option in given:
        if option not in names:
            raise InvalidInput(f"{name} has no option {option!r}; it has {', '.join(names)}")
    options = Options(**{key: value for key, value in given.items() if value is not None})
    if options.memory not in ("fast", "small"):
        raise InvalidInput(f"memory is 'fast' or 'small', not {options.memory!r}")
    core = CORES[name]
    return Target(
        name, Env.parse(_ENV), traits=_TRAITS, emit=partial(_emit, name, options),
        engines={"c": lambda made: made}, about=core.about, options=dict(given),
        check=options.check,
    )  # fmt: skip


def _emit(
    name: str, options: Options, graph: Graph, given: Sequence[Array] | None = None,
    mends: bool = True,
) -> Network:  # fmt: skip
    return compile_graph(graph, CORES[name], options.name, options.memory == "small")

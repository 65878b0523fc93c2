"""The Ethos-U targets: eleven configurations of three products, and their options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.interp.minimize import copy_graph
from tosaic.ir.graph import Array, Graph
from tosaic.lowering.target import Target
from tosaic.spec.env import Env
from tosaic.targets.ethosu.check import Fault
from tosaic.targets.ethosu.constraints import DEDICATED, FAMILIES, constraint
from tosaic.targets.ethosu.costs import cycles
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.judge import judge
from tosaic.targets.ethosu.vela import ACCELERATORS, VelaConfig, check
from tosaic.targets.ethosu.vela_processes import start
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler, mend

# U85 branches; the older ones do not.
_ENVS = {
    "u55": "TOSA-1.0+INT+int16+int4",
    "u65": "TOSA-1.0+INT+int16+int4",
    "u85": "TOSA-1.0+INT+int16+int4+cf",
}
# U85 has weights in its memory, beside which the products of a few steps are nothing.
_STEPS_AT_ONCE = {"u55": 1, "u65": 1, "u85": 8}


@dataclass(frozen=True, slots=True)
class Options:
    """How Vela compiles, and how much memory the result may take; 0 is no limit.

    ``vela_ini`` is a file of the user's own, ``vela_flags`` are those of Vela's command line.
    ``check`` compares the stream with its graph before anybody gets it; False leaves that out.
    """

    system_config: str = ""
    memory_mode: str = ""
    vela_ini: str = ""
    vela_flags: str | tuple[str, ...] = ()
    max_scratch_bytes: int = 0
    max_flash_bytes: int = 0
    check: bool = True


def family(accelerator: str) -> str:
    """The product of a configuration: u55, u65 or u85."""
    return accelerator.split("-")[1]


def _target(name: str) -> Target:
    product = family(name)
    emit = partial(_emit, VelaConfig(name), Options())
    return Target(
        name, Env.parse(_ENVS[product]), (constraint(FAMILIES[product]),), emit, start,
        sums_ride=False, steps_at_once=_STEPS_AT_ONCE[product],
        cost=cycles(product, ACCELERATORS[name][0]),
        judge=partial(judge, VelaConfig(name), Env.parse(_ENVS[product])),
    )  # fmt: skip


def with_options(name: str, given: Mapping[str, Any]) -> Target:
    """A target with options by their names; InvalidInput if Vela's configuration has no such."""
    names = [field.name for field in fields(Options)]
    for option in given:
        if option not in names:
            raise InvalidInput(f"{name} has no option {option!r}; it has {', '.join(names)}")
    options = Options(**{key: value for key, value in given.items() if value is not None})
    flags = options.vela_flags
    config = VelaConfig(
        name, options.system_config, options.memory_mode, str(options.vela_ini),
        (flags,) if isinstance(flags, str) else tuple(flags),
    )  # fmt: skip
    check(config)
    known = ETHOS_U[name]
    more = (constraint(DEDICATED),) if config.has_dedicated_sram else ()
    emit = partial(_emit, config, options)
    judged = partial(judge, config, known.env)
    return replace(known, emit=emit, judge=judged, constraints=(*known.constraints, *more))


def _emit(
    config: VelaConfig, options: Options, graph: Graph, given: Sequence[Array] | None = None,
    mends: bool = True,
) -> Delegate:  # fmt: skip
    """Compile a graph; with ``mends`` a fault of Vela is worked around, if it can be."""
    compiler, unchanged = Compiler(config, ETHOS_U[config.accelerator].env), copy_graph(graph)
    made = compiler.compile(graph, given, options.check)
    if isinstance(made, Fault):
        mended = mend(unchanged, given, made.failure, compiler) if mends else None
        if mended is None:
            raise made.failure
        graph.inputs, graph.outputs = mended.graph.inputs, mended.graph.outputs
        graph.ops = mended.graph.ops
        made = replace(mended, graph=graph)  # which the program's pieces have
    made.check("scratch memory", made.result.scratch_size, options.max_scratch_bytes)
    made.check("flash", made.result.performance.flash, options.max_flash_bytes)
    return made


ETHOS_U: dict[str, Target] = {name: _target(name) for name in ACCELERATORS}

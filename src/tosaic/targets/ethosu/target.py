"""The Ethos-U targets: eleven configurations of three products, and their options."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.interp.minimize import copy_graph
from tosaic.ir.graph import Array, Graph
from tosaic.ir.traits import Traits
from tosaic.lowering.target import HostCost, Target, options_of
from tosaic.runtime.warn import warn
from tosaic.spec.env import Env
from tosaic.targets.ethosu import ACCELERATORS, FAMILY
from tosaic.targets.ethosu.check import Fault
from tosaic.targets.ethosu.constraints import DEDICATED, FAMILIES, constraint
from tosaic.targets.ethosu.costs import cycles
from tosaic.targets.ethosu.delegate import Delegate
from tosaic.targets.ethosu.judge import judge
from tosaic.targets.ethosu.vela import VelaConfig, check
from tosaic.targets.ethosu.vela_processes import start
from tosaic.targets.ethosu.vela_workarounds.mend import Compiler, mend
from tosaic.targets.ethosu.weight_parts import split_layers

# U85 branches; the older ones do not.
_ENVS = {
    "u55": "TOSA-1.0+INT+int16+int4",
    "u65": "TOSA-1.0+INT+int16+int4",
    "u85": "TOSA-1.0+INT+int16+int4+cf",
}
_NPU = Traits(
    fuses_sums=False, sum_bits=(19, 14), lanes=16, narrow_channels=8, channel_block=16,
    op_cycles=500, row_cost=1.3, transposed_axes=3, view_axes=4, most_axes=4, kernel_rows=64,
    kernel_elements=4096, fuses_widening=True, fuses_epilogue=True, loads_tables=True,
    one_shape=True, matmul="elementwise", steps_at_once=1, longest_unrolled=48,
    host_loops=True, steps_a_call=10,
)  # fmt: skip
# U85 multiplies matrices, and has weights in its memory, beside which the products of a few steps
# of a recurrent layer are nothing.
_U85 = replace(_NPU, matmul="transposes", transpose_doubt=8.0, steps_at_once=8)
_TRAITS = {"u55": _NPU, "u65": _NPU, "u85": _U85}
# ExecuTorch's portable kernels on a Cortex-M at the clock of the NPU: a call, with a margin for a
# kernel that the image must have, then a loop that copies rows by the byte, or elements.
_ROWS = HostCost(10_000, byte=2.0)
_ELEMENTS = HostCost(10_000, element=20.0)
_HOST_COSTS = {
    "aten.embedding.default": _ROWS, "aten.index_select.default": _ROWS,
    "aten.index.Tensor": _ELEMENTS, "aten.gather.default": _ELEMENTS,
}  # fmt: skip
_ADVICE = (
    ("Vela",
     "Vela does not take this form though the target should: another shape, stride or order of "
     "calls may pass. On the CPU the result is right."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """How Vela compiles, and how much memory the result may take; 0 is no limit.

    ``vela_ini`` is a file of the user's own, ``vela_flags`` are those of Vela's command line.
    ``check`` compares the stream with its graph before anybody gets it; False leaves that out.
    ``unroll`` is how many steps of a recurrence a stream computes, which the host calls again and
    again: the number nearest to it that divides all of them, True for all, False for about ten. By
    itself, all of a short recurrence, and about ten of a long one. With ``all_on_npu`` lookups of
    tables that the host is faster at stay on the NPU. With ``share_weights`` several sizes in one
    artifact have one set of weights, as layers are computed a few channels at a time: by itself on
    U55 and U65, where that takes a few percent of cycles, and not on U85, where it takes a third.
    """

    system_config: str = ""
    memory_mode: str = ""
    vela_ini: str | os.PathLike[str] = ""
    vela_flags: str | tuple[str, ...] = ()
    max_scratch_bytes: int = 0
    max_flash_bytes: int = 0
    check: bool = True
    unroll: bool | int | None = None
    all_on_npu: bool = False
    share_weights: bool | None = None


def family(accelerator: str) -> str:
    """The product of a configuration: u55, u65 or u85."""
    return accelerator.split("-")[1]


def _target(name: str) -> Target:
    product, (macs, cores, defaults) = family(name), ACCELERATORS[name]
    env = Env.parse(_ENVS[product])
    return Target(
        name, env, (constraint(FAMILIES[product]),), _TRAITS[product], cycles(product, macs),
        partial(judge, VelaConfig(name), env),
        workarounds=Compiler(VelaConfig(name), env).work_around,
        alike=None if product == "u85" else _splitter(product, env),
        emit=partial(_emit, VelaConfig(name), Options()), start=start,
        engines={"npu": lambda made: made.simulation}, backend="EthosUBackend",
        verdict=partial(_verdict, name), about=FAMILY.names[name],
        options=dict(zip(("system_config", "memory_mode"), defaults)),
        packages={"ethos-u-vela": "ethos-u-vela"}, peak_macs=macs * cores, advice=_ADVICE,
        host_costs=_HOST_COSTS,
    )  # fmt: skip


def _splitter(product: str, env: Env) -> Callable[[Graph], None]:
    return partial(split_layers, env=env, constraints=(constraint(FAMILIES[product]),))


def _verdict(name: str, *given: Any) -> Any:
    from tosaic.targets.ethosu.verdict import check as checked  # which knows the targets

    return checked(given[0], name, *given[1:])


def _warn_of_another(name: str, config: VelaConfig) -> None:
    """A System_Config of Vela's own is of one series: its clock and memories are no other's."""
    own = ACCELERATORS[name][2][0][: len("Ethos_U55")]
    if not config.ini and config.system_config and not config.system_config.startswith(own):
        warn(f"system_config {config.system_config} is not of {name}: times are those of its clock "
             f"and memories; those of this NPU begin with {own}")  # fmt: skip


def with_options(name: str, given: Mapping[str, Any]) -> Target:
    """A target with options by their names; InvalidInput if Vela's configuration has no such."""
    options = options_of(name, Options, given)
    if min(options.max_scratch_bytes, options.max_flash_bytes) < 0:
        raise InvalidInput("max_scratch_bytes and max_flash_bytes are bytes, and 0 is no limit")
    flags = options.vela_flags
    config = VelaConfig(
        name, options.system_config, options.memory_mode, str(options.vela_ini),
        (flags,) if isinstance(flags, str) else tuple(flags),
    )  # fmt: skip
    check(config)
    _warn_of_another(name, config)
    known = ETHOS_U[name]
    more = (constraint(DEDICATED),) if config.has_dedicated_sram else ()
    emit, traits, alike = partial(_emit, config, options), known.traits, known.alike
    if options.share_weights is not None:
        alike = _splitter(family(name), known.env) if options.share_weights else None
    if options.unroll is not None:
        told: Any = options.unroll
        if not isinstance(told, int) or (told < 1 and told is not False):
            raise InvalidInput(f"unroll is True, False or a number of steps, not {told!r}")
        traits = replace(traits, longest_unrolled=1, host_loops=options.unroll is not True)
        if not isinstance(options.unroll, bool):
            traits = replace(traits, steps_a_call=options.unroll)
    return replace(
        known, emit=emit, traits=traits, judge=partial(judge, config, known.env),
        constraints=(*known.constraints, *more), check=options.check,
        options={**known.options, **{k: v for k, v in given.items() if v is not None}},
        host_costs={} if options.all_on_npu else known.host_costs,
        alike=alike,
    )  # fmt: skip


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
    made.check("flash", sum(made.stored.values()), options.max_flash_bytes)
    return made


ETHOS_U: dict[str, Target] = {name: _target(name) for name in ACCELERATORS}

"""The VGF target: what of TOSA the model converter takes, what a graph costs, files and engines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tosaic.errors import InvalidGraph, InvalidInput, ToolFailed, ToolMissing
from tosaic.files import flatbuffer, vgf
from tosaic.files.vgf.container import MAGIC, with_names
from tosaic.files.vgf.shaders import DOMAIN
from tosaic.files.whole import write_together
from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph, Op, Value
from tosaic.ir.traits import Traits
from tosaic.lowering.target import Compiled, Estimate, Format, Target, options_of
from tosaic.sim.vulkan.environment import check_device
from tosaic.spec.env import Env
from tosaic.targets.vgf import FAMILY
from tosaic.targets.vgf.beside import sample as cpp_sample
from tosaic.targets.vgf.beside import scenario_files
from tosaic.targets.vgf.constraints import constraint
from tosaic.targets.vgf.converter import PACKAGE, SECONDS, checked_flags, convert, find_converter
from tosaic.targets.vgf.doctor import checks
from tosaic.targets.vgf.file import ENGINES, VgfFile
from tosaic.targets.vgf.readback import difference
from tosaic.targets.vgf.workarounds import work_around

if TYPE_CHECKING:
    from tosaic.sim.vulkan.session import Session

# The converter takes FFT2D and RFFT2D too, but the emulation ends the process where their results
# are not those of the graph: transforms are products of matrices here.
SPEC = "TOSA-1.0+INT+FP+int16+int4+bf16+fp8e4m3+fp8e5m2"


@dataclass(frozen=True, slots=True)
class Options:
    """How a graph becomes a file, and which device runs it here.

    ``spec`` is a TOSA specification with less than the converter takes. ``device`` is "lavapipe"
    with the emulation layers, "system" for the driver as it is installed, or an ICD's manifest.
    ``check`` compares float graphs with PyTorch on the example. ``widen`` computes in fp32 what
    fp16 and bf16 store. ``profile`` runs each graph on the device once it is compiled, and the
    report has milliseconds by module and line.
    """

    spec: str = SPEC
    device: str = "lavapipe"
    converter_flags: str | tuple[str, ...] = ()
    converter_seconds: float = SECONDS
    check: bool = True
    widen: bool = True
    profile: bool = False


@dataclass(frozen=True, eq=False)
class Program(Compiled):
    """A graph as a ``.vgf``; ``model`` interprets what the file itself holds."""

    device: str = "lavapipe"
    measured: Estimate | None = None

    @property
    def estimate(self) -> Estimate | None:
        """What a run takes, where it was measured."""
        return self.measured

    @cached_property
    def model(self) -> Model:
        return Model(vgf.read(self.data))

    @cached_property
    def session(self) -> Session:
        """The file on Vulkan."""
        from tosaic.sim.vulkan.session import Session

        return Session(self.data, self.device)


def emit(
    options: Options, flags: tuple[str, ...], graph: Graph,
    given: Sequence[Array] | None = None, mends: bool = True,
) -> Program:  # fmt: skip
    """Convert a graph, give its ports their names, and read back what the file holds."""
    tosa = flatbuffer.write(graph)
    made = convert(tosa, flags, options.converter_seconds, keeps=mends)
    try:
        data = with_names(made, _names(graph.inputs, "input"), _names(graph.outputs, "output"))
        wrong = difference(graph, vgf.read(data))
    except InvalidGraph as problem:
        wrong = problem.reason
    if wrong is not None:
        raise ToolFailed(f"the model converter wrote another graph: {wrong}")
    count = len(graph.ops)
    checks = [f"the file was read back and holds the graph: {count} operator{'s' * (count != 1)}"]
    if any(op.name == "CUSTOM" for op in graph.ops):
        checks += _compared(graph, given, options, flags)
    from tosaic.targets.vgf.profile import measured, told_of

    checks += told_of(graph, data)
    found = measured(graph, data, options.device, given) if options.profile else None
    return Program(graph, tosa, data, checks, device=options.device, measured=found)


def _compared(
    graph: Graph, given: Sequence[Array] | None, options: Options, flags: tuple[str, ...]
) -> list[str]:
    """Shaders beside their functions, on Vulkan."""
    from tosaic.sim.vulkan.session import Session
    from tosaic.targets.vgf.shaders import check_shaders

    def run(tosa: bytes, arrays: Sequence[Array]) -> Sequence[Array]:
        data = convert(tosa, flags, options.converter_seconds, keeps=False)
        return Session(data, options.device).run(*arrays)

    return check_shaders(graph, given, run)


def _names(ports: Sequence[Value], kind: str) -> list[str]:
    """A name for each port, each once: outputs that are the same value differ by a number."""
    names: list[str] = []
    for number, value in enumerate(ports):
        name = value.name or f"{kind}_{number}"
        names.append(name if name not in names else f"{name}_{number}")
    return names


def _write(artifact: Any, path: Any, scenario: Any = None, sample: bool = False) -> None:
    """The file; with ``scenario`` (True, or inputs of the network) and ``sample`` what goes beside.

    ``scenario`` adds ``net.scenario.json`` and inputs for the SDK's runner, ``sample`` a C++
    program that opens the file with the VGF library.
    """
    graph, path = artifact.graph, Path(os.fspath(path))
    data = artifact.delegates[0].data
    files = {path: data}
    if scenario is not None and scenario is not False:
        given = None if scenario is True else _operands(artifact, graph, scenario)
        files |= scenario_files(data, path, given)
    if sample:
        files[path.with_suffix(".cpp")] = cpp_sample(path)
    write_together(files)


def _operands(artifact: Any, graph: Graph, scenario: Any) -> list[Array]:
    """What the graph is given for inputs of the network: arrays in its own order and types."""
    given = scenario if isinstance(scenario, (tuple, list)) else (scenario,)
    arrays = [np.asarray(each) for each in given]
    if [a.shape for a in arrays] != [v.shape for v in graph.inputs]:
        shapes = ", ".join(str(list(v.shape)) for v in graph.inputs)
        raise InvalidInput(f"the scenario's inputs are those of the file: {shapes}")
    return [a.astype(v.dtype.array) for a, v in zip(arrays, graph.inputs)]


def _cost(op: Op) -> float:
    """The same for each operator: building a graph takes time and memory by their number."""
    return 1.0


def _start(flags: tuple[str, ...] = ()) -> None:
    """What nothing could be compiled with is told before a model is exported and quantized."""
    find_converter()
    if not flags:
        return
    b = Builder("TOSA-1.0+FP")
    b.output(b.ABS(b.input("f32", (4,), "x")))
    try:
        wrong = difference(
            b.graph, vgf.read(convert(flatbuffer.write(b.graph), flags, keeps=False))
        )
    except ToolMissing:
        raise
    except (ToolFailed, InvalidGraph) as problem:
        wrong = problem.reason
    if wrong is not None:
        raise InvalidInput(f"converter_flags '{shlex.join(flags)}' give no usable file: {wrong}")


_TRAITS = Traits(computes_both=True, most_rounds=64, domains=(DOMAIN,))
_TARGET = Target(
    "vgf", Env.parse(SPEC), (constraint,), _TRAITS, _cost,
    workarounds=work_around, emit=partial(emit, Options(), ()), start=_start,
    engines={"vgf": lambda made: made.model, "vulkan": lambda made: made.session},
    formats={".vgf": Format(_write, VgfFile, MAGIC, ENGINES)}, backend="VgfBackend",
    doctor=checks, about=FAMILY.names["vgf"], packages={PACKAGE: '"tosaic[vgf]"'},
)  # fmt: skip


def with_options(given: Mapping[str, Any]) -> Target:
    """The target with options by their names; InvalidInput if there is no such."""
    options = options_of("vgf", Options, given)
    env = Env.parse(options.spec)
    beyond = env.features - _TARGET.env.features
    if beyond or env.version != _TARGET.env.version:
        more = ", ".join(sorted(beyond)) or f"TOSA {'.'.join(map(str, env.version))}"
        raise InvalidInput(f"the model converter does not take {more}; it takes {SPEC}")
    check_device(options.device)
    flags = checked_flags(options.converter_flags)
    return replace(
        _TARGET, env=env, emit=partial(emit, options, flags), check=options.check,
        workarounds=partial(work_around, widen=options.widen), options=dict(given),
        start=partial(_start, flags),
    )  # fmt: skip

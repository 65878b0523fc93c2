"""Lists the contents of a compiled file as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import tosaic
from tosaic.errors import InvalidInput
from tosaic.executorch.api import SUFFIXES
from tosaic.executorch.executors import EthosUExecutor, Executor, GraphExecutor
from tosaic.executorch.runner import Runner
from tosaic.files.flatbuffer import read
from tosaic.files.text import print_graph
from tosaic.interp.model import Model
from tosaic.sim.ethosu.velabin import Boundary


def lines(file: Path, npu: bool, tosa: bool, weights: list[Path]) -> Iterator[str]:
    """The contents of a ``.tosa``, a target's own file, or a ``.pte`` with its weights."""
    if file.suffix not in SUFFIXES:
        if npu:
            raise InvalidInput(f"'{file}' is TOSA; a .pte for an Ethos-U has an NPU's stream")
        held = tosaic.load(file) if file.suffix not in ("", ".tosa") else None
        graph = held.graph if isinstance(held, Model) else read(file)
        yield print_graph(graph).rstrip("\n")
        return
    program = tosaic.load(file, external_weights=weights)
    assert isinstance(program, Runner)
    yield f"{file.name}: {file.stat().st_size:,} bytes"
    for way, infos in (("input", program.inputs), ("output", program.outputs)):
        for number, info in enumerate(infos):
            yield f"{way} {number}: {info if info is not None else 'a number'}"
    for name in program.operators:
        yield f"on the CPU: {name}"
    for number, executor in enumerate(program.delegates):
        yield from _delegate(number, executor, npu, tosa)


def draw(file: Path, output: Path, weights: list[Path]) -> None:
    """Write the graphs of a file as a report (``.html``) or for Model Explorer (``.json``)."""
    from tosaic.report import write_report
    from tosaic.report.explorer import write_explorer
    from tosaic.report.of_graphs import artifact_of

    if file.suffix in SUFFIXES:
        program = tosaic.load(file, external_weights=weights)
        assert isinstance(program, Runner)
        graphs = [e.graph for e in program.delegates if isinstance(e, GraphExecutor)]
    else:
        held = tosaic.load(file)
        graphs = [held.graph] if isinstance(held, Model) else []
    if not graphs:
        raise InvalidInput(f"'{file}' holds no graph to draw: NPUs have streams of commands")
    if output.suffix == ".html":
        write_report(artifact_of(graphs, file.name), output, title=file.name)
    elif output.suffix == ".json":
        write_explorer(artifact_of(graphs, file.name), output)
    else:
        raise InvalidInput(f"'{output}' is no .html (a report) and no .json (Model Explorer)")


def _delegate(number: int, executor: Executor, npu: bool, tosa: bool) -> Iterator[str]:
    if isinstance(executor, EthosUExecutor):
        stream, simulation = executor.stream, executor.simulation
        yield f"delegate {number}: a stream for {simulation.config.name}"
        yield f"  commands {len(stream.command_stream):,} bytes, weights {len(stream.weights):,}"
        yield f"  scratch memory {stream.scratch_size:,} bytes"
        for way, tensors in (("input", stream.inputs), ("output", stream.outputs)):
            yield from (f"  {way} {i}: {_place(tensor)}" for i, tensor in enumerate(tensors))
        if npu:
            yield from simulation.disassemble().splitlines()
    elif isinstance(executor, GraphExecutor):
        yield f"delegate {number}: {executor.graph}"
        if tosa:
            yield print_graph(executor.graph).rstrip("\n")


def _place(tensor: Boundary) -> str:
    shape = "×".join(map(str, tensor.shape))
    bits = 8 * tensor.element_size
    return f"{bits} bits, {shape}, at {tensor.address:#x} of region {tensor.region}"

"""The artifact that compiling returns: graphs, boundary, files and an exact run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, fx

from tosaic.boundary.arguments import (
    Given,
    checked_leaves,
    first_values,
    given_values,
    leaves_of,
)
from tosaic.boundary.interface import Boundary, boundary_of
from tosaic.errors import InvalidInput, Unpredictable
from tosaic.files import flatbuffer
from tosaic.files.text import print_graph
from tosaic.files.whole import write_whole
from tosaic.front import torchapi
from tosaic.front.program import Program
from tosaic.interp.device import CPU, checked_memory
from tosaic.interp.kernel import to_numpy
from tosaic.interp.model import Model
from tosaic.ir.graph import Graph
from tosaic.lowering.partition import Partition, Piece
from tosaic.lowering.target import Engine, Target
from tosaic.pipeline import batches, execution, formats, streaming
from tosaic.pipeline.accuracy import OutputAccuracy, Reference, accuracy_of, warn_if_low
from tosaic.pipeline.goals import Precision
from tosaic.pipeline.quantization import quantization_of
from tosaic.pipeline.report import Report, report_of
from tosaic.runtime.default_device import on_cpu
from tosaic.runtime.gc import of_new_objects
from tosaic.runtime.timing import Timing, current
from tosaic.runtime.versions import versions
from tosaic.targets.catalog import elsewhere, target_of


@dataclass(eq=False, repr=False)
class Artifact:
    """A compiled program: TOSA graphs, and what PyTorch runs round them.

    ``run`` takes and gives what the program does, in its own structure. ``delegates`` are the
    graphs as the target's compiler made them, in the order of ``partition.graphs``; TOSA has none.
    ``options`` are what it was compiled with beside the target, ``device`` is the target itself.
    ``timing`` is how long each phase of the compilation took.
    """

    program: Program
    partition: Partition
    target: str
    delegates: tuple[Any, ...] = ()  # of Compiled, with what each target adds to it
    options: Mapping[str, Any] = field(default_factory=dict)
    made_for: Target | None = None
    precision: Precision | None = None  # what automatic precision has chosen, and why
    timing: Timing = field(default_factory=current)

    reference: Reference | None = None  # the float model's results for an example

    def __repr__(self) -> str:
        return f"<tosaic Artifact: {self.report.headline}>"

    def _repr_html_(self) -> str:
        """A short table for notebooks."""
        return self.report.as_html()

    def __reduce__(self) -> tuple[Any, ...]:
        """What it holds, and the state that runs left; the target by its name and options."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "made_for"}
        held = own, dict(self.device.options), self.__dict__.get("_state")
        return _unpickled, (torchapi.dumps(held), type(self))

    @cached_property
    def device(self) -> Target:
        return self.made_for or target_of(self.target)

    @property
    def graph(self) -> Graph:
        """The one graph that the program became."""
        graphs = self.partition.graphs
        if len(graphs) != 1:
            where = "stays in PyTorch" if self.partition.refused else "is for another processor"
            raise InvalidInput(
                f"the program became {len(graphs)} graphs, since some of it {where}, and "
                "this is for one: save it as .pte, or take them from .files or .partition.graphs"
            )
        return graphs[0]

    @cached_property
    def _files(self) -> dict[int, bytes]:
        known = {id(d.graph): d.tosa for d in self.delegates}
        return {id(g): known.get(id(g)) or flatbuffer.write(g) for g in self.partition.graphs}

    @property
    def files(self) -> list[bytes]:
        """The TOSA files of all graphs, in their order."""
        return [self._files[id(graph)] for graph in self.partition.graphs]

    @property
    def bytes(self) -> bytes:
        """The compiled file."""
        return self._files[id(self.graph)]

    @cached_property
    def _models(self) -> dict[int, Model]:
        known = {id(d.graph): d for d in self.delegates}
        with of_new_objects():
            return {
                key: known[key].model if key in known else Model(flatbuffer.read(data))
                for key, data in self._files.items()
            }

    @cached_property
    def _engines(self) -> dict[tuple[str, int], Engine]:
        """The engines that have run so far, by name and graph."""
        return {}

    def _running(self, name: str, graph: Graph) -> Engine:
        known = self._engines
        if (name, id(graph)) not in known:
            made = next(each for each in self.delegates if each.graph is graph)
            piece = next(each for each in self.partition.walk() if each.graph is graph)
            engines = (piece.host or self.device).engines
            known[name, id(graph)] = engines.get(name, next(iter(engines.values())))(made)
        return known[name, id(graph)]

    def _arrays(self, graph: Graph, ready: list[Tensor], engine: str) -> list[Any]:
        """What a graph gives, by the interpreter or by an engine of the target."""
        if engine == "tosa":
            return list(self._models[id(graph)].run(*ready))
        given = zip(ready, graph.inputs, strict=True)
        arrays = (to_numpy(tensor.contiguous(), port.dtype) for tensor, port in given)
        found = self._running(engine, graph).run(*arrays)
        shaped = zip(found, graph.outputs, strict=True)
        return [array.reshape(out.shape).astype(out.dtype.array) for array, out in shaped]

    @cached_property
    def report(self) -> Report:
        """Operators, graphs with their boundaries, and refusals; prints as a table.

        ``report.quantization`` is a table of its own: what each call computes in, and why.
        """
        return report_of(
            self.target, self.partition, self.delegates, self.boundary,
            quantization_of(self.program), self.settings, versions(self.device.packages),
            self.file_sizes, self.precision, self.timing, self.accuracy,
        )  # fmt: skip

    @cached_property
    def file_sizes(self) -> dict[str, int]:
        """Bytes of the TOSA files, and of what was saved; the report has this very dict."""
        return {f"graph {n}, TOSA": len(data) for n, data in enumerate(self.files)}

    def compare_with(self, reference: Reference | None, values: execution.Values) -> None:
        """Keep the float model's results; with all values of a run beside them, say if it is far.

        Steps of loops stand for others in such a run.
        """
        self.reference = reference
        has_loops = any(piece.parts for piece in self.partition.pieces)
        if reference is not None and not has_loops and self.program.results <= values.keys():
            self.accuracy = accuracy_of(reference, self.program, self.boundary.outputs, values)
            warn_if_low(self.accuracy)

    @cached_property
    def accuracy(self) -> tuple[OutputAccuracy, ...]:
        """How near the outputs are to those of the float model on one example, where it is known.

        If the compilation had no reason to run the graphs, this runs them; nothing is known where
        they have no result for the example.
        """
        if self.reference is None:
            return ()
        values = dict(self.reference.values)
        try:
            with torch.no_grad():
                for piece in self.partition.pieces:
                    execution.one(piece, self._by("tosa"), values)
        except Unpredictable:
            return ()
        return accuracy_of(self.reference, self.program, self.boundary.outputs, values)

    @property
    def settings(self) -> dict[str, str]:
        """What it was compiled with: the target's configuration, scheme, types at the boundary."""
        known = dict(self.device.options)
        known |= {name: value for name, value in self.options.items() if value is not None}
        return {name: str(value) for name, value in known.items() if value is not None}

    @cached_property
    def _state(self) -> dict[str, Tensor]:
        """Buffers that runs change, as the last one left them."""
        return {name: first.clone() for name, first in self.program.states}

    @property
    def state(self) -> dict[str, Tensor]:
        """The buffers that the program changes, by name; they stay from one run to the next."""
        return {name: value.clone() for name, value in self._state.items()}

    def reset(self) -> None:
        """Give the buffers that runs have changed their first values again."""
        self.__dict__.pop("_state", None)

    @cached_property
    def boundary(self) -> Boundary:
        """What the program takes and gives: types, shapes, and what the integers mean."""
        return boundary_of(self.program)

    @on_cpu
    def run(
        self, *inputs: Any, engine: str | None = None, raw: bool | None = None,
        device: str = CPU, max_memory: int | None = None, **named: Any,
    ) -> Any:  # fmt: skip
        """The program's outputs for its inputs; graphs run as their compiled bytes do.

        ``engine`` is what runs them: "tosa" interprets the TOSA graphs. A device has engines of its
        own, such as "npu", which run what it would get; unless told otherwise, the first of them.
        "firmware" builds the image of a board that has the target, and runs it under QEMU.

        An input that ``boundary`` has as integers with a scale may be given as such, or as the
        floats they stand for. The outputs come as the boundary has them with ``raw=True`` and as
        floats with ``raw=False``. Unless told, they are floats if such an input was, else raw.

        Arguments may be given by name. A batch of a multiple of what the program was compiled for
        is run part by part; with ``device="cuda"`` the interpreter runs it on a GPU, as many parts
        at a time as fit its memory or ``max_memory`` bytes of it.
        """
        checked_memory(max_memory)
        program, gpu = self.program, device != CPU
        chosen = self._engine("tosa" if gpu and engine is None else engine)
        if gpu and chosen != "tosa":
            raise InvalidInput(
                f"device='{device}' is for the interpreter, and {engine=} runs where the target's "
                "options say: leave out one of them"
            )
        leaves = leaves_of(program, inputs, named)
        parts = self._parts(leaves)
        if gpu:
            results = self._run_on(device, max_memory, parts or [leaves], raw)
            result = results[0] if parts is None else batches.joined(results, leaves)
        elif parts is None:
            result = self._run_once(leaves, chosen, raw)
        else:
            result = batches.joined([self._run_once(p, chosen, raw) for p in parts], leaves)
        if program.out_spec is None:
            return result[0] if len(result) == 1 else result
        return torchapi.unflatten(result, program.out_spec)

    def _run_once(self, leaves: list[Any], engine: str, raw: bool | None) -> list[Any]:
        """The leaves of the outputs for those of the inputs."""
        given = self._checked(leaves)
        run = formats.ENGINES.get(engine)
        arguments = [leaf.value for leaf in given]
        values = self._trace(arguments, engine) if run is None else run(self, arguments)
        return self._results(given, values, raw)

    def _run_on(
        self, device: str, max_memory: int | None, parts: list[list[Any]], raw: bool | None
    ) -> list[list[Any]]:
        """The same of several runs on a GPU, whose graphs take all of them at once."""
        given = [self._checked(leaves) for leaves in parts]
        runs = [
            first_values(self.program, [leaf.value for leaf in each], self._state.values())
            for each in given
        ]
        with torch.no_grad():
            for piece in self.partition.pieces:
                if piece.graph is None:
                    for values in runs:
                        execution.one(piece, self._by("tosa"), values)
                    continue
                model = self._models[id(piece.graph)]
                run = partial(model.run, device=device, max_memory=max_memory)
                execution.give_all(piece, run, runs)
        return [self._results(*pair, raw) for pair in zip(given, runs, strict=True)]

    def _results(
        self, given: list[Given], values: dict[fx.Node, Any], raw: bool | None
    ) -> list[Any]:
        """The leaves of the outputs, of the values that a run has."""
        program, arguments = self.program, [leaf.value for leaf in given]
        outputs = [values[o] if isinstance(o, fx.Node) else o for o in program.outputs]
        result = self._changed(arguments, outputs) if program.changes else outputs
        if raw is False or (raw is None and any(leaf.was_real for leaf in given)):
            result = self.boundary.dequantized(result)
        return result

    def _parts(self, leaves: list[Any]) -> list[list[Any]] | None:
        return batches.parts_of(self.program, leaves)

    def _checked(self, leaves: list[Any]) -> list[Given]:
        return checked_leaves(self.program, leaves)

    def _changed(self, given: list[Any], outputs: list[Any]) -> list[Any]:
        """Keep new values of buffers, write those of inputs; what is left is the result."""
        states, written = self.program.states, self.program.written
        own = len(outputs) - self.program.changes
        result = [o.clone() if isinstance(o, Tensor) else o for o in outputs[:own]]
        for (name, _), value in zip(states, outputs[own:]):
            self._state[name] = value.clone()
        for position, value in zip(written, outputs[own + len(states) :]):
            given[position].copy_(value)
        return result

    @on_cpu
    def trace(self, *inputs: Any, **named: Any) -> dict[fx.Node, Any]:
        """Every value that the program has between its pieces, by node."""
        given = given_values(self.program, inputs, named)
        return self._trace([leaf.value for leaf in given], self._engine(None))

    def _engine(self, name: str | None) -> str:
        known = (*(self.device.engines if self.delegates else ()), "tosa")
        if name in formats.ENGINES and self.delegates:
            return str(name)
        if name is not None and name not in known:
            said = " and ".join(map(repr, known))
            raise InvalidInput(f"{self.target} has no engine {name!r}; it has {said}")
        return name or known[0]

    @on_cpu
    def step(
        self, *elements: Any, state: streaming.State | None = None, engine: str | None = None
    ) -> tuple[Any, streaming.State]:
        """What a recurrence gives for its next elements, and the state behind them.

        The program is one whose sequences go into one recurrence, compiled with ``unroll=1`` for
        steps of one element. Without a state it begins as the program does.
        """
        run = self._by(self._engine(engine))
        with torch.no_grad():
            made, left = streaming.step(self.program, self.partition.pieces, elements, state, run)
        return (made[0] if len(made) == 1 else made), left

    def _by(self, engine: str) -> execution.Runner:
        """How an engine runs the graph of a piece."""

        def run(piece: Piece, ready: list[Tensor]) -> list[Any]:
            assert piece.graph is not None
            return self._arrays(piece.graph, ready, engine)

        return run

    def _trace(self, given: list[Any], engine: str) -> dict[fx.Node, Any]:
        values, run = first_values(self.program, given, self._state.values()), self._by(engine)
        with torch.no_grad():
            for piece in self.partition.pieces:
                execution.one(piece, run, values)
        return values

    def save(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the artifact, by suffix: ``.tosa`` is the flatbuffer, ``.mlir`` its text.

        ``.pte`` and ``.bpte`` are ExecuTorch's; ``tosaic.executorch.package.save`` has options.
        ``.html`` is a page to look at; with ``model=``, the original, and ``inputs=`` for it, it
        also shows how far each layer is from the original. ``.json`` is for Model Explorer, ``.h``
        the compiled file as a C array.
        """
        self._save(path, options)
        self.file_sizes[os.path.basename(path)] = os.path.getsize(path)

    def _save(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise InvalidInput(f"an artifact is saved to a path, not to {type(path).__name__}")
        suffix = os.path.splitext(os.fspath(path))[1]
        writer, own = formats.WRITERS.get(suffix), self.device.formats
        if suffix in own:
            own[suffix].write(self, path, **options)
        elif writer is not None:
            writer(self, path, **options)
        elif options:
            raise InvalidInput(f"a {suffix} file has no option {next(iter(options))!r}")
        elif suffix == ".tosa":
            flatbuffer.write(self.graph, path)
        elif suffix == ".mlir":
            write_whole(path, print_graph(self.graph).encode())
        else:
            known = (".tosa", ".mlir", *formats.WRITERS, *own)
            raise InvalidInput(formats.refusal(path, known) + elsewhere(suffix))


def _unpickled(data: bytes, kind: type[Artifact] = Artifact) -> Artifact:
    own, options, state = torchapi.loads(data)
    made = kind(**own, made_for=target_of(own["target"], options))
    if state is not None:
        made.__dict__["_state"] = state
    return made

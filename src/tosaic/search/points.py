"""Points of a sweep: a network compiled one way, as tasks that compile, measure and choose."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from tosaic.errors import TosaicError
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.driver import compile_model
from tosaic.pipeline.goals import Goal
from tosaic.quant.selection import Schemes
from tosaic.runtime.gc import of_new_objects
from tosaic.runtime.versions import versions
from tosaic.search.front import option_words
from tosaic.search.tasks import Blobs, Result, Task, digest, packed
from tosaic.targets.catalog import target_of

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip file can hold
OUT_OF_REACH = 1e9  # decibels: automatic precision measures int8 and int16, and searches nothing


@dataclass(frozen=True, slots=True)
class Network:
    """A network of a sweep with one size of inputs: blobs of program, examples, calibration."""

    name: str
    size: str
    source: str
    program: str
    examples: str
    calibration: str

    @property
    def title(self) -> str:
        return f"{self.name} {self.size}".strip()

    @property
    def blobs(self) -> tuple[str, ...]:
        return self.program, self.examples, self.calibration


@dataclass(frozen=True, slots=True)
class Point:
    """A way to compile a network. ``wide`` are calls with 16 bits where the scheme is mixed.

    ``known`` is the key of a point that a store lists, which another version may have computed.
    """

    network: Network
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    scheme: str = "int8"
    wide: tuple[str, ...] = ()
    known: str = ""

    @property
    def key(self) -> str:
        if self.known:
            return self.known
        blobs, options = list(self.network.blobs), dict(self.options)
        known = versions(target_of(self.target).packages)
        return digest("point", blobs, self.target, options, self.scheme, list(self.wide), known)

    @property
    def precision(self) -> str:
        """The scheme in a word or two."""
        return f"mixed, {len(self.wide)} wide" if self.wide else self.scheme

    @property
    def title(self) -> str:
        told = (self.network.title, self.target, *option_words(self.options), self.precision)
        return " · ".join(told)

    @property
    def schemes(self) -> Any:
        if not self.wide:
            return None if self.scheme == "float" else self.scheme
        return Schemes("int8", nodes=dict.fromkeys(self.wide, "a16w8"))

    def command(self) -> str:
        """What compiles it again; a mixed scheme is a file beside the page.

        For a model that has no file it is a call of ``tosaic.compile``.
        """
        if not self.network.source:
            given = {"target": self.target, "scheme": self.schemes, **self.options}
            told = ", ".join(f"{name}={value!r}" for name, value in given.items())
            return f"tosaic.compile(model, example_inputs, calibration=calibration, {told})"
        words = ["tosaic", "compile", self.network.source, "-t", self.target]
        if self.network.size:
            words[1:] = ["tune", *words[2:], "--mixed", "0", "--size", self.network.size]
        words += ["--scheme", f"{self.key[:12]}.json" if self.wide else self.scheme]
        for name, value in self.options.items():
            words += ["-O", f"{name}={value}"]
        return " ".join(words)

    def task(self) -> Task:
        key = self.key
        return Task(self.title, compile_point, (key,), self.network.blobs, (self, key))


def compile_point(arguments: tuple[Point, str], blobs: Blobs) -> Mapping[str, Result]:
    """Compile a point: what it costs, its file for the device, its report, and what runs it."""
    point, key = arguments
    artifact = _compiled(point, blobs, scheme=point.schemes)
    report, device = artifact.report, artifact.device
    files, problem = _files(artifact, point.title)
    names = {name: digest("file", key, name) for name in files}
    held = {names[name]: data for name, data in files.items()}
    same = identity(artifact, key)
    name = digest(same, [d.data for d in artifact.delegates])
    found = {
        "cycles": report.cycles, "unit": report.unit, "sram": report.sram, "flash": report.flash,
        "milliseconds": report.milliseconds, "multipliers": device.peak_macs,
        "cpu_calls": len(report.refused), "checks": [c for d in report.delegates for c in d.checks],
        "files": names, "problem": problem,
        "sha256": {n: hashlib.sha256(files[n]).hexdigest() for n in files if n != "report.html"},
        "artifact": name, "identity": same, "settings": artifact.settings,
    }  # fmt: skip
    return {key: Result(found, {**held, name: packed(slim(artifact))})}


def _compiled(point: Point, blobs: Blobs, scheme: Any, goal: Goal | None = None) -> Artifact:
    with of_new_objects():
        return compile_model(
            blobs.load(point.network.program), blobs.load(point.network.examples), point.target,
            scheme, blobs.load(point.network.calibration), None, dict(point.options), None, False,
            goal, None,
        )  # fmt: skip


def _files(artifact: Artifact, title: str) -> tuple[dict[str, bytes], str]:
    """The file that a device loads and the report, and why there is no such file."""
    problem = ""
    with tempfile.TemporaryDirectory() as folder:
        suffix = next(iter(artifact.device.formats), ".pte" if artifact.delegates else ".tosa")
        place = Path(folder) / f"network{suffix}"
        try:
            artifact.save(place)
        except (TosaicError, OSError) as refusal:
            problem = str(refusal)
        page = Path(folder) / "report.html"
        artifact.save(page, title=title)
        files = {"report.html": page.read_bytes()}
        if place.is_dir():
            files["network.zip"] = _zipped(place)
        elif place.is_file():
            files[place.name] = place.read_bytes()
    return files, problem


def _zipped(folder: Path) -> bytes:
    """A folder as one file, the same bytes each time."""
    to = io.BytesIO()
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as made:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _EARLIEST)
            made.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return to.getvalue()


def identity(artifact: Artifact, otherwise: str = "") -> str:
    """A digest of what the interpreter runs: graphs, and calls of PyTorch round them."""
    program = artifact.program
    if program.regions:
        return digest(otherwise)
    told: list[Any] = [artifact.files, [str(node) for node in program.outputs]]
    for piece in artifact.partition.pieces:
        if piece.node is None:
            ports = ([n.name for n in piece.inputs], [n.name for n in piece.outputs])
            told.append([*ports, str(piece.input_orders), str(piece.output_orders)])
            told.append(str(piece.output_quants))
        else:
            held = [program.tensors[n] for n in piece.node.all_input_nodes if n in program.tensors]
            told.append([str(piece.node.format_node()), held])
    return digest(told)


def slim(artifact: Artifact) -> Artifact:
    """What runs, without tensors of calls that graphs have replaced, and the float model's."""
    program = artifact.program
    used = {
        n for p in artifact.partition.pieces if p.node is not None for n in p.node.all_input_nodes
    }
    used |= {n for p in artifact.partition.pieces for n in p.inputs} | program.results
    kept: dict[Any, Tensor] = {node: t for node, t in program.tensors.items() if node in used}
    program = replace(program, tensors=kept, users={})
    return replace(artifact, program=program, reference=None)


def choice_key(point: Point, goal: float) -> str:
    return digest("choice", point.key, goal)


def choice_task(point: Point, goal: float) -> Task:
    """A task that lets automatic precision choose calls for a signal-to-noise ratio."""
    name = f"{point.network.title} · {point.target} · precision of calls for {goal:.1f} dB"
    if goal == OUT_OF_REACH:
        name = f"{point.network.title} · {point.target} · range of precision"
    key = choice_key(point, goal)
    return Task(name, choose, (key,), point.network.blobs, (point, goal, key))


def choose(arguments: tuple[Point, float, str], blobs: Blobs) -> Mapping[str, Result]:
    """The calls that automatic precision gives 16 bits, and the ratios that it measured."""
    point, goal, key = arguments
    precision = _compiled(point, blobs, "auto", Goal(sqnr=goal)).precision
    assert precision is not None
    wide = [call.node for call in precision.calls if call.scheme != "int8"]
    found = {
        "wide": wide, "calls": len(precision.calls), "reached": precision.reached,
        "ratios": [p.sqnr for p in precision.points], "sentence": precision.sentence,
    }  # fmt: skip
    return {key: Result(found)}

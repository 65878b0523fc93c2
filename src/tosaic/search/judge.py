"""Judging: many forms of networks on a stream of samples, in one pass over the data.

The pass goes chunk by chunk. A task runs every form of which the result on the chunk is missing,
and the original beside them.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, ToolFailed, TosaicError, first_line
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact
from tosaic.runtime.versions import versions
from tosaic.search.datasets import Sample, Stream
from tosaic.search.functions import source_digest
from tosaic.search.inputs import Parts, decoded, fitted
from tosaic.search.metrics import Metric
from tosaic.search.tasks import REFUSED, Blobs, Result, Task, digest

CHUNK, DEVICE_CHUNK, _CHUNK_BYTES = 64, 256, 1 << 24  # samples and bytes at most
_PICTURED, _SIDE = 2, 96  # pictures kept of a chunk and form, and pixels of their longer side
FLOAT = "float"


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a network: a blob, the engine that runs it, and the blob of its original.

    ``examples`` is the blob of example inputs. ``identity`` is the same for blobs that the
    interpreter runs alike. ``device`` is where it runs them.
    """

    name: str
    blob: str
    engine: str
    original: str
    examples: str
    identity: str = ""
    device: str = ""

    @property
    def key(self) -> str:
        same = self.identity if self.engine == "tosa" and self.identity else self.blob
        return digest(same, self.engine, self.original)

    @property
    def blobs(self) -> tuple[str, ...]:
        return self.blob, self.original, self.examples


@dataclass(frozen=True, slots=True)
class Judging:
    """What forms are judged by: a metric, and functions of the user's before and after a run."""

    metric: Metric
    transform: Callable[[Any], Any] | None = None
    decode: Callable[[Any], Any] | None = None

    @property
    def key(self) -> str:
        own = [source_digest(function) for function in (self.transform, self.decode)]
        return digest(self.metric.key, own, versions()["tosaic"])


@dataclass(frozen=True, slots=True)
class Chunk:
    """Samples that follow one another, from the first one's index on."""

    start: int
    samples: tuple[Sample, ...]

    @property
    def key(self) -> str:
        return digest([sample.digest for sample in self.samples])


def chunks(stream: Stream, limit: int | None = None, most: int = CHUNK) -> Iterator[Chunk]:
    """The samples of a stream, so many at a time; nothing is kept of those before."""
    held: list[Sample] = []
    start = size = 0
    for index, sample in enumerate(stream()):
        if limit is not None and index >= limit:
            break
        held.append(sample)
        size += sample.size
        if len(held) == most or size >= _CHUNK_BYTES:
            yield Chunk(start, tuple(held))
            start, held, size = start + len(held), [], 0
    if held:
        yield Chunk(start, tuple(held))


def result_key(chunk: str, form: Form, judging: str) -> str:
    return digest("judged", chunk, form.key, judging)


def task_of(
    chunk: Chunk, key: str, forms: Sequence[Form], judging: Judging, has: Callable[[str], bool]
) -> Task | None:
    """The task of a chunk for the forms whose results are missing; None if none is."""
    told = judging.key
    named = {result_key(key, form, told): form for form in forms}
    missing = {name: form for name, form in named.items() if not has(name)}
    if not missing:
        return None
    is_one = len({form.original for form in forms}) == 1
    blobs = tuple(dict.fromkeys(b for form in missing.values() for b in form.blobs))
    return Task(
        f"inputs from {chunk.start:,}", judge, tuple(missing), blobs,
        (chunk.samples, tuple(missing.items()), judging, is_one), keeps_refusal=False,
        gpus=int(any(form.device for form in missing.values())),
    )  # fmt: skip


def judge(arguments: Any, blobs: Blobs) -> Mapping[str, Result]:
    """What each form gives on a chunk: a record of each sample, its answer, some pictures.

    A form that does not run is a result, and a network that does not take what another one does.
    Samples that cannot be read and functions of the user's that fail are none: they are mended, and
    the same command goes on.
    """
    samples, forms, judging, is_one = arguments
    parts = [decoded(sample, judging.transform) for sample in samples]
    known: dict[tuple[str, str], tuple[list[list[Tensor]], list[Any]] | InvalidInput] = {}
    made: dict[str, Result] = {}
    for key, form in forms:
        about = form.original, form.examples
        if about not in known:
            known[about] = _originals(form, parts, samples, blobs)
        now = known[about]
        if isinstance(now, InvalidInput):
            made[key] = Result({REFUSED: str(now)})
            continue
        given, real = now
        try:
            found = real
            if form.engine != FLOAT:
                held = blobs.load(form.blob)
                found = _outputs(held, given, blobs.load(form.examples), form.engine, form.device)
        except ToolFailed:
            raise
        except TosaicError as refusal:
            made[key] = Result({REFUSED: str(refusal)})
        else:
            made[key] = Result(_judged(found, real, samples, given, judging))
    refusals = [each for each in known.values() if isinstance(each, InvalidInput)]
    if len(refusals) == len(known) and (is_one or len(known) > 1):
        raise refusals[0]
    return made


def _originals(
    form: Form, parts: Sequence[Parts], samples: Sequence[Sample], blobs: Blobs
) -> tuple[list[list[Tensor]], list[Any]] | InvalidInput:
    """Inputs for the original of a form, and what it gives; or why it takes no such inputs."""
    examples: tuple[Tensor, ...] = blobs.load(form.examples)
    original = blobs.load(form.original)
    names = [str(name) for name in original.graph_signature.user_inputs]
    try:
        fit = [fitted(p, examples, s.name, names) for p, s in zip(parts, samples)]
        return fit, _outputs(original, fit, examples, FLOAT, "")
    except InvalidInput as problem:
        return problem


def _judged(
    found: list[Any], real: list[Any], samples: Sequence[Sample], given: list[list[Tensor]],
    judging: Judging,
) -> dict[str, Any]:  # fmt: skip
    metric, decode = judging.metric, judging.decode or (lambda output: output)
    records, answers, differs = [], [], []
    for place, (output, right, sample) in enumerate(zip(found, real, samples)):
        if not metric.is_relative and sample.label is None:
            raise InvalidInput(f"{sample.name} has no label, and {metric.name} needs one")
        try:
            ours, original = decode(output), decode(right)
            records.append(metric.each(ours, original if metric.is_relative else sample.label))
            if metric.answer is not None:
                answers.append(metric.answer(ours))
                if answers[-1] != metric.answer(original):
                    differs.append(place)
        except InvalidInput as problem:
            raise InvalidInput(f"input {sample.name}: {problem}") from problem
        except (TypeError, ValueError, IndexError, RuntimeError) as problem:
            told = f"{metric.name} does not take such outputs or labels: {first_line(problem)}"
            raise InvalidInput(f"input {sample.name}: {told}") from problem
        _check_record(records[-1], metric, sample)
    shown = {str(place): picture(given[place][0]) for place in differs[:_PICTURED]}
    return {
        "records": records, "answers": answers,
        "names": {str(place): samples[place].name for place in differs},
        "labels": {str(place): samples[place].label for place in differs},
        "pictures": {place: data for place, data in shown.items() if data},
    }  # fmt: skip


def _check_record(record: Any, metric: Metric, sample: Sample) -> None:
    """InvalidInput unless a metric without a sum of its own gives a number."""
    is_number = isinstance(record, (int, float)) and record == record
    if metric.total is None and not is_number:
        what = record if isinstance(record, float) else f"a {type(record).__name__}"
        raise InvalidInput(f"{metric.name} gives {what} for {sample.name}, and not a number")


def _outputs(
    model: Any, given: list[list[Tensor]], examples: tuple[Tensor, ...], engine: str, device: str
) -> list[Any]:
    """What a model gives for each sample; the last batch is filled up.

    A program with a state begins a chunk anew, and takes one batch after the other.
    """
    size = int(examples[0].shape[0]) if examples and examples[0].dim() else 1
    run = _runner(model, engine, device)
    is_whole = isinstance(model, Artifact) and not model.program.changes
    step = size * len(given) if is_whole else size
    found: list[Any] = []
    for start in range(0, len(given), step):
        part = given[start : start + step]
        full = part + [part[-1]] * (-len(part) % size)
        batch = [torch.cat(each) for each in zip(*full)]
        try:
            with torch.no_grad():
                leaves, spec = torchapi.flatten(run(*batch))
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as problem:
            shapes = [list(each.shape) for each in batch]
            raise InvalidInput(
                f"the model does not take inputs of {shapes}: {first_line(problem)}"
            ) from problem
        for row in range(len(part)):
            found.append(torchapi.unflatten([_row(leaf, row, len(full)) for leaf in leaves], spec))
    return found


def _row(leaf: Any, row: int, count: int) -> Any:
    """The part of a result that belongs to one sample."""
    if isinstance(leaf, Tensor) and leaf.dim() and len(leaf) == count:
        return leaf[row]
    return leaf


def _runner(model: Any, engine: str, device: str) -> Callable[..., Any]:
    if isinstance(model, ExportedProgram):
        run: Callable[..., Any] = model.module()
        return run
    assert isinstance(model, Artifact)
    model.reset()
    if device:
        return partial(model.run, raw=False, device=device)
    return partial(model.run, engine=engine, raw=False)


def picture(value: Tensor) -> str:
    """A small PNG of an input of one or three channels, as text; "" of anything else."""
    planes = value[0] if value.dim() == 4 else value
    if planes.dim() != 3 or planes.shape[0] not in (1, 3):
        return ""
    real = planes.detach().float().nan_to_num().numpy()
    low, high = float(real.min()), float(real.max())
    step = -(-max(real.shape[1:]) // _SIDE)
    small = (real[:, ::step, ::step] - low) / max(high - low, 1e-12)
    pixels = np.ascontiguousarray((255 * small).round().astype(np.uint8).transpose(1, 2, 0))
    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    body = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    packed = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in body
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + packed).decode()


def tasks_of(
    stream: Stream, forms: Sequence[Form], judging: Judging, has: Callable[[str], bool],
    limit: int | None, seen: list[tuple[str, int]],
) -> Iterable[Task]:  # fmt: skip
    """The tasks of a pass; ``seen`` gets the key and the size of each chunk on the way."""
    on_device = any(form.device for form in forms)
    for chunk in chunks(stream, limit, DEVICE_CHUNK if on_device else CHUNK):
        key = chunk.key
        seen.append((key, len(chunk.samples)))
        task = task_of(chunk, key, forms, judging, has)
        if task is not None:
            yield task

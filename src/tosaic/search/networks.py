"""Networks and artifacts in a store: what a sweep or an evaluation begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, first_line, kind_of
from tosaic.front import torchapi
from tosaic.front.examples import in_order
from tosaic.interp.device import CPU, spelled
from tosaic.pipeline.artifact import Artifact
from tosaic.quant.inputs import read_each
from tosaic.search.judge import FLOAT, Form
from tosaic.search.points import Network, identity, slim
from tosaic.search.store import Store
from tosaic.search.tasks import digest, packed
from tosaic.search.tune import form_of, form_of_original, points_of


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to be compiled; ``source`` is what the command line calls it."""

    model: Any
    inputs: Any
    calibration: Iterable[Any] | None = None
    source: str = ""


def networks_of(store: Store, name: str, subject: Subject, sizes: Sequence[str]) -> list[Network]:
    """A network with each size of pictures, in the store."""
    model, inputs = subject.model, _arguments(subject.model, subject.inputs)
    given = subject.calibration
    if isinstance(given, str) or not isinstance(given, Iterable | None):
        raise InvalidInput("a sweep calibrates with data, not with ranges: give the data")
    data = [_arguments(model, item) for item in read_each(given)] if given is not None else [inputs]
    if not data:
        raise InvalidInput(f"the calibration data of {name} is empty")
    made = []
    for size in sizes or [""]:
        shaped = _resized(inputs, size)
        try:
            program = store_program(store, model, shaped)
        except InvalidInput as problem:
            raise InvalidInput(f"{name}{f' at {size}' if size else ''}: {problem}") from problem
        examples = _stored(store, shaped)
        seen = _stored(store, [_resized(item, size) for item in data])
        made.append(Network(name, size, subject.source, program, examples, seen))
    return made


def _arguments(model: Any, given: Any) -> tuple[Any, ...]:
    """Arguments in order, by name, or one alone."""
    found = in_order(model, given)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _stored(store: Store, value: Any) -> str:
    return store.put(digest(value), packed(value))


def store_program(store: Store, model: Any, inputs: tuple[Any, ...]) -> str:
    """An exported program by the digest of its bytes."""
    if not isinstance(model, (ExportedProgram, torch.nn.Module)):
        raise InvalidInput(f"a model is an nn.Module or an ExportedProgram, not {kind_of(model)}")
    if not isinstance(model, ExportedProgram):
        model = torchapi.export(model, inputs)
    else:
        model = torchapi.copied_program(model)
    try:
        with torchapi.quiet():
            data = packed(model)
    except Exception as problem:  # noqa: BLE001  (torch.export.save names no errors)
        raise InvalidInput(
            f"torch.export does not write this model, so that it cannot be sent to other "
            f"processes: {first_line(problem)}"
        ) from None
    return store.put(digest(data), data)


def _resized(inputs: tuple[Any, ...], size: str) -> tuple[Any, ...]:
    """Pictures in another size; all else as it is."""
    if not size:
        return inputs
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size)
    if found is None or not all(map(int, found.groups())):
        raise InvalidInput(f"'{size}' is no size: write it as 96x96")
    shape = int(found[1]), int(found[2])

    def one(value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() == 4 and value.is_floating_point():
            return torch.nn.functional.interpolate(value, shape, mode="bilinear", antialias=True)
        return value

    return tuple(one(value) for value in inputs)


def forms_of(
    store: Store, model: Any, inputs: Any, artifacts: Mapping[str, Artifact],
    engines: Sequence[str], device: str | None,
) -> list[Form]:  # fmt: skip
    """The original beside artifacts, each of which runs on each engine; "" is named by its target.

    ``engines`` without names are the first that a target has.
    """
    device, inputs = _device(device), _arguments(model, inputs)
    if any(not isinstance(value, Tensor) for value in inputs):
        raise InvalidInput("evaluate is for models whose inputs are tensors")
    program, examples = store_program(store, model, inputs), _stored(store, inputs)
    made = [Form(FLOAT, program, FLOAT, program, examples)]
    for name, artifact in artifacts.items():
        if not isinstance(artifact, Artifact):
            raise InvalidInput(
                f"a {type(artifact).__name__} is no artifact: give what tosaic.compile returns"
            )
        known = [*(artifact.device.engines if artifact.delegates else ()), "tosa"]
        for engine in engines:
            if engine not in known:
                said = " and ".join(map(repr, known))
                raise InvalidInput(f"{artifact.target} has no engine {engine!r}; it has {said}")
        same, data = identity(artifact), packed(slim(artifact))
        blob = store.put(digest(same, [each.data for each in artifact.delegates]), data)
        for engine in engines or known[:1]:
            title = (name or artifact.target) + (f", {engine}" if engine != known[0] else "")
            made.append(Form(title, blob, engine, program, examples, same, device))
    return made


def _device(name: str | None) -> str:
    """A device by its name; "" is the processor."""
    found = CPU if name is None else spelled(name)
    return "" if found == CPU else found


def forms_of_sweep(store: Store, engines: Sequence[str], device: str | None) -> list[Form]:
    """The originals and every compiled point of a sweep."""
    device = _device(device)
    made: dict[str, Form] = {}
    for number, point in enumerate(points_of(store), 1):
        found = store.get(point.key) or {}
        if "artifact" not in found:
            continue
        made.setdefault(point.network.program, form_of_original(point.network))
        for engine in engines or ["tosa"]:
            name = f"{number}: {point.title}" + f" on {engine}" * (len(engines) > 1)
            made[name] = replace(form_of(point.network, name, found, engine), device=device)
    return list(made.values())

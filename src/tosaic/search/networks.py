"""Networks and artifacts in a store: what a sweep or an evaluation begins with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tosaic.errors import InvalidInput, first_line
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact
from tosaic.search.judge import FLOAT, Form
from tosaic.search.points import Network, identity
from tosaic.search.store import Store
from tosaic.search.tasks import digest, packed
from tosaic.search.tune import form_of, form_of_original, points_of


def networks_of(
    store: Store, name: str, source: str, model: Any, inputs: tuple[Any, ...],
    calibration: Iterable[Any] | None, sizes: Sequence[str],
) -> list[Network]:  # fmt: skip
    """A network with each size of pictures, in the store."""
    data = [_tuple(item) for item in calibration] if calibration is not None else [inputs]
    made = []
    for size in sizes or [""]:
        shaped = _resized(inputs, size)
        program = store_program(store, model, shaped)
        examples = _stored(store, shaped)
        seen = _stored(store, [_resized(item, size) for item in data])
        made.append(Network(name, size, source, program, examples, seen))
    return made


def _tuple(item: Any) -> tuple[Any, ...]:
    return tuple(item) if isinstance(item, (tuple, list)) else (item,)


def _stored(store: Store, value: Any) -> str:
    return store.put(digest(value), packed(value))


def store_program(store: Store, model: Any, inputs: tuple[Any, ...]) -> str:
    """An exported program by the digest of its bytes."""
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
    store: Store, name: str, model: Any, inputs: tuple[Any, ...], artifact: Artifact,
    engines: Sequence[str], device: str | None,
) -> list[Form]:  # fmt: skip
    """The original beside an artifact, which runs on each engine."""
    if any(not isinstance(value, Tensor) for value in inputs):
        raise InvalidInput("evaluate is for models whose inputs are tensors")
    program, examples = store_program(store, model, inputs), _stored(store, inputs)
    known = [*(artifact.device.engines if artifact.delegates else ()), "tosa"]
    for engine in engines:
        if engine not in known:
            said = " and ".join(map(repr, known))
            raise InvalidInput(f"{artifact.target} has no engine {engine!r}; it has {said}")
    same = identity(artifact)
    data = packed(artifact)
    blob = store.put(digest(same, [each.data for each in artifact.delegates]), data)
    made = [Form(FLOAT, program, FLOAT, program, examples)]
    for engine in engines or known[:1]:
        title = artifact.target if engine == known[0] else f"{artifact.target}, {engine}"
        made.append(Form(title, blob, engine, program, examples, same, device or ""))
    return made


def forms_of_sweep(store: Store, engines: Sequence[str], device: str | None) -> list[Form]:
    """The originals and every compiled point of a sweep."""
    made: dict[str, Form] = {}
    for number, point in enumerate(points_of(store), 1):
        found = store.get(point.key) or {}
        if "artifact" not in found:
            continue
        made.setdefault(point.network.program, form_of_original(point.network))
        for engine in engines or ["tosa"]:
            name = f"{number}: {point.title}" + f" on {engine}" * (len(engines) > 1)
            made[name] = replace(form_of(point.network, name, found, engine), device=device or "")
    return list(made.values())

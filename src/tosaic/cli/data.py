"""Loads the data that a command line names, for calibration, running and comparing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosaic.cli.sources import called, named
from tosaic.errors import InvalidInput, first_line, kind_of

if TYPE_CHECKING:
    from tosaic.search.datasets import Stream


def data(source: str, model: Any = None) -> Iterable[Any]:
    """Sets of arguments: ``.npz`` and ``.npy`` files, a folder of them, ``.pt``, ``file.py:name``.

    A ``.npy`` file is one input; an ``.npz`` file is one set, its arrays by the names of the
    model's arguments if it has these, else in their order; a folder has a set a file.
    """
    names = argument_names(model)
    path = Path(source)
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in (".npy", ".npz"))
        if not files:
            raise InvalidInput(f"'{source}' has no .npy or .npz files")
        return [_arrays(f, names) for f in files]
    if ":" in path.name:
        return _Iterated(source)
    if not path.is_file():
        raise InvalidInput(f"there is no file '{source}'")
    if path.suffix in (".npy", ".npz"):
        return [_arrays(path, names)]
    if path.suffix == ".pt":
        return [_arguments(value) for value in _tensors(path)]
    raise InvalidInput(f"'{source}' is no data: .npy, .npz, .pt, a folder, or file.py:name")


def labelled_stream(source: str) -> Stream:
    """Samples with labels: what a data set of its own is, a pair in a file, or ``file.py:name``."""
    from tosaic.search.datasets import stream_of

    path = Path(source)
    if (
        source.startswith("hf:")
        or path.is_dir()
        or ".tar" in path.suffixes
        or path.suffix == ".tgz"
    ):
        stream = stream_of(source)
        next(stream(), None)  # what cannot be read is told before anything is compiled
        return stream
    if ":" in path.name:
        file, _, name = source.rpartition(":")
        found = named(Path(file), name)
        made = called(source, found) if callable(found) else found
        if _is_pair(made):
            return stream_of(_pairs(source, made))
        if not isinstance(made, Iterable):
            raise InvalidInput(f"'{source}' is {kind_of(made)}, no iterable of pairs")
        return stream_of(partial(_each, source, found if callable(found) else lambda: made))
    if path.suffix not in (".npz", ".pt"):
        raise InvalidInput(
            f"'{source}' is no labelled set: a folder, .tar shards, .npz with x and y, .pt or "
            "file.py:name"
        )
    if not path.is_file():
        raise InvalidInput(f"there is no file '{source}'")
    return stream_of(_pairs(source, _named_pair(path) if path.suffix == ".npz" else _tensors(path)))


def _is_pair(value: Any) -> bool:
    """Whether it is all inputs and all labels, and no list of two samples."""
    is_two = isinstance(value, (tuple, list)) and len(value) == 2
    return is_two and not isinstance(value[0], (tuple, list, dict))


def _each(source: str, function: Callable[[], Any]) -> Iterator[Any]:
    """What an iterable of the user's gives; its failure is a sentence."""
    items = iter(called(source, function))
    while (item := called(source, lambda: next(items, _END))) is not _END:
        yield item


def _pairs(source: str, pair: Any) -> list[tuple[Any, Any]]:
    import torch

    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidInput(f"'{source}' is no pair of inputs and classes")
    try:
        x, y = (torch.as_tensor(part) for part in pair)
    except (TypeError, ValueError, RuntimeError) as problem:
        raise InvalidInput(f"'{source}' makes no tensors: {problem}") from None
    if x.dim() < 1 or y.dim() < 1 or len(x) != len(y) or not len(y):
        shapes = f"{list(x.shape)} and {list(y.shape)}"
        raise InvalidInput(f"'{source}' has {shapes}: there must be one class for each input")
    return list(zip(x, y.tolist()))


class _Iterated:
    """An iterable of the user's, which may be gone through several times if it allows that."""

    def __init__(self, source: str) -> None:
        file, _, name = source.rpartition(":")
        self.source, self.found = source, named(Path(file), name)

    def __iter__(self) -> Iterator[Any]:
        found = called(self.source, self.found) if callable(self.found) else self.found
        if not isinstance(found, Iterable):
            raise InvalidInput(f"'{self.source}' is {kind_of(found)}, no iterable of inputs")
        items = iter(found)
        while True:
            item = called(self.source, lambda: next(items, _END))
            if item is _END:
                return
            yield _arguments(item)


_END = object()


def _arguments(value: Any) -> Any:
    """A set of arguments: in order, by name, or one alone."""
    if isinstance(value, (tuple, list)):
        return tuple(value)
    return value if isinstance(value, dict) else (value,)


def _read(path: Path, what: str, reader: Callable[[], Any]) -> Any:
    """What a reader gives; whatever it fails with, the file is not what it should be."""
    try:
        return reader()
    except Exception as problem:  # noqa: BLE001  (NumPy's and torch's readers trust their input)
        why = first_line(problem).partition(". ")[0]
        if "eights only load failed" in why:
            why = "it has objects of Python beside, which may run code; save tensors alone"
        raise InvalidInput(f"'{path}' holds no {what}: {why}") from None


def argument_names(model: Any) -> list[str]:
    """What the arguments of a model, a program or a loaded graph are called, if that is known."""
    import torch

    if isinstance(model, torch.nn.Module):
        try:
            given = inspect.signature(model.forward).parameters.values()
        except (TypeError, ValueError):
            return []  # nobody knows its signature
        return [p.name for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if isinstance(model, torch.export.ExportedProgram):
        return [str(name) for name in model.graph_signature.user_inputs]
    return [port.name for port in getattr(model, "inputs", ()) if hasattr(port, "name")]


def _arrays(path: Path, names: Sequence[str] = ()) -> tuple[Any, ...]:
    import numpy as np
    import torch

    def reader() -> tuple[Any, ...]:
        with path.open("rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK")):
                raise ValueError("NumPy did not write it")
        found: Any = np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            own = [name for name in names if name in found.files]
            is_named = own and own == list(names[: len(own)])
            arrays = [found[name] for name in (own if is_named else found.files)]
        else:
            arrays = [found]
        if texts := [array.dtype for array in arrays if array.dtype.kind not in "biufc"]:
            raise ValueError(f"its elements are {texts[0]}, no numbers")
        return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)

    made: tuple[Any, ...] = _read(path, "arrays", reader)
    return made


def _named_pair(path: Path) -> Any:
    import numpy as np

    found = _read(path, "arrays", lambda: dict(np.load(path, allow_pickle=False)))
    if set(found) >= {"x", "y"}:
        return found["x"], found["y"]
    raise InvalidInput(
        f"'{path}' must have the arrays x and y; it has {', '.join(found) or 'none'}"
    )


def _tensors(path: Path) -> Any:
    import torch

    found = _read(path, "tensors", lambda: torch.load(path, weights_only=True))
    if isinstance(found, torch.Tensor):
        return [found]
    if not isinstance(found, (list, tuple)):
        raise InvalidInput(f"'{path}' holds {kind_of(found)}, not a list of inputs")
    return found

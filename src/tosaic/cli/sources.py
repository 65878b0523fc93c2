"""What a command line names: models, and the data to calibrate, run and compare with."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput


def model_and_inputs(source: str, shapes: list[str]) -> tuple[Any, tuple[Any, ...]]:
    """The model that ``file.py:name`` or ``file.pt2`` names, and example inputs for it.

    In a Python file the name is a module, a pair of a module and its inputs, or a function that
    returns either. Without a name it is ``model``.
    """
    file, _, name = source.partition(":") if ":" in Path(source).name else (source, "", "")
    path = Path(file)
    if path.suffix == ".pt2":
        return _program(path, shapes)
    if path.suffix != ".py":
        raise InvalidInput(f"'{source}' is no model: give file.py:name or file.pt2")
    found = _named(path, name or "model")
    if callable(found) and not _is_module(found):
        found = found()
    model, inputs = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not _is_module(model):
        raise InvalidInput(f"'{source}' is a {type(model).__name__}, no torch.nn.Module")
    if shapes:
        inputs = tuple(_random(shape) for shape in shapes)
    if inputs is None:
        raise InvalidInput(
            f"'{source}' gives no example inputs: return (module, inputs), or give --shape"
        )
    return model, inputs if isinstance(inputs, tuple) else (inputs,)


def _is_module(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Module)


def _program(path: Path, shapes: list[str]) -> tuple[Any, tuple[Any, ...]]:
    from tosaic.front import torchapi

    program = torchapi.load(path)
    if shapes:
        return program, tuple(_random(shape) for shape in shapes)
    if program.example_inputs is None:
        raise InvalidInput(f"'{path}' holds no example inputs: give --shape")
    return program, tuple(program.example_inputs[0])


def _random(shape: str) -> Any:
    """Numbers of a normal distribution, the same each time."""
    import torch

    try:
        sizes = [int(size) for size in shape.replace("x", ",").split(",")]
    except ValueError:
        raise InvalidInput(f"'{shape}' is no shape: write it as 1,3,224,224") from None
    return torch.randn(sizes, generator=torch.Generator().manual_seed(0))


def _named(path: Path, name: str) -> Any:
    """An object of a Python file, which runs as a module of its own."""
    if not path.is_file():
        raise InvalidInput(f"there is no file '{path}'")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InvalidInput(
            f"'{path}' does not run: {type(problem).__name__}: {problem}"
        ) from problem
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        raise InvalidInput(f"'{path}' has no '{name}'; write file.py:name")
    return getattr(module, name)


def data(source: str) -> Iterable[tuple[Any, ...]]:
    """Sets of arguments: ``.npz`` and ``.npy`` files, a folder of them, ``.pt``, ``file.py:name``.

    A ``.npy`` file is one input; an ``.npz`` file is one set, its arrays in their order; a folder
    has a set a file.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in (".npy", ".npz"))
        if not files:
            raise InvalidInput(f"'{source}' has no .npy or .npz files")
        return [each for f in files for each in data(str(f))]
    if ":" in path.name:
        file, _, name = source.rpartition(":")
        found = _named(Path(file), name)
        return map(_arguments, found() if callable(found) else found)
    if not path.is_file():
        raise InvalidInput(f"there is no file '{source}'")
    if path.suffix in (".npy", ".npz"):
        return [_arrays(path)]
    if path.suffix == ".pt":
        return map(_arguments, _tensors(path))
    raise InvalidInput(f"'{source}' is no data: .npy, .npz, .pt, a folder, or file.py:name")


def _arguments(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _arrays(path: Path) -> tuple[Any, ...]:
    import numpy as np
    import torch

    try:
        found = np.load(path, allow_pickle=False)
        arrays = [found] if path.suffix == ".npy" else [found[name] for name in found.files]
        return tuple(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)
    except (ValueError, OSError, EOFError, TypeError) as problem:
        raise InvalidInput(f"'{path}' holds no arrays: {problem}") from None


def _tensors(path: Path) -> Iterable[Any]:
    import pickle

    import torch

    try:
        found = torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise InvalidInput(f"'{path}' holds no tensors: {reason}") from None
    if isinstance(found, torch.Tensor):
        return [found]
    if not isinstance(found, (list, tuple)):
        raise InvalidInput(f"'{path}' holds a {type(found).__name__}, not a list of inputs")
    return found

"""Loads the models that a command line names."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

from tosaic.cli.examples import NAMES, example
from tosaic.errors import InvalidInput, kind_of
from tosaic.files import foreign

_NAMED = 3  # names of a file that a refusal tells


@dataclass(frozen=True, slots=True)
class Source:
    """A model, example inputs for it, and its own data to calibrate with, if it has any."""

    model: Any
    inputs: tuple[Any, ...]
    calibration: Iterable[Any] | None = None


def source_of(text: str, shapes: list[str]) -> Source:
    """What ``file.py:name``, ``file.pt2`` or the name of an example stands for.

    In a Python file the name is a module, a module with its inputs, the same with calibration
    data, or a function that returns one of these. Without a name it is ``model``.
    """
    if text in NAMES:
        if shapes:
            raise InvalidInput(f"the example '{text}' has inputs of its own: leave out --shape")
        return Source(*example(text))
    file, _, name = text.partition(":") if ":" in Path(text).name else (text, "", "")
    path = Path(file)
    if path.suffix == ".pt2":
        return _program(path, shapes)
    if (told := foreign.no_model(path)) is not None:
        raise InvalidInput(told)
    if path.suffix != ".py":
        meant = f", perhaps {path}.py" if Path(f"{path}.py").is_file() else ""
        raise InvalidInput(
            f"'{text}' is no model{meant}: give file.py:name, file.pt2 or an example: "
            f"{', '.join(NAMES)}"
        )
    found = named(path, name or "model")
    if callable(found) and not _is_module(found):
        found = called(text, found)
    parts = found if isinstance(found, tuple) and 2 <= len(found) <= 3 else (found,)
    model, inputs, calibration = (*parts, None, None)[:3]
    if not _is_module(model):
        raise InvalidInput(
            f"'{text}' is {kind_of(model)}: a model is an nn.Module, or a function that returns "
            "one with its example inputs"
        )
    if shapes:
        inputs = tuple(_random(shape) for shape in shapes)
    if inputs is None:
        raise InvalidInput(
            f"'{text}' gives no example inputs: return (module, inputs), or give --shape"
        )
    if isinstance(inputs, dict):
        inputs = in_order(model, inputs)
    if is_tensor(inputs):
        inputs = (inputs,)
    if not isinstance(inputs, tuple):
        raise InvalidInput(
            f"'{text}' gives {kind_of(inputs)} as example inputs: give a tensor, a tuple of the "
            "model's arguments, or a dict of them by name"
        )
    return Source(model, inputs, calibration)


def in_order(model: Any, named: dict[str, Any]) -> Any:
    """Inputs by name as a tuple."""
    from tosaic.front.examples import in_order as ordered

    return ordered(model, named)


def _is_module(value: Any) -> bool:
    import torch

    return isinstance(value, torch.nn.Module)


def is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _program(path: Path, shapes: list[str]) -> Source:
    from tosaic.front import torchapi

    program = torchapi.load(path)
    if shapes:
        return Source(program, tuple(_random(shape) for shape in shapes))
    if program.example_inputs is None:
        raise InvalidInput(f"'{path}' holds no example inputs: give --shape")
    return Source(program, tuple(program.example_inputs[0]))


def _random(shape: str) -> Any:
    """Numbers of a normal distribution, the same each time."""
    import torch

    try:
        sizes = [int(size) for size in shape.replace("x", ",").split(",")]
        return torch.randn(sizes, generator=torch.Generator().manual_seed(0))
    except (ValueError, RuntimeError):
        raise InvalidInput(f"'{shape}' is no shape: write it as 1,3,224,224") from None


def named(path: Path, name: str) -> Any:
    """An object of a Python file."""
    if not path.is_file():
        raise InvalidInput(f"there is no file '{path}'")
    module = _module(path.resolve())
    if not hasattr(module, name):
        own = [f"{path}:{n}" for n, value in vars(module).items() if _is_own(value, module)]
        such = f", as {' or '.join(own[:_NAMED])}" if own else ""
        raise InvalidInput(f"'{path}' has no '{name}'; write file.py:name{such}")
    return getattr(module, name)


def _is_own(value: Any, module: Any) -> bool:
    """Whether a file's name may be meant: a module, or a function of the file itself."""
    is_here = getattr(value, "__module__", None) == module.__name__ and isfunction(value)
    return is_here or _is_module(value)


def function_of(text: str) -> Any:
    """The function that ``file.py:name`` stands for."""
    file, _, name = text.rpartition(":")
    found = named(Path(file), name)
    if not callable(found):
        raise InvalidInput(f"'{text}' is {kind_of(found)}, no function")
    return found


_FILES: list[Path] = []  # that were run


def reload_files() -> Any:
    """What makes the functions of files known to another process."""
    return partial(_run_files, tuple(_FILES))


def _run_files(paths: tuple[Path, ...]) -> None:
    for path in paths:
        _module(path)


@cache
def _module(path: Path) -> ModuleType:
    """A Python file, run once as a module of its own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["__tosaic_file__"] = True  # by which a cluster knows what to send
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise InvalidInput(f"'{path}' does not run: {_reason(problem)}") from problem
    finally:
        with suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(str(path.parent))
    _FILES.append(path)
    return module


def called(text: str, function: Any) -> Any:
    """What a user's function returns; its failure is a sentence."""
    try:
        return function()
    except (Exception, SystemExit) as problem:
        raise InvalidInput(f"'{text}' fails: {_reason(problem)}") from problem


def _reason(problem: BaseException) -> str:
    """What a user's code failed with, and where."""
    from tosaic.front.torchapi.nodes import raised_at

    lines = str(problem).strip().splitlines()
    what = f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__
    place = None if isinstance(problem, SyntaxError) else raised_at(problem)
    return f"{what} (at {place})" if place else what

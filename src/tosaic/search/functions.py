"""Functions of the user's: their failures are sentences, and digests tell what they compute."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from torch import Tensor

from tosaic.errors import InvalidInput, first_line
from tosaic.search.tasks import digest


@dataclass(frozen=True, eq=False)
class Own:
    """A function of the user's, whose failure is a sentence."""

    function: Callable[..., Any]
    name: str
    number: int = field(default_factory=itertools.count().__next__)

    def __post_init__(self) -> None:
        OWN[self.number] = self

    def __call__(self, *given: Any) -> Any:
        try:
            made = self.function(*given)
        except Exception as problem:  # (whatever it is, the function is the user's)
            kind = type(problem).__name__
            raise InvalidInput(f"{self.name} fails: {kind}: {first_line(problem)}") from problem
        is_one = isinstance(made, (Tensor, np.ndarray, np.generic)) and not made.shape
        return made.item() if is_one else made


OWN = WeakValueDictionary[int, Own]()  # by number, as forked processes find them


def own(function: Callable[..., Any] | None, name: str = "") -> Own | None:
    """A function of the user's by a name, where there is one."""
    if function is None or isinstance(function, Own):
        return function
    if not callable(function):
        raise InvalidInput(f"a function is wanted, not {function!r}")
    return Own(function, name or getattr(function, "__name__", type(function).__name__))


def source_digest(function: Any) -> str:
    """A digest of what a function computes: its code, the file around it, and values it holds.

    Lambdas on one line, closures and functions of a notebook differ in code and values alone.
    """
    return "" if function is None else digest(_told(function, []))


def _told(value: Any, within: list[Any]) -> Any:
    """Functions and values as data for a digest; of what is no data, its type."""
    if isinstance(value, (Tensor, np.ndarray, bytes, str, int, float, type(None))):
        return value
    if isinstance(value, np.generic):
        return np.asarray(value)
    if any(value is other for other in within) or len(within) > 8:
        return "itself"
    inner = [*within, value]
    if isinstance(value, (list, tuple)):
        return [_told(item, inner) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, dict):
        return {str(key): _told(item, inner) for key, item in value.items()}
    if isinstance(value, CodeType):
        return [value.co_code, list(value.co_names), [_told(c, inner) for c in value.co_consts]]
    if isinstance(value, Own):
        return _told(value.function, inner)
    if isinstance(value, partial):
        return [_told(part, inner) for part in (value.func, value.args, value.keywords)]
    if inspect.ismethod(value):
        return [_told(value.__func__, inner), _told(value.__self__, inner)]
    if inspect.isfunction(value):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        held: list[Any] = [value.__code__, cells, value.__defaults__, value.__kwdefaults__]
        return [value.__qualname__, _source(value), _told(held, inner)]
    if callable(value) and not isinstance(value, type) and not inspect.isroutine(value):
        called = getattr(type(value).__call__, "__code__", None)
        return [_source(type(value)), _told([called, getattr(value, "__dict__", None)], inner)]
    return f"{type(value).__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def _source(target: Any) -> bytes:
    """The file that a function or a class is in, if it is in one."""
    try:
        file = inspect.getsourcefile(target)
        return Path(file).read_bytes() if file else b""
    except (OSError, TypeError):
        return b""

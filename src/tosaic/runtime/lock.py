"""The compilation lock: torch's tracing state and Python's warnings are global."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from tosaic.runtime.default_device import on_cpu

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_TURN = threading.RLock()


def in_turn(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """A function that waits until no other thread is in one like it, and runs on the CPU."""

    function = on_cpu(function)

    @wraps(function)
    def waiting(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        with _TURN:
            return function(*args, **kwargs)

    return waiting

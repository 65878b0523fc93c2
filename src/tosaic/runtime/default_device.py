"""torch's default device: tensors made here lie on the CPU, whatever a script chose for its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_CHOSEN = threading.local()  # what the script chose, while that is not in force


def on_cpu(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """A function during which torch's default device is the CPU."""

    @wraps(function)
    def run(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        torch: Any = sys.modules.get("torch")  # nobody has chosen before it was imported
        if torch is None or (chosen := torch.get_default_device()).type == "cpu":
            return function(*args, **kwargs)
        before, _CHOSEN.device = getattr(_CHOSEN, "device", None), chosen
        try:
            with torch.device("cpu"):
                return function(*args, **kwargs)
        finally:
            _CHOSEN.device = before

    return run


def as_chosen() -> AbstractContextManager[Any]:
    """The script's own default device again, for code of its own such as a model's forward."""
    return getattr(_CHOSEN, "device", None) or nullcontext()

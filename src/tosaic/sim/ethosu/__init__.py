"""A functional simulator of Ethos-U: it runs the very bytes that Vela emits.

Agreement is with TOSA over Vela's output. It is no cycle model and it is not silicon. What is
here is loaded at its first use, so that reading a blob (``velabin``) does not load PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tosaic.sim.ethosu.memory import Sanitizer
    from tosaic.sim.ethosu.simulation import Simulation, load
    from tosaic.sim.ethosu.trace import Trace

__all__ = ["Sanitizer", "Simulation", "Trace", "load"]
_PLACES = {
    "Sanitizer": "memory", "Simulation": "simulation", "Trace": "trace", "load": "simulation",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)

"""The names of ExecuTorch's VGF backend, and ``python -m tosaic.executorch.vgf.check_env``."""

from __future__ import annotations

from typing import Any

_NAMES = ("VgfBackend", "VgfCompileSpec", "VgfPartitioner", "VgfQuantizer")

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import tosaic.executorch

    return getattr(tosaic.executorch, name)

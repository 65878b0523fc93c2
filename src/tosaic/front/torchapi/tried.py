"""The versions of torch that the private calls in this folder were tried with.

An untried version is warned about once; it mostly works.
"""

from __future__ import annotations

from functools import cache

import torch

from tosaic.runtime.warn import warn

TRIED = ("2.11", "2.13")


@cache
def warn_if_untried(version: str = torch.__version__) -> None:
    """Warn, once, if torch is of a version that was not tried."""
    short = ".".join(version.split("+")[0].split(".")[:2])
    if short not in TRIED:
        warn(f"torch {version} has not been tried with this Tosaic; {' and '.join(TRIED)} were")

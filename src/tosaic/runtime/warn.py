"""Warnings whose place is the user's line: the one that called into this package."""

from __future__ import annotations

import sys
import warnings
from types import FrameType


def warn(sentence: str) -> None:
    """Warn at the caller of the outermost function of this package."""
    frame: FrameType | None = sys._getframe(1)
    level = outside = 3
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] == "tosaic":
            outside = level
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, UserWarning, stacklevel=outside)

"""Paths of source files as compiled files keep them: relative, and alike on every system."""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import PurePath


def portable(file: str) -> str:
    """A source file relative to the folder it is imported from or to this one, else its name.

    So a compiled file says nothing of the machine that it was made on.
    """
    return _portable(file, os.getcwd(), tuple(sys.path)) if os.path.isabs(file) else file


@lru_cache(1024)
def _portable(file: str, here: str, folders: tuple[str, ...]) -> str:
    path = PurePath(file)
    roots = [PurePath(f) for f in (here, *folders) if os.path.isabs(f)]
    near = [root for root in roots if path.is_relative_to(root) and len(root.parts) > 1]
    found = path.relative_to(max(near, key=lambda root: len(root.parts))) if near else path.name
    return PurePath(found).as_posix()

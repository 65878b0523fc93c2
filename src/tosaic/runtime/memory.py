"""Reuse of freed memory while large arrays come and go.

The C library gives a large block back to the system when it is freed, and the next one of that size
is fetched and zeroed page by page, which for pointwise operators takes longer than computing them.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

LARGE = 2 << 20  # bytes of an array from which it pays
# Options of glibc's mallopt, malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DEFAULT_MAX = 65536
# What glibc itself goes up to once a program has freed large blocks.
_MMAP, _TRIM = 32 << 20, 64 << 20

_lock = threading.Lock()
_users: list[None] = []


@lru_cache(maxsize=1)
def _glibc() -> Any:
    if platform.libc_ver()[0] != "glibc":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None


@contextmanager
def reused_memory(largest: int) -> Iterator[None]:
    """Keep what is freed for the next array, if arrays are as large as ``largest`` bytes.

    The setting is the process's own: the last one to leave gives all unused memory back.
    """
    library = _glibc() if largest >= LARGE else None
    if library is None:
        yield
        return
    with _lock:
        if not _users:
            library.mallopt(_MMAP_MAX, 0)
            library.mallopt(_TRIM_THRESHOLD, (1 << 31) - 1)
        _users.append(None)
    try:
        yield
    finally:
        with _lock:
            _users.pop()
            if not _users:
                library.mallopt(_MMAP_MAX, _DEFAULT_MAX)
                library.mallopt(_MMAP_THRESHOLD, _MMAP)
                library.mallopt(_TRIM_THRESHOLD, _TRIM)
                library.malloc_trim(0)

"""Types of arrays: any integers, as they lie in memory, and int64, for arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]
DType = np.dtype[Any]


def value_range(dtype: DType) -> tuple[int, int]:
    """The lowest and highest value of an integer type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)

"""The interpreter: every import below fills the registry of kernels."""

from tosaic.interp import (
    control,
    convert,
    elementwise,
    fft,
    floatconv,
    gather,
    image,
    layout,
    pool,
    reduce,
    shape,
)

__all__ = [
    "control",
    "convert",
    "elementwise",
    "fft",
    "floatconv",
    "gather",
    "image",
    "layout",
    "pool",
    "reduce",
    "shape",
]

"""The interpreter: every import below fills the registry of kernels."""

from tosaic.interp import (
    chains,
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
    "chains",
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

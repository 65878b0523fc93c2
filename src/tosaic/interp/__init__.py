"""The interpreter: every import below fills the registry of kernels."""

from tosaic.interp import (
    chains,
    control,
    convert,
    elementwise,
    fft,
    gather,
    image,
    layout,
    pool,
    products,
    reduce,
    shape,
)

__all__ = [
    "chains",
    "control",
    "convert",
    "elementwise",
    "fft",
    "gather",
    "image",
    "layout",
    "pool",
    "products",
    "reduce",
    "shape",
]

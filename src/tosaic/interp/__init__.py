"""The interpreter: every import below fills the registry of kernels."""

from tosaic.interp import (  # noqa: F401
    block,
    control,
    convert,
    elementwise,
    fft,
    fused,
    image,
    layout,
    pool,
    products,
    reduce,
    shape,
)

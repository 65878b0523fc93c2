"""Lowering rules, one file a family: importing them fills the registry."""

from tosaic.rules import (
    activation,
    compare,
    constant,
    control,
    conv,
    elementwise,
    functions,
    linear,
    move,
    norm,
    pad,
    pool,
    reduce,
    resize,
    shape,
    shuffle,
)

__all__ = [
    "activation",
    "compare",
    "constant",
    "control",
    "conv",
    "elementwise",
    "functions",
    "linear",
    "move",
    "norm",
    "pad",
    "pool",
    "reduce",
    "resize",
    "shape",
    "shuffle",
]

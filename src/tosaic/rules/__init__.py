"""Lowering rules, one file a family: importing them fills the registry."""

from tosaic.rules import (
    activation,
    compare,
    constant,
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
    softmax,
)

__all__ = [
    "activation",
    "compare",
    "constant",
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
    "softmax",
]

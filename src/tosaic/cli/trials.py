"""Small runs that tell whether an engine works on this machine."""

from __future__ import annotations

import numpy as np

from tosaic.interp.model import Model
from tosaic.ir.build import Builder
from tosaic.ir.graph import Array, Graph
from tosaic.lowering.target import Target


def _graph() -> Graph:
    """The largest of each four neighbours."""
    b = Builder("TOSA-1.0+INT")
    x = b.input("i8", (1, 4, 4, 8), "x")
    b.output(b.MAX_POOL2D(x, kernel=(2, 2), stride=(2, 2), pad=(0, 0, 0, 0)))
    return b.graph


def _given() -> tuple[Array, Array]:
    """An input, and what must come out."""
    x = np.random.default_rng(0).integers(-128, 128, (1, 4, 4, 8)).astype(np.int8)
    return x, x.reshape(1, 2, 2, 2, 2, 8).max((2, 4))


def interpreter() -> bool:
    x, wanted = _given()
    return np.array_equal(Model(_graph()).run(x)[0], wanted)


def device(target: Target, engine: str) -> bool:
    """Whether a target's compiler and one of its engines give what they must."""
    x, wanted = _given()
    assert target.emit is not None
    made = target.engines[engine](target.emit(_graph()))
    return np.array_equal(made.run(x)[0].reshape(wanted.shape), wanted)

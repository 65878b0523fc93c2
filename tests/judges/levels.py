"""Real inputs of a program as the integers that its one graph takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from tosaic.front.walk import origin
from tosaic.targets.artifact import Artifact


def levels(art: Artifact, inputs: Sequence[Tensor]) -> list[np.ndarray]:
    """In the order of the graph; what has no scale is given as it is."""
    (piece,) = (p for p in art.partition.pieces if p.graph is not None)
    assert piece.graph is not None
    made = []
    for node, port in zip(piece.inputs, piece.graph.inputs, strict=True):
        steps = inputs[art.program.inputs.index(origin(node))].double().numpy()
        if port.quant is not None:
            steps = np.round(steps / port.quant.scale) + port.quant.zero_point
        made.append(np.clip(steps, *port.dtype.range).astype(port.dtype.array))
    return made

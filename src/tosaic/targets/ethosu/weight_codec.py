"""Decodes compressed weights with Vela's codec, several times as fast as ``mlw``.

It ends its process on what it does not expect, so it runs in one of its own, and what it does not
decode ``mlw`` does, or refuses with a sentence.
"""

from __future__ import annotations

import numpy as np

from tosaic.sim.ethosu import mlw
from tosaic.targets.ethosu.vela_processes import decode_weights

# Values that are decoded here sooner than there; a stream's limit counts fillers, 4096 at most.
_FEW = 5 << 10


def decode(data: bytes, limit: int) -> mlw.Weights:
    """The weights of a standard stream; more than ``limit`` of them is an error."""
    found = decode_weights(data) if limit > _FEW else None
    if found is None or len(found) > 2 * limit:
        return mlw.decode(data, limit)
    return np.frombuffer(found, np.int16)

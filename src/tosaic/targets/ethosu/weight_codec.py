"""Decodes compressed weights with Vela's codec, several times as fast as ``mlw``.

It ends its process on what it does not expect, so it runs in one of its own, and what it does not
decode ``mlw`` does, or refuses with a sentence. ``decoding_ahead`` has it decode the weights of a
whole stream while this process checks and simulates what comes before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np

from tosaic.errors import InvalidInput, TosaicError
from tosaic.sim.ethosu import mlw
from tosaic.sim.ethosu.simulation import Simulation
from tosaic.targets.ethosu.vela_processes import decode_weights

# Values that are decoded here sooner than there; a stream's limit counts fillers, 4096 at most.
_FEW = 5 << 10
_AT_ONCE = 64 << 10  # compressed bytes in one message to the codec


def decode(data: bytes, limit: int) -> mlw.Weights:
    """The weights of a standard stream; more than ``limit`` of them is an error."""
    found = decode_weights([data]) if limit > _FEW else None
    return _checked(None if found is None else found[0], data, limit)


@contextmanager
def decoding_ahead(simulation: Simulation) -> Iterator[None]:
    """Decode the weights of a simulation in the codec's process, in the order that it needs them.

    What is decoded is kept by its bytes, so it does not matter whether a run needs other streams.
    """
    store = simulation.program.store
    known, kept = dict[bytes, "Future[list[bytes] | None]"](), store.decode

    def decode_known(data: bytes, limit: int) -> mlw.Weights:
        batch = known.get(data)
        try:
            found = None if batch is None else batch.result()
        except (CancelledError, InvalidInput):
            found = None
        if batch is None or found is None:
            return kept(data, limit)
        return _checked(found[places[data]], data, limit)

    places: dict[bytes, int] = {}
    codec = ThreadPoolExecutor(1)
    try:
        with suppress(TosaicError):  # a stream that cannot be read is refused where it runs
            for streams in _batches(simulation.weight_streams()):
                batch = codec.submit(decode_weights, streams)
                known.update((stream, batch) for stream in streams)
                places.update((stream, place) for place, stream in enumerate(streams))
        store.decode = decode_known
        yield
    finally:
        store.decode = kept
        codec.shutdown(wait=False, cancel_futures=True)


def _batches(streams: Iterable[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """Streams of many values, each once, in messages of a moderate size."""
    seen, batch, size = set[bytes](), list[bytes](), 0
    for stream, limit in streams:
        if limit <= _FEW or stream in seen:
            continue
        seen.add(stream)
        batch.append(stream)
        size += len(stream)
        if size >= _AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _checked(found: bytes | None, data: bytes, limit: int) -> mlw.Weights:
    if found is None or len(found) > 2 * limit:
        return mlw.decode(data, limit)
    return np.frombuffer(found, np.int16)

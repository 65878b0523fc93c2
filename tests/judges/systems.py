"""The systems under judgement: Tosaic, and the reference model itself to test the judges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judges.reference import ReferenceRefused, run_reference
from judges.verdict import System


def _verify_by_running(graph: bytes) -> None:
    raise NotImplementedError("the reference model checks a graph only as it runs it")


REFERENCE = System(run_reference, _verify_by_running, (ReferenceRefused,))


def _tosaic_run(graph: bytes, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    import tosaic

    return tosaic.load(graph).run(*inputs)


def _tosaic_verify(graph: bytes) -> None:
    from tosaic.files import flatbuffer
    from tosaic.ir.verify import verify
    from tosaic.spec.env import everything

    loaded = flatbuffer.read(graph)
    verify(loaded, everything(loaded.version))


def tosaic_system() -> System:
    from tosaic.errors import TosaicError

    return System(_tosaic_run, _tosaic_verify, (TosaicError,))


def _round_trip_run(graph: bytes, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Read, print, parse, write, and only then run."""
    from tosaic.files import flatbuffer
    from tosaic.files.parse import parse
    from tosaic.files.text import print_graph

    text = print_graph(flatbuffer.read(graph))
    return _tosaic_run(flatbuffer.write(parse(text)), inputs)


def round_trip_system() -> System:
    """Tosaic on files that have been through its own text and its own writer."""
    from tosaic.errors import TosaicError

    return System(_round_trip_run, _tosaic_verify, (TosaicError,))

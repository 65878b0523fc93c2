"""ExecuTorch as Tosaic uses it: found or not, quiet, and its private names in one place."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tosaic.errors import InvalidInput

SUFFIXES = (".pte", ".bpte", ".ptd")  # of ExecuTorch's files
TOSA_BACKEND, ETHOSU_BACKEND, VGF_BACKEND = "TOSABackend", "EthosUBackend", "VgfBackend"
_CHATTY = ("torchao", "torch.utils._pytree", "root")


def require_executorch() -> None:
    """InvalidInput with the way out if ExecuTorch is not installed."""
    if importlib.util.find_spec("executorch") is None:
        raise InvalidInput(
            "this needs ExecuTorch, which is not installed: pip install 'executorch==1.5.*'"
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Without what the wheels say about their own imports and their own future."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):
            logger.setLevel(level)

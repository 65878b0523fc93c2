"""A ``.bpte``: a program together with inputs and the outputs that they must give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tosaic.errors import InvalidInput
from tosaic.executorch.api import quiet
from tosaic.front import torchapi
from tosaic.targets.artifact import Artifact


def bundle(manager: Any, artifact: Artifact, test_inputs: Iterable[Any]) -> bytes:
    """The bundled program; what must come out is what the artifact computes."""
    with quiet():
        from executorch.devtools import BundledProgram
        from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
        from executorch.devtools.bundled_program.serialize import (
            serialize_from_bundled_program_to_flatbuffer,
        )

        cases = []
        for given in test_inputs:
            arguments = tuple(given) if isinstance(given, (list, tuple)) else (given,)
            made = artifact.run(*arguments, raw=True)
            taken = artifact.boundary.quantized(_leaves(arguments))
            cases.append(MethodTestCase(taken, _leaves(made)))
        if not cases:
            raise InvalidInput("test_inputs is empty: give at least one input")
        suite = [MethodTestSuite("forward", cases)]
        return bytes(serialize_from_bundled_program_to_flatbuffer(BundledProgram(manager, suite)))


def _leaves(value: Any) -> list[Any]:
    flat, _ = torchapi.flatten(value)
    return [v.detach().contiguous() if isinstance(v, torch.Tensor) else v for v in flat]

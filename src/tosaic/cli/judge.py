"""Accuracy of a classifier: the original model beside the compiled one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tosaic.cli.sources import Source
from tosaic.errors import InvalidInput, first_line
from tosaic.front import torchapi
from tosaic.pipeline.artifact import Artifact
from tosaic.runtime.printed import Printed, grid

Step = Callable[[int], None]


@dataclass(frozen=True)
class Verdict(Printed):
    """Shares of a labelled set: told right by each, and told the same by both."""

    target: str
    inputs: int
    float_accuracy: float
    compiled_accuracy: float
    agreement: float

    @classmethod
    def of(cls, target: str, real: Tensor, ours: Tensor, wanted: Tensor) -> Verdict:
        shares = (real == wanted, ours == wanted, ours == real)
        return cls(target, len(wanted), *(float(same.double().mean()) for same in shares))

    def parts(self) -> Iterable[Any]:
        table = grid("", f"of {self.inputs:,} inputs", numbers=[f"of {self.inputs:,} inputs"])
        table.add_row("float is right", f"{self.float_accuracy:.2%}")
        table.add_row(f"{self.target} is right", f"{self.compiled_accuracy:.2%}")
        table.add_row("both say the same", f"{self.agreement:.2%}")
        yield table


def original(source: Source, x: Tensor, batch: int, step: Step) -> Tensor:
    """The classes that the original gives, so many inputs at a time as it takes."""
    model, size = source.model, batch
    if isinstance(model, ExportedProgram):
        model, size = model.module(), _size(source)
    else:
        model.eval()
    with torch.no_grad():
        return _classes(model, x, size, isinstance(source.model, ExportedProgram), step)


def compiled(
    artifact: Artifact, source: Source, x: Tensor, engine: str | None, step: Step
) -> Tensor:
    """The classes that the compiled bytes give; they take as many inputs as they were made for."""
    return _classes(lambda part: artifact.run(part, engine=engine), x, _size(source), True, step)


def _size(source: Source) -> int:
    """How many inputs the example stacks."""
    flat = torchapi.flatten(source.inputs)[0]
    if len(flat) != 1 or not isinstance(flat[0], Tensor) or not flat[0].dim():
        raise InvalidInput(f"evaluate is for models of one tensor, not of {len(flat)} arguments")
    return int(flat[0].shape[0])


def _classes(
    model: Callable[[Tensor], Any], x: Tensor, size: int, whole: bool, step: Step
) -> Tensor:
    """The likeliest class of each input; ``whole`` fills the last batch up."""
    found = []
    for start in range(0, len(x), size):
        part = x[start : start + size]
        missing = size - len(part) if whole else 0
        given = torch.cat([part, *[part[-1:]] * missing]) if missing else part
        try:
            scores = torchapi.flatten(model(given))[0][0]
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as problem:
            raise InvalidInput(
                f"the model does not take inputs of {list(given.shape)}: {first_line(problem)}"
            ) from problem
        if not isinstance(scores, Tensor) or scores.dim() != 2 or len(scores) != len(given):
            raise InvalidInput("the model's first result is no table of scores, a row an input")
        found.append(scores[: len(part)].argmax(1))
        step(len(part))
    return torch.cat(found)

"""Samples of rules with a free size: one graph of unknown sizes beside a compile for each size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from judges.rules import Case, cases
from tosaic.errors import TosaicError
from tosaic.pipeline.dynamic import DynamicArtifact
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import sizes_of
from tosaic.targets.catalog import target_of

TARGETS = {"float": ("TOSA-1.1+FP+shape", None), "int8": ("TOSA-1.1+INT+shape", "int8")}
_MORE = (1, 2, 5)  # than the sample has


class One(nn.Module):
    """A sample's operator on its inputs; weights and indices are constants."""

    def __init__(self, case: Case, constants: list[Tensor | None]) -> None:
        super().__init__()
        self.case, self.constants = case, constants

    def forward(self, a: Tensor) -> Any:
        return self.called(a)

    def called(self, *inputs: Tensor) -> Any:
        given = iter(inputs)
        result = self.case.call([next(given) if c is None else c for c in self.constants])
        return [t for t in result if t is not None] if isinstance(result, tuple | list) else result


class Two(One):
    def forward(self, a: Tensor, b: Tensor) -> Any:  # type: ignore[override]
        return self.called(a, b)


class Three(One):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Any:  # type: ignore[override]
        return self.called(a, b, c)


@dataclass(frozen=True)
class Found:
    """A sample with a free axis: whether every size has the bits of its own compile."""

    case: Case
    axis: int
    wrong: str = ""


def models() -> Iterator[tuple[Case, nn.Module, tuple[Tensor, ...]]]:
    for case in cases():
        tensors = case.tensors()
        fixed = case.rule.policy == "WEIGHTED" or case.rule.constants
        constants = [t if i and (fixed or case.sample.kind(i)) else None
                     for i, t in enumerate(tensors)]  # fmt: skip
        given = tuple(t for t, c in zip(tensors, constants, strict=True) if c is None)
        if 1 <= len(given) <= 3 and not case.target.split(".")[1].endswith("_"):
            yield case, (One, Two, Three)[len(given) - 1](case, constants).eval(), given


def judged(case: Case, model: nn.Module, given: tuple[Tensor, ...], kind: str) -> Found | None:
    """The first axis that the sample can be free in; None if there is none."""
    for axis in range(given[0].dim()):
        if given[0].shape[axis] > 1 and (found := _with_axis(case, model, given, kind, axis)):
            return found
    return None


def _with_axis(
    case: Case, model: nn.Module, given: tuple[Tensor, ...], kind: str, axis: int
) -> Found | None:
    size, behind = given[0].shape[axis], given[0].dim() - axis
    free = Dim("n", min=2, max=4 * size + 8)
    places = [
        t.dim() - behind if t.dim() >= behind and t.shape[t.dim() - behind] == size else None
        for t in given
    ]
    shapes = tuple({} if place is None else {place: free} for place in places)
    (target, scheme), data = TARGETS[kind], [given]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sizes = sizes_of(model, given, shapes)
            if sizes is None:
                return None
            chosen = [(size + n,) for n in _MORE]
            device = target_of(target)
            stored = calibration_for(sizes, chosen, device, scheme, data) if scheme else None
            made = tosaic.compile(
                model, given, target=target, scheme=scheme, dynamic_shapes=shapes,
                calibration=stored, check=False,
            )  # fmt: skip
            if not isinstance(made, DynamicArtifact) or made.report.refused:
                return None
    except (TosaicError, *_OF_EXPORT):
        return None
    for values in chosen:
        x = sizes.examples_at(values)
        alone = artifact_at(sizes, values, device, scheme, stored, None, {"check": False})
        for one, other in zip(_listed(made.run(*x)), _listed(alone.run(*x)), strict=True):
            if not _same(one, other, exact=scheme is not None):
                return Found(case, axis, f"{values}: {one} is not {other}")
    return Found(case, axis)


_OF_EXPORT = (torch._dynamo.exc.UserError, RuntimeError, ValueError, TypeError, IndexError)


def _same(one: Tensor, other: Tensor, exact: bool) -> bool:
    near = 0.0 if exact or not one.is_floating_point() else 1e-5
    return torch.allclose(one, other, rtol=near, atol=near / 5, equal_nan=True)


def _listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, list | tuple) else [result]

"""Runs a program compiled and in PyTorch, side by side, and its graphs in the reference model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tosaic
from judges.reference import run_reference
from tosaic.pipeline.artifact import Artifact

FLOAT, INTEGER = "TOSA-1.0+FP", "TOSA-1.0+INT"


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


def compiled(model: Any, example: tuple[Any, ...], target: str = FLOAT, **options: Any) -> Artifact:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no calibration data")
        return tosaic.compile(model, example, target=target, **options)


def assert_same(got: Any, expected: Any, places: float = 1e-5) -> None:
    """Equal in structure, in types, and in numbers up to rounding."""
    mine, shape = pytree.tree_flatten(got)
    theirs, wanted = pytree.tree_flatten(expected)
    assert shape == wanted
    for one, other in zip(mine, theirs, strict=True):
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other.detach(), rtol=1e-4, atol=places, equal_nan=True)
        else:
            assert one == other
            assert type(one) is type(other)


def check(
    model: nn.Module,
    *examples: tuple[Any, ...],
    target: str = FLOAT,
    places: float = 1e-5,
    program: Any = None,
    refused: Sequence[str] | None = (),
    **options: Any,
) -> Artifact:
    """Compile, run each of the examples in turn, and compare with the model itself.

    ``refused`` are the operators that PyTorch keeps; None does not care. ``program`` is another
    form of the model to compile.
    """
    eager = copy.deepcopy(model).eval()
    given = copy.deepcopy(model) if program is None else program
    art = compiled(given, copy.deepcopy(examples[0]), target, **options)
    for example in examples:
        for_eager, for_us = copy.deepcopy(example), copy.deepcopy(example)
        with torch.no_grad():
            expected = eager(*for_eager)
        assert_same(art.run(*for_us), expected, places)
        assert_same(for_us, for_eager, places)  # inputs that the program writes to
    assert_same(art.state, {k: v for k, v in eager.named_buffers() if k in art.state}, places)
    if refused is not None:
        assert [r.op for r in art.report.refused] == list(refused), art.report.refused
    for graph in art.partition.graphs:
        agrees_with_reference(graph)
    return art


def fed(art: Artifact, inputs: Sequence[Any]) -> list[np.ndarray]:
    """What the one graph of a program is given when the program runs on some inputs."""
    seen: list[np.ndarray] = []

    def watch(graph: Any, ready: list[Tensor], engine: str) -> list[Any]:
        seen.extend(np.asarray(tensor) for tensor in ready)
        return Artifact._arrays(art, graph, ready, engine)

    with patch.object(art, "_arrays", watch):
        art.run(*inputs, engine="tosa")
    art.reset()
    return seen


def agrees_with_reference(graph: Any) -> None:
    """The reference model gives what the interpreter gives, on random inputs."""
    from tosaic.files.flatbuffer import write

    data = write(graph)
    random = np.random.default_rng(0)
    inputs = [random_input(random, port, wide=False) for port in tosaic.load(data).inputs]
    ours, theirs = tosaic.load(data).run(*inputs), run_reference(data, inputs)
    for mine, reference in zip(ours, theirs, strict=True):
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, reference, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(mine, reference)


def random_input(random: np.random.Generator, port: Any, *, wide: bool) -> np.ndarray:
    """Small integers, which may be indices; if ``wide``, any of 8 and 16 bits."""
    kind = np.dtype(port.dtype.array)
    if kind.kind == "f":
        return random.normal(size=port.shape).astype(kind)
    if kind.kind == "b":
        return random.integers(0, 2, port.shape).astype(kind)
    if not wide or kind.itemsize > 2:
        return random.integers(0, 3, port.shape).astype(kind)
    ends = np.iinfo(kind)
    return random.integers(ends.min, ends.max, port.shape, endpoint=True).astype(kind)

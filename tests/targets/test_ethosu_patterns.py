"""Networks that other compilers' streams were wrong for run whole and exactly on every Ethos-U.

Each stream is run on the simulator and compared with the interpreter of its TOSA graph, for inputs
as they are in use and for random ones.
"""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import tosaic
from targets.patterns import FORECASTERS, IMAGES, SPELLINGS, example, network
from tosaic.targets.ethosu import ACCELERATORS

ONE_EACH = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


def assert_whole_and_exact(kind: type[nn.Module], target: str, scheme: str) -> None:
    """Everything in one stream, equal to its graph, with nothing repaired after a failure."""
    model = network(kind)
    seen = [(example(kind),) for _ in range(4)]
    made = tosaic.compile(model, seen[0], target=target, scheme=scheme, calibration=seen,
                          check=False)  # fmt: skip
    assert not made.report.refused, made.report.refused
    (delegate,) = made.delegates
    for inputs in _inputs(delegate.graph):
        wanted, found = delegate.model.run(*inputs), delegate.simulation.run(*inputs)
        for ours, right in zip(found, wanted, strict=True):
            assert np.array_equal(ours.reshape(right.shape), right), (kind, target)


def _inputs(graph: tosaic.ir.graph.Graph) -> list[list[np.ndarray]]:
    random = np.random.default_rng(0)
    return [
        [random.integers(low // part, high // part + 1, v.shape).astype(v.dtype.array)
         for v in graph.inputs for low, high in [v.dtype.range]] for part in (1, 1, 4)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [*SPELLINGS, IMAGES[1]])
@pytest.mark.parametrize("target", ACCELERATORS)
def test_revin_and_a_unet_are_whole_and_exact_on_every_configuration(
    kind: type[nn.Module], target: str
) -> None:
    assert_whole_and_exact(kind, target, "int8")


@pytest.mark.parametrize("kind", [*FORECASTERS, IMAGES[0]])
@pytest.mark.parametrize("target", ONE_EACH)
def test_forecasters_and_selective_kernels_are_whole_and_exact(
    kind: type[nn.Module], target: str
) -> None:
    assert_whole_and_exact(kind, target, "int8")


@pytest.mark.parametrize("kind", [*SPELLINGS, *IMAGES])
@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_they_are_with_16_bit_activations(kind: type[nn.Module], target: str) -> None:
    assert_whole_and_exact(kind, target, "a16w8")

"""Whole networks on the Ethos-U targets: one delegate each, nothing left to the CPU."""

from __future__ import annotations

import pytest
import torch

import zoo
from judges.npu import TARGETS, networks

# A mixture with much of everything; python -m judges.npu --zoo compiles all of them.
NAMES = ("ds_cnn", "deeplab")
TRANSFORMERS = ("bert", "conformer", "decoder", "swin")


@pytest.mark.parametrize("name", NAMES)
def test_a_network_runs_whole_on_the_npu(name: str) -> None:
    made = [art for _, art in networks([name], TARGETS)]
    for art in made:
        assert not art.report.refused, art.report
        (delegate,) = art.delegates
        assert delegate.result.performance.total_cycles > 10_000
    assert [art.target for art in made] == list(TARGETS)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_runs_whole_and_its_stream_is_the_graph(name: str) -> None:
    for _, art in networks([name], ("ethos-u55-128", "ethos-u85-256")):
        assert not art.report.refused, art.report
        given = zoo.samples(name, 2, seed=5000)
        streams = [art.run(*each, engine="npu") for each in given]
        art.reset()
        for stream, each in zip(streams, given, strict=True):
            graph = art.run(*each, engine="tosa")
            torch.testing.assert_close(stream, graph, rtol=0, atol=0)

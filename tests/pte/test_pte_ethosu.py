"""Files for an Ethos-U: every blob as a device's runtime reads it, weights inside or outside."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tosaic
import zoo
from judges.edgenets import Indices, Island, Plain, Several, pictures, seeded
from judges.etorch import blobs, deserialized, executorch_or_skip
from judges.reference import run_reference
from judges.velablob import Tensor, parse
from tosaic.pipeline.artifact import Artifact

executorch_or_skip()

TARGETS = ("ethos-u55-128", "ethos-u65-256", "ethos-u85-256")


def compiled(net: nn.Module, data: list, target: str) -> Artifact:
    return tosaic.compile(seeded(net), data[0], calibration=data, target=target)


def wide(count: int) -> list:
    torch.manual_seed(2)
    return [tuple(torch.randn(2, 3, 4, 5) for _ in range(3)) for _ in range(count)]


def check(art: Artifact, data: bytes) -> None:
    """Backend, boundary and streams of each delegate against the graph it was made of."""
    found = blobs(data)
    assert [backend for backend, _ in found] == ["EthosUBackend"] * len(art.partition.graphs)
    plan = deserialized(data).program.execution_plan[0]
    calls = [
        i.instr_args for i in plan.chains[0].instructions if hasattr(i.instr_args, "delegate_index")
    ]
    for call, (_, blob), graph in zip(calls, found, art.partition.graphs, strict=True):
        parsed = parse(blob)
        sides = (parsed.inputs, graph.inputs), (parsed.outputs, graph.outputs)
        for tensors, values in sides:
            assert [t.size for t in tensors] == [
                math.prod(v.shape) * v.dtype.bits // 8 for v in values
            ]
            for tensor, value in zip(tensors, values):
                assert math.prod(tensor.shape) == math.prod(value.shape)  # Vela may fold a reshape
        spots: list[Tensor] = [*parsed.inputs, *parsed.outputs]
        assert all(t.offset + t.size <= parsed.scratch_size for t in spots if t.region == 1)
        assert len(call.args) == len(spots)
        assert len(set(call.args[len(parsed.inputs) :])) == len(parsed.outputs)
        for index, tensor in zip(call.args, spots):
            sizes = plan.values[index].val.sizes
            assert math.prod(sizes) * tensor.element_size == tensor.size


@pytest.mark.parametrize(
    ("kind", "target"),
    [(Plain, "ethos-u55-128"), (Several, "ethos-u65-256"), (Island, "ethos-u85-256")],
)
def test_every_blob_is_what_a_runtime_expects(kind: type, target: str, tmp_path: Path) -> None:
    art = compiled(kind(), wide(3) if kind is Several else pictures(4), target)
    art.save(tmp_path / "net.pte")
    check(art, (tmp_path / "net.pte").read_bytes())


def test_a_network_of_the_zoo_keeps_its_weights_outside_on_request(tmp_path: Path) -> None:
    net, example, data = zoo.build("ds_cnn")
    art = tosaic.compile(net, example, calibration=data[:2], target="ethos-u55-128")
    result = art.delegates[0].result
    art.save(tmp_path / "whole.pte")
    art.save(tmp_path / "net.pte", external_weights=tmp_path / "weights.ptd")
    whole, parted = ((tmp_path / n).read_bytes() for n in ("whole.pte", "net.pte"))
    check(art, whole)
    check(art, parted)
    assert parse(blobs(whole)[0][1]).weights == result.weights
    assert len(parted) < len(whole) - len(result.weights) * 0.9
    named = parse(blobs(parted)[0][1])
    assert named.weights_are_outside
    key = hashlib.sha256(b"weights\0" + result.weights).hexdigest()
    assert named.weights == key.encode()
    data_file = (tmp_path / "weights.ptd").read_bytes()
    assert key.encode() in data_file
    assert data_file.index(result.weights) % 16 == 0


@pytest.mark.parametrize("target", TARGETS)
def test_a_file_runs_on_the_simulated_npu(target: str, tmp_path: Path) -> None:
    art = compiled(Island(), pictures(4), target)
    art.save(tmp_path / "net.pte", external_weights=tmp_path / "net.ptd")
    check(art, (tmp_path / "net.pte").read_bytes())
    loaded = tosaic.load(tmp_path / "net.pte", external_weights=tmp_path / "net.ptd")
    for (x,) in pictures(2, seed=8):
        got, wanted = loaded.run(x), art.run(x)
        assert torch.equal(got["scores"], wanted["scores"])
        assert torch.equal(got["maps"][0], wanted["maps"][0])
        assert len(got["maps"][0].unique()) > 60


def test_masks_and_indices_cross_the_boundary(tmp_path: Path) -> None:
    torch.manual_seed(3)
    given = (torch.randn(1, 3, 8, 8), torch.rand(1, 8, 6, 6) > 0.5)
    for target in TARGETS[::2]:
        art = tosaic.compile(seeded(Indices()), given, calibration=[given], target=target)
        art.save(tmp_path / "net.pte")
        check(art, (tmp_path / "net.pte").read_bytes())
        for got, wanted in zip(tosaic.load(tmp_path / "net.pte").run(*given), art.run(*given)):
            assert got.dtype is wanted.dtype
            assert torch.equal(got, wanted)
            assert len(got.unique()) > 4


def test_the_delegated_graphs_are_those_of_the_reference_model() -> None:
    """What Vela was given computes what the artifact says it does."""
    art = compiled(Plain(), pictures(4), "ethos-u55-128")
    quant = art.graph.inputs[0].quant
    assert quant is not None
    x = pictures(1, seed=8)[0][0]
    levels = np.clip(np.round(x.numpy() / quant.scale) + quant.zero_point, -128, 127)
    (theirs,) = run_reference(art.bytes, [levels.astype(np.int8)])
    (mine,) = tosaic.load(art.bytes).run(levels.astype(np.int8))
    assert np.array_equal(mine, theirs)
    assert len(np.unique(mine)) > 4

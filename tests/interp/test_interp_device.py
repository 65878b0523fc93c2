"""The interpreter on a GPU: its own path has the processor's bits, and bad requests get sentences.

Where there is no GPU, plans made for another device than "cpu" run on the processor ("cpu:0"):
all that a GPU does but Triton's kernels.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tosaic
from tosaic.errors import InvalidInput, ToolFailed, ToolMissing
from tosaic.interp import cuda
from tosaic.interp.conv import Convolution
from tosaic.interp.cuda import Batches
from tosaic.interp.plan import Plan

GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not GPU, reason="torch sees no CUDA device here")


class Net(nn.Module):
    """Convolutions of each kind, a residual sum, a table, a pool, attention and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = x + self.point(nn.functional.silu(self.depthwise(x)))
        rows = nn.functional.max_pool2d(x, 2).flatten(2).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(rows, rows, rows)
        return self.head(mixed.mean(1)).softmax(-1)


def _artifact(scheme: str) -> tosaic.Artifact:
    torch.manual_seed(0)
    data = [(torch.randn(1, 3, 16, 16),) for _ in range(4)]
    target = "TOSA-1.0+INT+int16"
    return tosaic.compile(Net().eval(), data[0], target=target, calibration=data, scheme=scheme)


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_plan_for_another_device_has_the_same_bits(scheme: str) -> None:
    graph = _artifact(scheme).graph
    rng = np.random.default_rng(1)
    low, high = graph.inputs[0].dtype.range
    drawn = rng.integers(low, high + 1, graph.inputs[0].shape)
    x = torch.from_numpy(drawn.astype(graph.inputs[0].dtype.array))
    (ours,), (right,) = Plan(graph, None, "cpu:0").execute([x]), Plan(graph).execute([x])
    assert torch.equal(ours, right)
    assert len(right.unique()) > 3


@needs_gpu
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_an_artifact_runs_on_a_gpu_with_the_same_bits(scheme: str) -> None:
    artifact = _artifact(scheme)
    x = torch.randn(7, 3, 16, 16)
    right = artifact.run(x, engine="tosa")
    assert torch.equal(artifact.run(x, device="cuda"), right)
    assert torch.equal(artifact.run(x, device="cuda", max_memory=1 << 20), right)


def test_requests_for_a_gpu_that_is_not_there_get_a_sentence() -> None:
    artifact = _artifact("int8")
    x = torch.randn(1, 3, 16, 16)
    with pytest.raises(InvalidInput, match="device 'gpu' is not known: it is cpu, cuda or cuda:N"):
        artifact.run(x, device="gpu")
    if not GPU:
        with pytest.raises(ToolMissing, match="torch sees no CUDA device here"):
            artifact.run(x, device="cuda")


class _Counted:
    """Runs on the processor that stand for a GPU's: how many samples each has."""

    def __init__(self, wrong: int = 0) -> None:
        self.sizes: list[int] = []
        self.wrong = wrong

    def __call__(self, count: int, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        self.sizes.append(count)
        assert len(inputs[0]) == count
        return [inputs[0] * 2 + self.wrong]


def _batches(run: _Counted, monkeypatch: pytest.MonkeyPatch) -> Batches:
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 400)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 30, 1 << 31))
    monkeypatch.setattr(cuda, "_RECORDED", 1 << 20)
    return Batches("cpu", run, lambda inputs: [inputs[0] * 2])


def test_a_batch_is_cut_to_what_the_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    run = _Counted()
    x = torch.arange(20, dtype=torch.int32).reshape(10, 2)
    # 100 bytes a sample of the probed four, and 8 of its input
    (made,) = _batches(run, monkeypatch).run([x], 10, 432)
    assert torch.equal(made, x * 2)
    assert run.sizes == [4, 4, 4, 4, 4]


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(4, 2, dtype=torch.int32)
    with pytest.raises(InvalidInput, match="max_memory of 100 bytes is too little: one sample"):
        _batches(_Counted(), monkeypatch).run([x], 4, 100)


def test_a_gpu_with_other_integers_is_found_at_its_first_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(4, 2, dtype=torch.int32)
    with pytest.raises(ToolFailed, match="computes other integers than the processor"):
        _batches(_Counted(wrong=1), monkeypatch).run([x], 4, None)


@pytest.mark.parametrize("size", [(1, 16), (16, 1), (1, 64)])
def test_wide_windows_are_not_left_to_8_bit_kernels(size: tuple[int, int]) -> None:
    """Those are wrong on processors with AMX."""
    weight = torch.ones(4, *size, 8, dtype=torch.int8)
    bias = torch.zeros(4, dtype=torch.int32)
    made = Convolution(
        "conv2d", weight, bias, input_shape=(1, 64, 64, 8), pad=(0, 0, 0, 0), stride=(1, 1)
    )
    assert not made.integer

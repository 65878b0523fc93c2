"""Models whose tensors are 8-bit floats: PyTorch's bits, TOSA's own rows, the reference model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tosaic
from judges.reference import run_reference
from tosaic.interp.model import Model
from tosaic.lowering.builder import TYPES

TARGET = "TOSA-1.1+INT+FP+bf16+fp8e4m3+fp8e5m2"
KINDS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Tensor) -> Any:
        return self.function(*x)


def bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8) if tensor.dtype in KINDS.values() else tensor


def check(function: Callable[..., Any], given: tuple[Tensor, ...], want: Tensor) -> list[str]:
    """Compile, run, compare with PyTorch and with the reference model; the operators' names."""
    made: Any = tosaic.compile(Function(function), given, target=TARGET)
    assert not made.report.refused
    got = made.run(*given)
    assert got.dtype is want.dtype
    assert torch.equal(bits(got), bits(want))
    model = Model(made.graph)
    inputs = [_array(given[int(v.name.rpartition("_")[2])]) for v in made.graph.inputs]
    for one, other in zip(model.run(*inputs), run_reference(made.bytes, inputs), strict=True):
        assert one.tobytes() == other.tobytes()
    return [op.name for op in made.graph.ops if not op.name.startswith("CONST")]


def _array(tensor: Tensor) -> np.ndarray:
    kind = TYPES[tensor.dtype].array
    if tensor.dtype is torch.bfloat16 or tensor.dtype in KINDS.values():
        return tensor.view({1: torch.int8, 2: torch.int16}[tensor.itemsize]).numpy().view(kind)
    return tensor.numpy().astype(kind)


INDEX, PLACES = torch.tensor([2, 0]), torch.tensor([[[0] * 4, [2] * 4], [[1] * 4, [2] * 4]])
MOVES: dict[str, Callable[..., Tensor]] = {
    "clone": lambda x, y: x.clone(),
    "view": lambda x, y: x.reshape(6, 4),
    "permute": lambda x, y: x.permute(2, 0, 1),
    "slice": lambda x, y: x[:, 1:, ::2],
    "cat": lambda x, y: torch.cat([x, y], 1),
    "stack": lambda x, y: torch.stack([x[:, :2], y], 2),
    "flip": lambda x, y: x.flip(1),
    "repeat": lambda x, y: x.repeat(1, 2, 1),
    "expand": lambda x, y: x.unsqueeze(1).expand(2, 5, 3, 4),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "roll": lambda x, y: x.roll(1, 1),
    "chunk": lambda x, y: x.chunk(2, 2)[1],
    "index_select": lambda x, y: x.index_select(1, INDEX),
    "index": lambda x, y: x[:, INDEX],
    "embedding": lambda x, y: F.embedding(INDEX, x[0]),
    "index_put": lambda x, y: x.index_put((torch.tensor([0, 1]), INDEX), y[0]),
    "select_scatter": lambda x, y: torch.select_scatter(x, y[:, 0], 1, 0),
    "where": lambda x, y: torch.where(y[:, :1] == y[:, :1], x[:, :2], y),
    "zeros": lambda x, y: torch.cat([x, torch.zeros_like(x)], 0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MOVES)
def test_moved_bytes_are_pytorchs(name: str, kind: str) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(2, n, 4).to(KINDS[kind]) for n in (3, 2))
    ops = check(lambda x, y: MOVES[name](x, y), (x, y), MOVES[name](x, y))
    assert name == "where" or "CAST" not in ops  # SELECT alone has no row of 8 bits


@pytest.mark.parametrize("kind", KINDS)
def test_gather_and_scatter_of_8_bits(kind: str) -> None:
    """PyTorch has no kernels for them; those of integers move the same bytes."""
    torch.manual_seed(0)
    x, y = (torch.randn(2, n, 4).to(KINDS[kind]) for n in (3, 2))
    want = bits(x).scatter(1, PLACES, bits(y)).view(KINDS[kind])
    assert "SCATTER" in check(lambda x, i, y: x.scatter(1, i, y), (x, PLACES, y), want)
    want = bits(x).gather(1, PLACES).view(KINDS[kind])
    assert "GATHER" in check(lambda x, i: x.gather(1, i), (x, PLACES), want)


WIDE = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", [*WIDE, *KINDS.values(), torch.int8, torch.int32, torch.bool])
def test_casts_from_every_value_of_8_bits(kind: str, other: torch.dtype) -> None:
    x = torch.arange(256, dtype=torch.uint8).view(KINDS[kind])
    known = x.float().isfinite() & (x.float().abs() < (100 if other is torch.int8 else 2**31))
    x = bits(x)[known].view(KINDS[kind])
    check(lambda x: x.to(other), (x,), x.to(other))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", [*WIDE, torch.int8, torch.int32, torch.bool])
def test_casts_to_8_bits_saturate_as_pytorch(kind: str, other: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(4000) * torch.exp2(torch.randint(-12, 12, (4000,)).float())
    ends = [0.0, -0.0, 447.0, 448.0, 464.0, 465.0, -500.0, 57344.0, 61439.0, 61440.0, 65504.0]
    x = torch.cat([x, torch.tensor(ends)])
    x = x.clamp(-128, 127).to(other) if other is torch.int8 else x.to(other)
    check(lambda x: x.to(KINDS[kind]), (x,), x.to(KINDS[kind]))


PRODUCTS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...], str]] = {
    "matmul": (torch.matmul, ((2, 3, 8), (2, 8, 5)), "MATMUL"),
    "linear": (F.linear, ((3, 8), (5, 8)), "CONV2D"),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), ((1, 4, 8, 8), (5, 4, 3, 3)), "CONV2D"),
    "conv1d": (F.conv1d, ((1, 4, 8), (5, 4, 3)), "CONV2D"),
    "depthwise": (
        lambda x, w: F.conv2d(x, w, groups=4), ((1, 4, 8, 8), (4, 1, 3, 3)), "DEPTHWISE_CONV2D",
    ),
    "transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2), ((1, 4, 5, 5), (4, 3, 3, 3)),
        "TRANSPOSE_CONV2D",
    ),
    "conv3d": (F.conv3d, ((1, 4, 5, 5, 5), (3, 4, 2, 2, 2)), "CONV3D"),
}  # fmt: skip


@pytest.mark.parametrize("kinds", [("e4m3", "e4m3"), ("e5m2", "e5m2"), ("e4m3", "e5m2")])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_read_8_bits(name: str, kinds: tuple[str, str]) -> None:
    """Small whole numbers, of which every sum is exact in float32."""
    torch.manual_seed(0)
    function, shapes, operator = PRODUCTS[name]
    pair = [torch.randint(-4, 5, s).float().to(KINDS[k]) for s, k in zip(shapes, kinds)]
    want = function(*(t.float() for t in pair))
    ops = check(lambda x, y: function(x.float(), y.float()), tuple(pair), want)
    mixed_rows = ("MATMUL", "CONV2D")
    assert operator in ops
    assert "CAST" not in ops or (kinds[0] != kinds[1] and operator not in mixed_rows)
    weights = pair[1]
    ops = check(lambda x: function(x.float(), weights.float()), (pair[0],), want)
    assert operator in ops
    if kinds[0] == kinds[1]:  # PyTorch has no such kernels, and TOSA has
        made = check(lambda x, y: function(x, y), tuple(pair), want.to(KINDS[kinds[0]]))
        assert operator in made


@pytest.mark.parametrize("kind", KINDS)
def test_pools_and_argmax_read_8_bits(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8, 8).to(KINDS[kind])
    largest = F.max_pool2d(x.float(), 2)
    assert "CAST" not in check(lambda x: F.max_pool2d(x, 2), (x,), largest.to(x.dtype))
    there_and_back = lambda x: F.max_pool2d(x.float(), 2).to(x.dtype)  # noqa: E731
    assert "CAST" not in check(there_and_back, (x,), largest.to(x.dtype))
    whole = torch.randint(-8, 9, (1, 4, 8, 8)).float().to(KINDS[kind])
    mean = F.avg_pool2d(whole.float(), 2).to(x.dtype)
    assert "AVG_POOL2D" in check(lambda x: F.avg_pool2d(x, 2), (whole,), mean)
    assert check(lambda x: x.float().argmax(1).int(), (x,), x.float().argmax(1).int())


def test_operators_without_rows_of_8_bits_compute_in_float32() -> None:
    x = torch.randn(2, 8).to(torch.float8_e4m3fn)
    ops = check(lambda x: F.relu(x), (x,), F.relu(x.float()).to(x.dtype))
    assert ops == ["CAST", "CLAMP", "CAST"]


def test_scaled_products() -> None:
    torch.manual_seed(0)
    x, y = (torch.randint(-8, 9, (16, 32)).float().to(torch.float8_e4m3fn) for _ in "xy")
    rows = torch.exp2(torch.arange(16) % 4.0)
    scaled = {
        torch.float32: (torch.tensor(0.5), torch.tensor(2.0)),
        torch.bfloat16: (rows.view(16, 1), rows.view(1, 16)),
    }
    for kind, scales in scaled.items():
        product = partial(_scaled, kind, scales)
        assert "MATMUL" in check(product, (x, y), product(x, y))


def _scaled(kind: torch.dtype, scales: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> Tensor:
    return torch._scaled_mm(x, y.t(), *scales, out_dtype=kind)

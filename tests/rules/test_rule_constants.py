"""Rules that make constants: what they make is what PyTorch makes, and lazily so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (makes the operators known)

import tosaic.rules  # noqa: F401  (fills the registry)
from judges.reference import run_reference
from tosaic.errors import Unsupported
from tosaic.files.flatbuffer import write
from tosaic.front.registry import RULES
from tosaic.interp.model import Model
from tosaic.ir.graph import Quant
from tosaic.lowering.alternatives.data_movement import take
from tosaic.lowering.builder import TYPES, Lowering
from tosaic.spec.dtypes import F32, I8, I16

aten = torch.ops.aten
LIKE = torch.zeros(2, 3)
MADE = [
    ("full.default", ([2, 3], 1.5), {}),
    ("full.default", ([2, 3], 7), {}),
    ("full.default", ([2], True), {}),
    ("full.default", ([2], 3), {"dtype": torch.float16}),
    ("zeros.default", ([4],), {}),
    ("ones.default", ([1, 4],), {"dtype": torch.int32}),
    ("scalar_tensor.default", (2.5,), {}),
    ("zeros_like.default", (LIKE,), {}),
    ("ones_like.default", (LIKE,), {"dtype": torch.int64}),
    ("full_like.default", (LIKE, -2.0), {}),
    ("new_zeros.default", (LIKE, [3]), {}),
    ("new_ones.default", (LIKE, [3, 1]), {}),
    ("new_full.default", (LIKE, [3], 0.25), {}),
    ("arange.default", (5,), {}),
    ("arange.start", (2, 7.5), {}),
    ("arange.start_step", (2, 9, 3), {"dtype": torch.float32}),
]


@pytest.mark.parametrize(("name", "arguments", "keywords"), MADE, ids=[str(m) for m in MADE])
def test_a_made_constant_is_pytorchs(name: str, arguments: Any, keywords: Any) -> None:
    packet, overload = name.split(".")
    operator = getattr(getattr(aten, packet), overload)
    expected = operator(*arguments, **keywords)
    b = Lowering("TOSA-1.0+FP")
    values = [b.tensor(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    named = {a.name: v for a, v in zip(operator._schema.arguments, values)}
    made = RULES[f"aten.{name}"].lower(b, **named, **keywords)
    assert made.dtype is TYPES[expected.dtype]
    assert made.shape == tuple(expected.shape)
    assert np.array_equal(made.const.array, expected.numpy())


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
def test_a_constant_that_the_program_quantizes_is_rounded_like_pytorch(kind: Any) -> None:
    b, numbers = Lowering("TOSA-1.0+INT+int16"), torch.tensor([-1e9, -0.21, 0.06, 0.13, 0.3, 1e9])
    zero = 3 if kind is I8 else 0
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    low, high = kind.range
    expected = quantize(numbers, 0.1, zero, low, high, getattr(torch, f"int{kind.bits}"))
    made = b.requantize(b.tensor(numbers), Quant(0.1, zero), kind)
    assert made.is_const
    assert np.array_equal(made.const.array, expected.numpy())


def test_parts_with_other_parameters_are_rescaled_to_the_results() -> None:
    b = Lowering("TOSA-1.0+INT")
    x = b.with_quant(b.input(I8, (2, 3)), Quant(0.1, 5))
    y = b.with_quant(b.input(I8, (1, 3)), Quant(0.02, -7))
    b.wanted = Quant(0.1, 5), I8
    joined = RULES["aten.cat.default"].lower(b, tensors=[x, y], dim=0)
    assert joined.quant == b.wanted[0]
    b.output(joined)
    given = [np.array([[1, 2, 3], [-128, 0, 127]], np.int8), np.array([[-128, 0, 127]], np.int8)]
    (ours,) = Model(b.graph).run(*given)
    (theirs,) = run_reference(write(b.graph), given)
    assert np.array_equal(ours, theirs)
    assert ours.tolist() == [*given[0].tolist(), [-19, 6, 32]]


def test_parts_with_other_parameters_are_refused_where_the_result_has_none() -> None:
    b = Lowering("TOSA-1.0+INT")
    parts = [b.with_quant(b.input(I8, (2, 3)), Quant(scale)) for scale in (0.1, 0.2)]
    with pytest.raises(Unsupported, match="the operands have different scales"):
        RULES["aten.cat.default"].lower(b, tensors=parts, dim=0)


def test_dropout_in_training_is_refused_with_the_way_out() -> None:
    b = Lowering("TOSA-1.0+FP")
    with pytest.raises(Unsupported, match=r"call eval\(\) before exporting"):
        RULES["aten.dropout.default"].lower(b, input=b.input(F32, (2,)), p=0.5, train=True)


def test_pieces_of_a_weight_are_constants_with_their_own_scales() -> None:
    b = Lowering("TOSA-1.0+INT")
    levels = torch.arange(12, dtype=torch.int8).reshape(4, 3)
    weight = b.tensor(levels, Quant((0.1, 0.2, 0.3, 0.4), 0, 0))
    first, second = RULES["aten.chunk.default"].lower(b, self=weight, chunks=2)
    assert not b.graph.ops
    assert first.quant == Quant((0.1, 0.2), 0, 0)
    assert second.quant == Quant((0.3, 0.4), 0, 0)
    assert second.const.array.tolist() == levels[2:].tolist()


@pytest.mark.parametrize(
    ("indices", "operators"),
    [
        ([2, 3, 4], ["SLICE"]),
        ([4, 3, 2, 1, 0, 5, 6, 7][:5], ["SLICE", "REVERSE"]),
        ([2, 1, 0, 1, 2, 3, 4, 5, 6, 7], ["SLICE", "REVERSE", "CONCAT"]),
        ([0, 0, 0, 1, 2, 3, 4, 5, 6, 7], ["SLICE", "TILE", "CONCAT"]),
        ([0, 2, 4, 6], ["RESHAPE", "SLICE", "RESHAPE"]),
        ([i * 3 % 8 for i in range(40)], ["GATHER"]),
    ],
    ids=str,
)
def test_indices_take_the_fewest_pieces(indices: list[int], operators: list[str]) -> None:
    b = Lowering("TOSA-1.0+INT")
    x = b.input(I8, (2, 8, 3))
    b.output(take(b, x, 1, indices))
    given = np.arange(48, dtype=np.int8).reshape(2, 8, 3)
    (ours,) = Model(b.graph).run(given)
    assert np.array_equal(ours, given[:, indices])
    assert [op.name for op in b.graph.ops] == operators

"""Whole numbers stay whole: what is computed of the quantized input is what PyTorch computes of it.

Each function is compiled for integers, its input quantized as the program says, and the results
compared with PyTorch's on that very input: for every integer that the input can be within what
calibration saw.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import tosaic
from tosaic.front import torchapi
from tosaic.passes.step_lattice import Steps, common
from tosaic.quant.flow import quantize
from tosaic.targets.catalog import target_of

Function = Callable[..., Any]
_BOUNDS = torch.tensor([-2.0, -1.03, 0.5, 1.5])
_ONES = torch.ones(1, 1, 3, 3)
_SOBEL = torch.tensor([[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]).view(1, 1, 3, 3)
_TABLE = torch.tensor([1.0, 5.0, 2.0, 7.0, 3.0, 9.0, 4.0])


class Module(nn.Module):
    def __init__(self, *functions: Function) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *args: Tensor) -> tuple[Any, ...]:
        return tuple(function(*args) for function in self.functions)


def rows(x: Tensor) -> Tensor:
    return x.view(-1, 16)


ROUNDINGS: dict[str, Function] = {
    "round().int()": lambda x: x.round().int(),
    "floor().long()": lambda x: x.floor().long(),
    "ceil": lambda x: x.ceil(),
    "trunc": lambda x: x.trunc(),
    "sign": lambda x: torch.sign(x),
    ".int()": lambda x: x.int(),
    "a cast of a sum": lambda x: (x * 2 + 0.3).int(),
    "bucket": lambda x: ((x * 2).clamp(-4, 3).floor() + 4).long(),
    "floor of a half more": lambda x: (x + 0.5).floor(),
    "tenths": lambda x: torch.round(x, decimals=1),
    "floor_divide": lambda x: torch.floor_divide(x, 0.75),
    "div trunc": lambda x: torch.div(x * 3, 2, rounding_mode="trunc"),
    "int16": lambda x: (x * 20).round().to(torch.int16),
}
MASKS: dict[str, Function] = {
    "ge": lambda x: (x >= 0.7).float(),
    "and": lambda x: ((x > 0) & (x < 2)).float(),
    "xor": lambda x: torch.logical_xor(x > 0, x < 2).int(),
    "1 - mask": lambda x: 1.0 - (x > 0.1).float(),
    "where of numbers": lambda x: torch.where(x > 0.5, 1.0, 0.0),
    "where of integers": lambda x: torch.where(x > 0.3, 1, 0),
    "where of tensors": lambda x: torch.where(x > 0.5, x.floor(), torch.zeros_like(x) - 2),
    "nested": lambda x: torch.where(x > 1, 2.0, torch.where(x < -1, -2.0, 0.0)),
    "bool()": lambda x: x.round().bool().float(),
    "count": lambda x: (rows(x) > 0.3).float().sum(-1),
    "share": lambda x: (rows(x) > 0).float().mean(-1),
    "cumsum": lambda x: (rows(x) > 0).float().cumsum(-1),
    "constants": lambda x: (x.view(-1, 4) > _BOUNDS).float(),
    "constants first": lambda x: (x.view(-1, 4) >= _BOUNDS).float().sum(-1),
    "attention mask": lambda x: (1.0 - (x > 0.1).float()) * -10000.0,
    "ternary": lambda x: torch.sign(x) * (x.abs() > 0.7),
    "masked_fill": lambda x: x.round().masked_fill(x > 2, -1.0),
}
ARITHMETIC: dict[str, Function] = {
    "halves": lambda x: x.round() / 2,
    "thirds": lambda x: x.round() / 3,
    "mask times": lambda x: (x > 0).float() * x.round(),
    "product": lambda x: x.round() * x.floor(),
    "square": lambda x: x.round() ** 2,
    "digits": lambda x: x.floor() * 10 + x.round(),
    "modulo": lambda x: x.round() % 3,
    "fmod": lambda x: torch.fmod(x.trunc() * 3, 4),
    "//": lambda x: x.round() // 2,
    "maximum": lambda x: torch.maximum(x.round(), torch.tensor(2.0)),
    "minimum": lambda x: torch.minimum(x.round(), x.floor() * 2),
    "hardtanh": lambda x: F.hardtanh(x.round(), -2, 2),
    "sums": lambda x: rows(x.round()).sum(-1),
    "cat": lambda x: torch.cat([x.round(), x.floor() * 2], -1),
    "stack": lambda x: torch.stack([x.round(), x.floor(), x.ceil()], -1),
    "pad": lambda x: F.pad(x.round(), (2, 2), value=-3.0),
    "max_pool": lambda x: F.max_pool1d(x.round().view(1, 1, -1), 4),
    "neighbours": lambda x: F.conv2d((x > 0.5).float().view(1, 1, 16, -1), _ONES, padding=1),
    "Sobel": lambda x: F.conv2d(x.round().view(1, 1, 16, -1), _SOBEL, padding=1),
    "avg_pool": lambda x: F.avg_pool1d(x.round().view(1, 1, -1), 4),
    "differences": lambda x: x.round()[1:] - x.round()[:-1],
    "equal": lambda x: (x.round() == x.floor()).float(),
}
CODES: dict[str, Function] = {
    "fake quantization": lambda x: (x / 0.3).round().clamp(-8, 7) * 0.3,
    "FSQ": lambda x: (x.tanh() * 3.5).round(),
    "straight-through": lambda x: x + (x.round() - x).detach(),
    "sigmoid": lambda x: x.sigmoid().round(),
    "gelu": lambda x: F.gelu(x).floor(),
    "affine": lambda x: ((x * 2.5 + 0.3).round() - 7) * 4,
    "more than 8 bits": lambda x: (x * 100).round().int(),
    "positions": lambda x: ((x + 4) * 50).long() + 1,
    "gray code": lambda x: (lambda i: i ^ (i >> 1))((x.clamp(-4, 3).floor() + 4).int()),
    "bits": lambda x: (x.round().int() & 3) + (x.floor().int() << 2),
    "argmax": lambda x: rows(x).argmax(-1).float() * 2 - 5,
    "histogram": lambda x: torch.stack([(rows(x.round()) == i).sum(-1) for i in (-2, 0, 1)], -1),
    "one hot": lambda x: F.one_hot(x.round().clamp(-3, 3).long() + 3, 7).float(),
    "gather": lambda x: _TABLE[(x.clamp(-3, 3).floor() + 3).long()],
}
# Of int16 with more than one jump in 128 inputs: where PyTorch's float32 rounds an argument to the
# very place of a jump, the exact product may lie on the other side of it.
DENSE = {"more than 8 bits": 4}
GROUPS = {"roundings": ROUNDINGS, "masks": MASKS, "arithmetic": ARITHMETIC, "codes": CODES}
TARGETS = [
    ("int8", "TOSA-1.0+INT"), ("int8", "TOSA-1.0+INT+int16"), ("int8", "ethos-u55-128"),
    ("int8", "ethos-u85-256"), ("a16w8", "TOSA-1.0+INT+int16"), ("a16w8", "ethos-u55-128"),
    ("a16w8", "ethos-u85-256"),
]  # fmt: skip


def every(scheme: str, target: str) -> Tensor:
    """Inputs that are all int8, or all int16 of the range; fewer of these where runs take time."""
    most = 1 << 16 if target.startswith("TOSA") else 1 << 12
    return torch.linspace(-4, 4, 256 if scheme == "int8" else most)


def quantized(module: nn.Module, x: Tensor, scheme: str, target: str) -> tuple[fx.GraphModule, Any]:
    """The quantized program, and the input as it stands for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = quantize(module, (x,), scheme=scheme, calibration=[(x,)], target=target_of(target))
    (source,) = (n for n in made.graph.nodes if n.op == "placeholder")
    call = next(u for u in source.users if "decomposed.quantize" in torchapi.target_name(u))
    q = torch.ops.quantized_decomposed
    return made, q.dequantize_per_tensor(q.quantize_per_tensor(x, *call.args[1:]), *call.args[1:])


def differences(functions: dict[str, Function], scheme: str, target: str) -> dict[str, int]:
    """How many results of each function are others than PyTorch's."""
    module = Module(*functions.values()).eval()
    program, x = quantized(module, every(scheme, target), scheme, target)
    results = tosaic.compile(program, (x,), target=target).run(x)
    found = {}
    for name, got, want in zip(functions, results, module(x), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), name
        wrong = ~torch.isclose(got, want, rtol=2e-7, atol=0) if got.is_floating_point() else (
            got != want
        )  # fmt: skip
        if wrong.sum() > (DENSE.get(name, 0) if scheme == "a16w8" else 0):
            found[name] = int(wrong.sum())
    return found


@pytest.mark.parametrize(("scheme", "target"), TARGETS)
@pytest.mark.parametrize("group", GROUPS)
def test_results_are_those_of_pytorch(group: str, scheme: str, target: str) -> None:
    assert differences(GROUPS[group], scheme, target) == {}


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_without_the_analysis_they_are_others(
    group: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Steps, "of", lambda self, value: None)
    assert len(differences(GROUPS[group], scheme, "TOSA-1.0+INT+int16")) > 2


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("name", ["round().int()", "bucket", "FSQ", "more than 8 bits"])
def test_one_function_alone_is_exact(name: str, scheme: str) -> None:
    """The range of an input is chosen for the function that alone reads it."""
    function = next(group[name] for group in GROUPS.values() if name in group)
    assert differences({name: function}, scheme, "TOSA-1.0+INT+int16") == {}


def test_nothing_is_left_to_pytorch() -> None:
    for group in GROUPS.values():
        for scheme in ("int8", "a16w8"):
            x = every(scheme, "ethos")
            program, given = quantized(Module(*group.values()), x, scheme, "TOSA-1.0+INT+int16")
            made = tosaic.compile(program, (given,), target="TOSA-1.0+INT+int16")
            assert made.report.refused == []


def integers(low: int, high: int, kind: torch.dtype) -> Tensor:
    return torch.arange(low, high, dtype=kind)


_INPUTS: dict[str, tuple[Function, Tensor]] = {
    "int32": (lambda i: (i * 3 + 1).float() / 2, integers(-128, 128, torch.int32)),
    "int32 beyond 8 bits": (lambda i: (i * 1000).float(), integers(-16, 16, torch.int32)),
    "int64 as positions": (lambda i: _TABLE[i], integers(0, 7, torch.int64)),
    "int16": (lambda i: i.float() * 0.25, integers(-100, 100, torch.int16)),
    "int8": (lambda i: i.float() * 0.5, integers(-128, 128, torch.int8)),
    "bool": (lambda b: b.float() * 3 - 1, integers(0, 2, torch.int32).bool()),
    "counts of bool": (
        lambda b: b.view(2, -1).sum(-1).float(),
        integers(0, 16, torch.int32) % 3 > 0,
    ),
    "bytes of a picture": (lambda u: u.float() / 255, integers(0, 256, torch.int32).byte()),
}


@pytest.mark.parametrize("target", ["TOSA-1.0+INT+int16", "ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_integers_that_come_in_are_exact(scheme: str, target: str) -> None:
    for name, (function, given) in _INPUTS.items():
        if "u55" in target and "positions" in name:
            continue  # it has no GATHER, and says so
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = tosaic.compile(Module(function), (given,), target=target, scheme=scheme)
        (got,), want = made.run(given), function(given)
        assert torch.allclose(got, want, rtol=2e-7, atol=0), name


def test_what_does_not_fit_is_named() -> None:
    x = torch.linspace(-4, 4, 256)
    with pytest.warns(UserWarning, match="whole multiples of 1 from -400 to 400, more than"):
        tosaic.compile(
            Module(lambda x: (x * 100).round()), (x,), target="TOSA-1.0+INT", calibration=[(x,)]
        )


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_training_keeps_whole_numbers(scheme: str) -> None:
    """What was prepared for training rounds nothing that is whole, and converts to the same."""
    module, x = Module(lambda x: x.round() * 2, lambda x: (x > 0.5).float()), every(scheme, "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = tosaic.prepare_qat(module, (x,), scheme=scheme)
        prepared(x)
        made = tosaic.convert(prepared)
    scales = [
        n.args[1] for n in made.graph.nodes if "quantize_per_tensor" in torchapi.target_name(n)
        and n.args[0].op != "placeholder" and "decomposed.quantize" in torchapi.target_name(n)
    ]  # fmt: skip
    assert scales
    assert all(float(scale).hex().startswith("0x1.0000000000000p") for scale in scales)


@pytest.mark.parametrize(
    ("steps", "largest"),
    [((4.0, 6.0), 2.0), ((1.0, 0.3), 0.1), ((0.5, 0.0), 0.5), ((1.0, None), None),
     ((1.0, 2.0**-20), None), ((0.25, 1.0, 0.75), 0.25)],
)  # fmt: skip
def test_common_steps(steps: tuple[float | None, ...], largest: float | None) -> None:
    assert common(steps) == (None if largest is None else pytest.approx(largest, rel=1e-6))

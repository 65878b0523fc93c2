"""Float graphs are compared with PyTorch on the example, and a wrong call stays in PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
import tosaic.rules
from judges.programs import FLOAT, Function, compiled
from tosaic.front.registry import RULES


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def sigmoid(b: Any, self: Any) -> Any:
    return b.SIGMOID(self)


def reversed_rows(b: Any, self: Any, dim: int, dtype: Any = None) -> Any:
    """Numbers of the right size in the wrong places."""
    shifted = b.EXP(b.SUB(self, b.REDUCE_MAX(self, axis=1)))
    whole = b.RECIPROCAL(b.REDUCE_SUM(shifted, axis=1))
    return b.REVERSE(b.MUL(shifted, whole, b.const([0], "i8")), axis=1)


def lowest(b: Any, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
    return b.ARGMAX(b.NEGATE(self, b.const([0.0], "f32"), b.const([0.0], "f32")), axis=1)


WRONG = {
    "aten.tanh.default": sigmoid,
    "aten.softmax.int": reversed_rows,
    "aten.argmax.default": lowest,
}


def net(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(1).tanh() * x, x.argmax(1)


@pytest.mark.parametrize("name", WRONG)
def test_a_call_whose_lowering_is_wrong_stays_in_pytorch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, name, replace(RULES[name], lower=WRONG[name]))
    x = noise(4, 8)
    art = compiled(Function(net), (x,), FLOAT)
    (refused,) = art.report.refused
    assert (refused.op, refused.reason) == (
        name, f"its lowering gives other numbers than {name} on the example"
    )  # fmt: skip
    torch.testing.assert_close(art.run(x), net(x))
    unchecked = compiled(Function(net), (x,), FLOAT, check=False)
    assert not unchecked.report.refused
    with pytest.raises(AssertionError):
        torch.testing.assert_close(unchecked.run(x), net(x), atol=1e-2, rtol=1e-2)


def test_several_wrong_calls_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, lower in WRONG.items():
        monkeypatch.setitem(RULES, name, replace(RULES[name], lower=lower))
    x = noise(4, 8)
    art = compiled(Function(net), (x,), FLOAT)
    assert {r.op for r in art.report.refused} == set(WRONG)
    torch.testing.assert_close(art.run(x), net(x))


RIGHT: dict[str, tuple[Any, Tensor]] = {
    "what cancels": (lambda x: x - x.mean() + (x - x), torch.full((7, 3), 0.1)),
    "what is not finite": (lambda x: (x - 0.5).log() + 1 / x.relu(), noise(8, 8)),
    "jumps": (lambda x: ((x * 10).floor() / 10 * x).round() + x.sign(), noise(64, 8)),
    "ties": (lambda x: x.argmax(1) + x.sort(1).indices[:, 0], torch.zeros(5, 8)),
    "half precision": (lambda x: (x @ x.T).softmax(1) * 100, noise(9, 9).half()),
    "nothing": (lambda x: x[:0] * 2, noise(3, 4)),
    "a number": (lambda x: x * 2, torch.tensor(0.5)),
    "spread of nearly equal numbers": (
        lambda x: (x.std(1), x.var(0), x.std()),
        torch.full((5, 7), 8.3) + 1e-6 * noise(5, 7),
    ),
    "the norm of nearly equal numbers": (
        lambda x: F.layer_norm(x, (7,)),
        torch.full((5, 7), -1234.567) + 1e-4 * noise(5, 7),
    ),
    "sums of many": (lambda x: (x * 1e3).sum(1) - (x * 1e3).flip(1).sum(1), noise(4, 5000)),
}


SMALL = torch.tensor([0.0, 1e-7, -1e-6, 3e-4, -0.05, 0.0625, 0.0626, 0.07])
KEPT = {"log1p": SMALL, "asinh": SMALL, "atanh": SMALL, "expm1": SMALL, "sinh": SMALL,
        "acosh": 1 + SMALL.abs()}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_functions_keep_the_digits_of_small_numbers(name: str) -> None:
    """log(1 + x) as it stands loses them to the 1."""
    function, x = getattr(torch, name), KEPT[name]
    found = compiled(Function(function), (x,), FLOAT).run(x)
    torch.testing.assert_close(found.double(), function(x.double()), rtol=3e-6, atol=0.0)


@pytest.mark.parametrize("name", RIGHT)
def test_right_lowerings_pass(name: str) -> None:
    function, x = RIGHT[name]
    checked, other = (compiled(Function(function), (x,), FLOAT, check=c) for c in (True, False))
    assert not [r for r in checked.report.refused if "other numbers" in r.reason]
    assert checked.files == other.files


def test_the_report_says_what_was_compared() -> None:
    x = noise(4, 8)
    art = compiled(Function(net), (x,), FLOAT)
    (piece,) = art.partition.pieces
    assert "2 results of the graph compared with PyTorch on the example" in piece.checks
    unchecked = compiled(Function(net), (x,), FLOAT, check=False).partition.pieces[0].checks
    assert not any("PyTorch" in sentence for sentence in unchecked)


def test_an_example_without_values_is_said() -> None:
    x = torch.zeros(4, 8, device="meta")
    art = compiled(Function(net), (x,), FLOAT)
    assert any("no values" in sentence for sentence in art.partition.pieces[0].checks)


def test_parts_that_compute_something_else_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two operators that are written with others one is written wrongly."""
    from tosaic.passes.decompositions_indexing import DECOMPOSITIONS

    def wrong(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:
        return torch.stack([x, x, x], -1)

    def two(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.vander(x, 3), torch.nanmean(x)

    monkeypatch.setitem(DECOMPOSITIONS, "aten.vander.default", (wrong,))
    x = noise(5)
    art = compiled(Function(two), (x,), FLOAT)
    assert [r.op for r in art.report.refused] == ["aten.vander.default"]
    torch.testing.assert_close(art.run(x), two(x))


class Halves(nn.Module):
    """Sums of accumulators in int8, then floats."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)
        self.last = nn.Softmax(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.left(x) + self.right(x)))


@pytest.mark.parametrize("is_wrong", [False, True])
def test_of_quantized_and_float_calls_only_floats_are_blamed(
    is_wrong: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_wrong:
        name = "aten.softmax.int"
        monkeypatch.setitem(RULES, name, replace(RULES[name], lower=WRONG[name]))
    torch.manual_seed(0)
    net, x = Halves().eval(), noise(1, 3, 12, 12)
    floats = tosaic.Schemes("int8", module_names={"last": None})
    art = tosaic.compile(net, (x,), target="TOSA-1.0+INT+FP", scheme=floats, calibration=[(x,)])
    blamed = [r.op for r in art.report.refused if "other numbers" in r.reason]
    assert blamed == (["aten.softmax.int"] if is_wrong else [])


def test_a_graph_of_quantized_calls_alone_is_not_run_call_by_call() -> None:
    torch.manual_seed(0)
    net, x = Halves().eval(), noise(1, 3, 12, 12)
    art = tosaic.compile(net, (x,), target="TOSA-1.0+INT+FP", scheme="int8", calibration=[(x,)])
    (piece,) = art.partition.pieces
    assert not any("PyTorch" in told for told in piece.checks)

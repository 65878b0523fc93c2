"""Modules with odd ranks, constants, branches and groups compile, or are refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tosaic
import tosaic.rules
from judges.programs import Function, compiled
from tosaic.errors import Unsupported
from tosaic.front import torchapi
from tosaic.front.registry import RULES

INTEGERS, NPU, NEW_NPU = "TOSA-1.0+INT+int16", "ethos-u55-128", "ethos-u85-256"


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def decibels(real: Tensor, made: Tensor) -> float:
    error = (real.double() - made.double()).square().sum()
    return float(10 * torch.log10(real.double().square().sum() / error.clamp(min=1e-30)))


def _quieter(inputs: tuple[Tensor, ...], times: int) -> tuple[Tensor, ...]:
    """Inputs like these, a little smaller; after so many a range has no room for larger ones."""
    return tuple(v * (1 - times / 100) if v.is_floating_point() else v for v in inputs)


def check(
    model: Any, *inputs: Tensor, target: str = INTEGERS, least: float = 20, **options: Any
) -> None:
    """Nothing is refused, and the result is the model's but for rounding."""
    net = (model if isinstance(model, nn.Module) else Function(model)).eval()
    if target.startswith(("TOSA-1.0+INT", "ethos")):
        options |= {"calibration": [_quieter(inputs, n) for n in range(16)]}
    art = compiled(net, inputs, target, **options)
    assert not art.report.refused
    with torch.no_grad():
        wanted = net(*inputs)
    made = art.run(*inputs)
    assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
    assert decibels(wanted, made) > least


ONE = torch.full((1, 1, 1, 1), 0.3)
CHAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum": lambda x: torch.maximum(F.leaky_relu(x, 0.2), ONE),
    "where": lambda x: torch.where(x.tanh() > 0, x.tanh(), ONE),
    "clamp": lambda x: torch.clamp(x.tanh(), ONE - 0.6, ONE),
    "addcmul": lambda x: torch.addcmul(x.tanh(), x.tanh(), ONE, value=0.5),
    "lerp": lambda x: torch.lerp(x.tanh(), ONE, 0.3),
    "isclose": lambda x: torch.isclose(x.relu(), ONE).float() + 0.5,
    "square of a difference": lambda x: (ONE - x.relu()) ** 2,
    "fewer axes": lambda x: torch.minimum(x.tanh() * ONE[0, 0], ONE[0]),
    "a number of no axes": lambda x: torch.minimum(x.tanh(), ONE[0, 0, 0, 0]) * 2,
}


@pytest.mark.parametrize("name", CHAINS)
def test_constants_of_one_element_and_any_rank_are_numbers_in_a_chain(name: str) -> None:
    check(CHAINS[name], noise(1, 3, 4, 4))


TRANSPOSED = [
    (nn.ConvTranspose1d, (4, 2, 3), {"groups": 2, "bias": False}),
    (nn.ConvTranspose1d, (4, 2, 3), {"groups": 2, "dilation": 2}),
    (nn.ConvTranspose1d, (6, 3, 4), {"groups": 3, "stride": 3, "output_padding": 2}),
    (nn.ConvTranspose2d, (4, 2, 3), {"groups": 2, "stride": 2, "padding": 1, "output_padding": 1}),
    (nn.ConvTranspose2d, (8, 2, (2, 3)), {"groups": 2, "bias": False, "dilation": (2, 1)}),
    (nn.ConvTranspose2d, (4, 4, 3), {"groups": 4, "stride": 2}),
    (nn.ConvTranspose3d, (4, 2, 2), {"groups": 2, "stride": 2, "bias": False}),
    (nn.ConvTranspose3d, (4, 2, (1, 2, 3)), {"groups": 2, "padding": (0, 1, 1)}),
]


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", NPU])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolutions_have_any_groups(case: Any, target: str) -> None:
    layer, sizes, options = case
    torch.manual_seed(0)
    axes = (5,) * (3 - (nn.ConvTranspose3d, nn.ConvTranspose2d, nn.ConvTranspose1d).index(layer))
    net = layer(*sizes, **options)
    check(net, noise(1, sizes[0], *axes), target=target, least=100 if "FP" in target else 25)


class Nested(nn.Module):
    """A branch with a layer in a branch; the data takes neither."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        def inner(y: Tensor) -> Any:
            return torch.cond(y.mean() > 1, lambda z: self.layer(z), lambda z: z + 1, (y,))

        return torch.cond(x.sum() > 0, inner, lambda y: y * 2.0, (x,))  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("layer", [nn.Conv2d(3, 3, 3, padding=1), nn.Linear(8, 8)], ids=str)
def test_a_branch_in_a_branch_may_have_layers(layer: nn.Module, seed: int) -> None:
    scaled = noise(1, 3, 8, 8, seed=seed) + (0.0, 3.0, -3.0)[seed]
    check(Nested(layer), scaled, target="TOSA-1.0+INT+cf")


def test_a_loop_of_no_steps_has_weights() -> None:
    from torch._higher_order_ops.while_loop import while_loop

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, i: Tensor, x: Tensor) -> Any:
            return while_loop(
                lambda i, x: i < 0, lambda i, x: (i + 1, self.layer(x)), (i, x)
            )[1]  # fmt: skip

    inputs = (torch.tensor(0), noise(2, 8))
    art = compiled(Loop().eval(), inputs, "TOSA-1.0+INT+cf", calibration=[inputs])
    assert not art.report.refused


def reshaped_and_chosen(x: Tensor) -> Tensor:
    """A piece of five axes in another shape, which SELECT reads: a copy is read, not the piece."""
    y = x[:, :, :, 1:3].reshape(2, 3, 12)
    return torch.where(y > 0, y, -y) + y


def reshaped_and_crossed(x: Tensor) -> Tensor:
    z = x[:, :, :, 1:3].reshape(24, 3)
    return z.unsqueeze(1) * z.unsqueeze(0)[:, :3]


@pytest.mark.parametrize("target", [NPU, NEW_NPU])
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("function", [reshaped_and_chosen, reshaped_and_crossed])
def test_copies_that_keep_faults_away_have_readers(function: Any, scheme: str, target: str) -> None:
    check(function, noise(1, 2, 3, 4, 6), target=target, scheme=scheme)


def test_a_stand_in_that_is_written_to_is_given_back() -> None:
    """The truth of a tensor of several elements cannot be asked."""
    given = torchapi.tracing.stand_in(torch.zeros(2, 3))
    assert given.add_(1) is given
    assert given.relu_() is given


@pytest.mark.parametrize(
    ("wrong", "target"),
    [("type", "TOSA-1.0+FP"), *(("shape", t) for t in ("TOSA-1.0+FP", INTEGERS, NPU))],
)
def test_a_rule_that_gives_another_shape_or_type_is_a_refusal(
    wrong: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    def flip(b: Any, self: Any, dims: Any) -> Any:
        if wrong == "shape":
            return b.with_quant(b.RESHAPE(self, b.shape([32])), self.quant)
        return b.GREATER(self, b.number(0, self))

    good = RULES["aten.flip.default"]
    monkeypatch.setitem(RULES, "aten.flip.default", replace(good, lower=flip))
    x = noise(2, 4, 4)
    art = compiled(Function(lambda x: torch.softmax(x, 1).flip(1) * x), (x,), target)
    (refused,) = art.report.refused
    assert refused.op == "aten.flip.default"
    assert "the rule for aten.flip.default is at fault" in refused.reason
    assert torch.allclose(art.run(x), torch.softmax(x, 1).flip(1) * x, atol=0.1)


def test_unsupported_is_what_a_fault_of_a_rule_raises() -> None:
    from tosaic.lowering.result_check import check_result

    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),))
    node.meta["val"] = torch.zeros(2, 3)
    from tosaic.lowering.builder import Lowering

    b = Lowering("TOSA-1.0+FP")
    check_result(node, b.input("f32", (2, 3)))
    with pytest.raises(Unsupported, match=r"\[3, 2\] where PyTorch gives \[2, 3\]"):
        check_result(node, b.input("f32", (3, 2)))
    with pytest.raises(Unsupported, match="f16 where PyTorch gives"):
        check_result(node, b.input("f16", (2, 3)))


def added_out(x: Tensor) -> Tensor:
    z = torch.empty(4, 8)
    torch.add(x, x, out=z)
    torch.sigmoid(z, out=z)
    return z * 2


def aliased_out(x: Tensor) -> Tensor:
    z = torch.empty(4, 8)
    again = z
    torch.clamp(x, 0, 1, out=z)
    return again + x


def joined_out(x: Tensor) -> Tensor:
    z, w = torch.empty(8, 8), torch.zeros(2, 4, 8)
    torch.cat([x, x], 0, out=z)
    torch.exp(x, out=w[0])
    return torch.cat([z, w.flatten(0, 1)])


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", INTEGERS])
@pytest.mark.parametrize("function", [added_out, aliased_out, joined_out])
def test_results_may_go_to_out(function: Any, target: str) -> None:
    check(function, noise(4, 8), target=target)


def test_a_number_of_no_axes_is_rescaled() -> None:
    """In int16 on a target without 48-bit products: rank 0 all the way."""
    check(
        lambda x, y: torch.lerp(x, y, 0.3), noise(4, 8), noise(4, 8, seed=1), target=NEW_NPU,
        scheme="a16w8",
    )  # fmt: skip


def test_scalars_are_computed_in_int16() -> None:
    x = torch.tensor(1.5)
    art = compiled(Function(lambda x: x.pow(3) * x), (x,), INTEGERS, scheme="a16w8")
    assert decibels(x**4, art.run(x)) > 60


@pytest.mark.parametrize(
    ("net", "target", "scheme", "least"),
    [(nn.GroupNorm(1, 2), NPU, "int8", 33), (nn.LayerNorm((2, 200, 200)), INTEGERS, "a16w8", 65)],
)
def test_norms_are_over_any_number_of_elements(
    net: nn.Module, target: str, scheme: str, least: float
) -> None:
    check(net, noise(1, 2, 200, 200) + 0.5, target=target, scheme=scheme, least=least)


@pytest.mark.parametrize("size", [336, 1000])
def test_the_twenty_largest_of_many(size: int) -> None:
    check(lambda x: torch.topk(x, 20).values, noise(1, size), least=40)
    x = torch.randperm(size, generator=torch.Generator().manual_seed(0)).float().reshape(1, -1)
    art = compiled(Function(lambda x: torch.topk(x, 20).indices), (x,))
    assert torch.equal(art.run(x), torch.topk(x, 20).indices)


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", INTEGERS])
def test_numbers_that_a_small_integer_has_not_are_refused(target: str) -> None:
    x = torch.arange(-4, 5, dtype=torch.int8)
    art = compiled(Function(lambda x: (x >> 1, x + x)), (x,), target)
    assert [torch.equal(*pair) for pair in zip(art.run(x), (x >> 1, x + x))] == [True, True]


class Computed(nn.Module):
    """Reads a number out of a tensor, as ``x * float(x.max())``."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function, self.norm = function, nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.norm, x, x.abs().max().item())


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", "ethos-u55-128"])
@pytest.mark.parametrize(
    "function",
    [
        lambda norm, x, k: x * k,
        lambda norm, x, k: norm(x) * k + k,
        lambda norm, x, k: norm(x + k),
        lambda norm, x, k: x * int(k),
        lambda norm, x, k: x * (k > 1),
        lambda norm, x, k: k - norm(k * x),
    ],
)
def test_numbers_that_are_read_out_of_tensors_stay_in_pytorch(function: Any, target: str) -> None:
    x, net = torch.randn(2, 4, 8), Computed(function).eval()
    art = tosaic.compile(net, (x,), target=target, calibration=[x])
    assert "aten.item.default" in {refusal.op for refusal in art.report.refused}
    with torch.no_grad():
        real = net(x)
    assert (art.run(x) - real).abs().max() <= real.abs().max() * (1e-5 if "FP" in target else 0.05)

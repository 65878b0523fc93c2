"""Programs in every form that users have them: strict or not, training or inference IR, edge."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import FLOAT, INTEGER, Function, assert_same, check, compiled
from tosaic.errors import InvalidInput

# torch says this of its own code, when a program is copied or decomposed.
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Net(nn.Module):
    """What networks are made of, with activations in place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.alone = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.relu(self.norm(self.conv(x)), inplace=True)
        y = self.pool(y)
        y += nn.functional.hardswish(self.alone(y), inplace=True)
        y = nn.functional.interpolate(y, scale_factor=2, mode="nearest")
        y = nn.functional.adaptive_avg_pool2d(y, 1)
        return self.head(self.drop(torch.flatten(y, 1)))


def image() -> tuple[Tensor]:
    return (torch.randn(1, 3, 8, 8),)


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("strict", [False, True])
def test_exports_of_every_kind_lower_whole(strict: bool, decomposed: bool) -> None:
    net, x = Net().eval(), image()
    exported = torch.export.export(net, x, strict=strict)
    if decomposed:
        exported = exported.run_decompositions()
    art = check(net, x, image(), program=exported)
    assert len(art.partition.graphs) == 1


def test_a_decomposed_export_is_quantized_whole() -> None:
    net, x = Net().eval(), image()
    net.alone = nn.Identity()  # torchao traces for minutes for a batch norm that stands alone
    data = [image() for _ in range(8)]
    plain = compiled(net, x, INTEGER, calibration=data)
    exported = torch.export.export(net, x).run_decompositions()
    art = compiled(exported, x, INTEGER, calibration=data)
    assert not art.report.refused
    got = torch.cat([art.run(*d) for d in data])
    real = torch.cat([net(*d).detach() for d in data])
    other = torch.cat([plain.run(*d) for d in data])
    assert (got - real).abs().max() < max(2 * (other - real).abs().max(), 0.02)
    assert len(got.unique()) > 10


class EdgeOperator:
    """An operator as ExecuTorch's edge dialect wraps it: no OpOverload, but it has one."""

    def __init__(self, op: Any) -> None:
        self._op, self._schema = op, op._schema
        self.__name__ = str(op)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __str__(self) -> str:
        return str(self._op)


def test_edge_dialect_operators_are_read_by_their_aten_names() -> None:
    net, x = Net().eval(), image()
    exported = torch.export.export(net, x).run_decompositions()
    copies = {
        torch.ops.aten.view.default: torch.ops.aten.view_copy.default,
        torch.ops.aten.permute.default: torch.ops.aten.permute_copy.default,
    }
    for node in exported.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = EdgeOperator(copies.get(node.target, node.target))
    art = tosaic.compile(exported, x, target=FLOAT)
    assert not art.report.refused
    assert_same(art.run(*x), net(*x))


def test_edge_operators_that_no_rule_takes_run_in_pytorch() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.special.bessel_j0(x) + 1

    x = (torch.randn(3, 4),)
    exported = torch.export.export(Odd(), x).run_decompositions()
    for node in exported.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = EdgeOperator(node.target)
    art = tosaic.compile(exported, x, target=FLOAT)
    assert [r.op for r in art.report.refused] == ["aten.special_bessel_j0.default"]
    assert_same(art.run(*x), Odd()(*x))


def test_a_saved_program_is_taken_by_its_path(tmp_path: Path) -> None:
    net, x = Net().eval(), image()
    torch.export.save(torch.export.export(net, x), tmp_path / "net.pt2")
    for path in (tmp_path / "net.pt2", str(tmp_path / "net.pt2")):
        check(net, x, program=path)
    (tmp_path / "bad.pt2").write_bytes((tmp_path / "net.pt2").read_bytes()[:1000])
    with pytest.raises(InvalidInput, match="bad.pt2' is no program that torch.export.save wrote"):
        tosaic.compile(str(tmp_path / "bad.pt2"), x, target=FLOAT)
    with pytest.raises(InvalidInput, match="there is no file 'gone.pt2'"):
        tosaic.compile("gone.pt2", x, target=FLOAT)


def test_grad_and_autocast_regions_are_read_as_what_they_compute() -> None:
    class Modes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                y = self.linear(x) * 2
            with torch.autocast("cpu", dtype=torch.bfloat16):
                z = self.linear(y)
            return y, z

    x = (torch.randn(2, 4),)
    exported = torch.export.export(Modes().eval(), x)
    assert any("wrap_with" in str(n.target) for n in exported.graph.nodes)
    model = Modes().eval()
    art = tosaic.compile(torch.export.export(model, x), x, target="TOSA-1.0+FP+bf16")
    assert not art.report.refused
    with torch.no_grad():
        y, z = model(*x)
    mine, narrow = art.run(*x)
    assert_same(mine, y)
    assert narrow.dtype is torch.bfloat16
    torch.testing.assert_close(narrow, z, rtol=2e-2, atol=2e-2)


Pair = namedtuple("Pair", "first second")


class Structure(nn.Module):
    """Nested inputs and outputs; one value twice, an input, a constant, None and numbers."""

    def forward(
        self, x: dict[str, Tensor], pair: Pair, k: int, mode: str, flag: bool, rest: None = None
    ) -> Any:
        y = x["a"] + pair.first * k
        y = y.exp() if mode == "exp" else y.sin()
        constant = torch.ones(2)
        return {"y": y, "again": y, "in": x["a"], "pair": Pair(y + 1, None)}, [k, flag, constant]


def test_nested_and_repeated_outputs_and_inputs_that_are_no_tensors_keep_their_structure() -> None:
    def arguments() -> tuple[Any, ...]:
        tensors = [torch.randn(2, 3) for _ in range(3)]
        return {"a": tensors[0]}, Pair(tensors[1], tensors[2]), 3, "exp", True, None

    art = check(Structure(), arguments(), arguments())
    assert len(art.partition.graphs) == 1
    changed = list(arguments())
    changed[2] = 4
    with pytest.raises(InvalidInput, match=r"input 3 \(k\) was 3 at export .* cannot be 4"):
        art.run(*changed)


def test_keyword_arguments_of_an_export_are_taken_by_name() -> None:
    class Named(nn.Module):
        def forward(self, x: Tensor, *, scale: Tensor, shift: Tensor) -> Tensor:
            return x * scale - shift

    x, scale, shift = (torch.randn(2, 3) for _ in range(3))
    exported = torch.export.export(Named(), (x,), {"scale": scale, "shift": shift})
    art = tosaic.compile(exported, (x,), target=FLOAT)
    expected = Named()(x, scale=scale, shift=shift)
    assert_same(art.run(x, shift=shift, scale=scale), expected)
    with pytest.raises(InvalidInput, match="the argument shift is missing"):
        art.run(x, scale=scale)
    with pytest.raises(InvalidInput, match="the program takes no argument named more"):
        art.run(x, scale=scale, shift=shift, more=3)


class Constants(nn.Module):
    """Constants of every kind: lifted, made inside, shared, in a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("table", torch.randn(4), persistent=False)
        self.plain = torch.randn(4)

    def forward(self, x: Tensor, unused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.second(self.first(x)) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + self.plain
        steps = torch.arange(4) * 2
        return y * self.table + steps, self.table, torch.zeros(2, 3)


@pytest.mark.parametrize("strict", [False, True])
def test_constants_lifted_shared_made_inside_or_returned_are_right(strict: bool) -> None:
    net, x = Constants().eval(), (torch.randn(2, 4), torch.randn(5))
    check(net, x, program=torch.export.export(net, x, strict=strict))


def test_a_graph_with_its_constants_inside_is_taken() -> None:
    net, x = Constants().eval(), (torch.randn(2, 4), torch.randn(5))
    check(net, x, program=torch.export.export(net, x).module())


def test_nothing_to_compute_is_a_program_too() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, int, None]:
            return x, 3, None

    art = check(Nothing(), (torch.randn(2), torch.randn(3)))
    assert art.partition.graphs == []


def test_scalars_of_rank_zero_work() -> None:
    class Scalars(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x * y.sum() + 1, (x + 1).exp()

    check(Scalars(), (torch.tensor(0.5), torch.randn(3)), (torch.tensor(-1.0), torch.randn(3)))


def test_empty_tensors_stay_in_pytorch_with_the_reason() -> None:
    class Empty(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return x + 1, torch.cat([y[:0] * 2, y + 2])

    art = check(Empty(), (torch.randn(0, 3), torch.randn(2, 3)), refused=None)
    assert {r.reason for r in art.report.refused} >= {
        "x has shape [0, 3]; every dimension must be 1 or more"
    }
    assert len(art.partition.graphs) >= 1


def test_a_sum_of_no_elements_stays_in_pytorch() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[..., 1:1].sum() + x

    check(Nothing(), (torch.rand(1),), refused=None)


def test_six_dimensions_lower_and_seven_say_why_not() -> None:
    class Ranks(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return (x.permute(5, 4, 3, 2, 1, 0) + 1).sum((1, 3)).flatten(1) * y.sum()

    six = torch.randn(2, 1, 3, 2, 2, 2)
    check(Ranks(), (six, torch.randn(2)))
    art = check(Ranks(), (six, torch.randn(1, 1, 1, 1, 1, 1, 2)), refused=None)
    assert "y has rank 7; level 8K allows 6" in {r.reason for r in art.report.refused}


@pytest.mark.parametrize("target", [FLOAT, INTEGER])
@pytest.mark.parametrize("bias", [None, torch.tensor(0.5)])
def test_a_layer_with_one_row_of_weights_gives_no_channels(
    bias: Tensor | None, target: str
) -> None:
    row = torch.linspace(-1, 2, 8)
    net, x = Function(lambda x: nn.functional.linear(x, row, bias)), torch.randn(2, 5, 8)
    check(net, (x,), target=target, places=0.1 if target == INTEGER else 1e-5)


def gated(x: Tensor) -> Tensor:
    return x * x.mean((2, 3), keepdim=True).sigmoid().expand_as(x)


def weighed(x: Tensor) -> Tensor:
    return x.mean(1).unsqueeze(1).repeat(1, 3, 1, 1) + x


@pytest.mark.parametrize("program", [gated, weighed])
def test_what_readers_repeat_anyway_is_not_repeated_for_them(program: Any) -> None:
    art = check(Function(program), image(), target=INTEGER, places=0.1)
    assert "TILE" not in art.report.ops


def test_a_copy_is_kept_from_later_writes() -> None:
    def program(x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        before = mean.repeat(1, 3, 1, 1)
        mean.add_(1)
        return x * before + mean.expand_as(x)

    check(Function(program), image(), image())


def test_a_view_of_a_copy_is_quantized_wherever_the_copy_goes() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return torch.cat([x, x * 2], 1).transpose(2, 1).reshape(1, 2, 8, 16)

    x = torch.randn(8, 1, 16)
    art = compiled(Turned(), (x,), INTEGER, calibration=[(x,)])
    expected = torch.cat([x, x * 2], 1).transpose(2, 1).reshape(1, 2, 8, 16)
    assert float((art.run(x) - expected).abs().max()) < 0.05

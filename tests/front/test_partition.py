"""Mixed programs: nothing, everything, in turns, at random; both sides agree, in linear time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic.rules  # noqa: F401  (fills the registry)
from judges.programs import INTEGER, Function, check, compiled
from judges.timing import seconds
from tosaic.front.program import program_of
from tosaic.lowering.partition import Partitioner
from tosaic.lowering.sides import partition
from tosaic.lowering.target import Target
from tosaic.lowering.walk import Walker
from tosaic.passes.importer import import_model
from tosaic.spec.env import Env
from tosaic.targets.catalog import target_of

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
BOTH = "TOSA-1.0+INT+FP"
odd = torch.special.bessel_j0


def test_a_program_of_which_nothing_lowers_runs() -> None:
    art = check(
        Function(lambda x: odd(odd(x))), (torch.randn(3),),
        refused=["aten.special_bessel_j0.default"] * 2,
    )  # fmt: skip
    assert art.partition.graphs == []


def test_alternation_makes_a_graph_for_each_stretch() -> None:
    def forward(x: Tensor) -> Tensor:
        for _ in range(4):
            x = odd(x * 2 + 1)
        return x

    art = check(Function(forward), (torch.randn(3, 4),), refused=None)
    assert len(art.partition.graphs) == 4


def test_branches_beside_what_pytorch_keeps_are_one_graph() -> None:
    def forward(x: Tensor) -> Tensor:
        kept = odd(x)
        left, right = x + 1, x * 2
        return (left - right).exp() + kept

    art = check(Function(forward), (torch.randn(3, 4),), refused=None)
    assert len(art.partition.graphs) == 1


def test_several_results_of_which_one_is_refused_are_right() -> None:
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        values, indices = nn.functional.max_pool2d(x + 1, 2, return_indices=True)
        return values * 2, indices

    art = check(Function(forward), (torch.randn(1, 2, 4, 4),), refused=None)
    assert "result 1 of this operator has no form in TOSA" in {r.reason for r in art.report.refused}
    assert len(art.partition.graphs) == 2


def test_constants_made_inside_need_no_graph_of_their_own() -> None:
    def forward(x: Tensor) -> tuple[Tensor, ...]:
        grid = torch.arange(4, dtype=torch.float32) * 2 + 1
        ones = torch.ones(4)
        return x * grid + torch.zeros_like(x), odd(ones), odd(torch.zeros_like(x))

    art = check(Function(forward), (torch.randn(3, 4),), refused=None)
    assert [v.name for v in art.graph.inputs] == ["inputs_0"]


def test_several_constants_of_one_call_are_constants_each() -> None:
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        down, right = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="ij")
        kept, _ = torch.unbind(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        return x + torch.stack((right, down)).to(x.dtype)[0], odd(kept)

    art = check(Function(forward), (torch.randn(3, 4),), refused=None)
    assert [op.name for op in art.graph.ops if op.name != "CONST"] == ["ADD"]
    check(Function(forward), (torch.randn(3, 4),), target=INTEGER, places=0.05, refused=None)


def test_a_quantized_value_that_pytorch_reads_is_what_it_stands_for() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(x: Tensor) -> Tensor:
        return odd(net(x)) + torch.relu(odd(x) + net[0](x)[:, :4])

    model = Function(forward)
    model.net = net
    data = [(torch.randn(2, 4),) for _ in range(8)]
    art = compiled(model, data[0], INTEGER, calibration=data)
    assert {r.op for r in art.report.refused} == {"aten.special_bessel_j0.default"}
    for x in data:
        with torch.no_grad():
            assert (art.run(*x) - model(*x)).abs().max() < 0.06


def test_an_activation_that_rides_costs_no_rescale_of_its_own() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.ReLU6())
    data = [(torch.randn(1, 3, 6, 6),) for _ in range(4)]
    for target, scheme in ((INTEGER, "int8"), (INTEGER + "+int16", "a16w8")):
        art = compiled(net, data[0], target, calibration=data, scheme=scheme)
        assert art.report.ops["RESCALE"] == 2
        with torch.no_grad():
            assert (art.run(*data[0]) - net(*data[0])).abs().max() < 0.05


UNARY: list[Callable[[Tensor], Tensor]] = [
    torch.relu, torch.sigmoid, torch.neg, odd, torch.special.bessel_j1, lambda x: x.t().t(),
    lambda x: x.reshape(6, 2).reshape(3, 4), lambda x: x * 0.5 + 1, lambda x: (x > 0).float(),
    lambda x: x.clone().clamp_(-1, 1), lambda x: x.flip(0), lambda x: x - x.mean(1, keepdim=True),
    lambda x: torch.special.i0e(x).add_(x), lambda x: torch.cat(x.split(2, 1)[::-1], 1),
    lambda x: x.cummax(1)[0], lambda x: torch.zeros_like(x) + x.amax(), lambda x: x[:, :1] + x,
    lambda x: x.argmax(1).float().unsqueeze(1) + x, torch.detach,
]  # fmt: skip
BINARY: list[Callable[[Tensor, Tensor], Tensor]] = [
    torch.add, torch.mul, torch.maximum, torch.hypot, lambda x, y: x.clone().sub_(y),
    lambda x, y: torch.where(x > y, x, y), lambda x, y: torch.heaviside(x, y),
]  # fmt: skip


def random_program(seed: int) -> Callable[[Tensor, Tensor], Any]:
    """Calls on values made before, some of them results, some results twice."""
    choose = random.Random(seed)
    steps = [
        (choose.choice(UNARY), (choose.random(),)) if choose.random() < 0.65
        else (choose.choice(BINARY), (choose.random(), choose.random()))
        for _ in range(choose.randint(1, 14))
    ]  # fmt: skip
    picks = [choose.random() for _ in range(choose.randint(1, 4))]

    def forward(x: Tensor, y: Tensor) -> Any:
        values = [x, y]
        for function, places in steps:
            values.append(function(*(values[int(p * len(values))] for p in places)))
        return {str(i): values[int(p * len(values))] for i, p in enumerate(picks)}, values[-1]

    return forward


@pytest.mark.parametrize("seed", range(24))
def test_random_mixtures_equal_pytorch(seed: int) -> None:
    torch.manual_seed(seed)
    example = torch.randn(3, 4), torch.randn(3, 4)
    check(Function(random_program(seed)), example, target=BOTH, refused=None)


@pytest.mark.parametrize("seed", range(12))
def test_a_graph_is_what_its_calls_become_by_themselves(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = torch.randn(3, 4), torch.randn(3, 4)
    files = compiled(Function(random_program(seed)), example, BOTH).files
    monkeypatch.setattr(Partitioner, "_as_tried", Partitioner._again)
    assert compiled(Function(random_program(seed)), example, BOTH).files == files


def test_where_one_graph_takes_all_a_rule_runs_once_for_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = program_of(import_model(Chain(9, False), (torch.randn(2, 3),)))
    called, call = Counter[Any](), Walker.call
    monkeypatch.setattr(Walker, "call", lambda w, n: called.update([n]) or call(w, n))
    (graph,) = partition(program, target_of("TOSA-1.0+FP")).graphs
    assert len(graph.outputs) == 9
    assert set(called.values()) == {1}


class Chain(nn.Module):
    def __init__(self, length: int, mixed: bool) -> None:
        super().__init__()
        self.length, self.mixed = length, mixed

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        outputs = []
        for i in range(self.length):
            x = torch.relu_(x * 0.5) + x
            x = odd(x) if self.mixed and i % 3 == 0 else x
            outputs.append(x)
        return outputs, x


@pytest.mark.parametrize("mixed", [False, True])
def test_time_grows_with_the_length_of_a_program_and_no_faster(mixed: bool) -> None:
    env = Env.parse("TOSA-1.0+FP")

    def spent(length: int) -> float:
        program = program_of(import_model(Chain(length, mixed), (torch.randn(2, 3),)))
        return seconds(lambda: partition(program, Target(str(env), env)))

    spent(20)
    assert spent(240) < 8 * spent(60)  # quadratic would be 16


_OPEN: dict[str, Callable[[Tensor], Any]] = {
    "cat": lambda x: torch.cat([x[x == x], x[x == x] * 2]),
    "std_mean": lambda x: torch.std_mean(x[x == x], (0,), keepdim=True),
    "kron": lambda x: (lambda v: torch.kron(v, v.view(12)))(x[x == x]),
    "softsign": lambda x: nn.functional.softsign(x[x == x]),
    "sum": lambda x: x[x[:, 0] == x[:, 0]] + torch.ones(1, 3),
    "transposed": lambda x: x.view(2, 2, 3)[x[:2, 0] == x[:2, 0]].mT,
}


@pytest.mark.parametrize("name", _OPEN)
@pytest.mark.parametrize("target", ["TOSA-1.0+FP", INTEGER])
def test_sizes_that_depend_on_values_stay_in_pytorch(name: str, target: str) -> None:
    """No pass may compare them: torch raises where it has to decide on such a size."""
    x = torch.rand(4, 3)
    options: Any = {} if target == "TOSA-1.0+FP" else {"calibration": [(x,)]}
    check(
        Function(_OPEN[name]), (x,), (x * 0.5,), target=target, places=0.05, refused=None, **options
    )

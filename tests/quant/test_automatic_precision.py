"""scheme="auto": as few 16-bit calls as a goal needs, or the most accurate form in a budget."""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.files import flatbuffer
from tosaic.lowering.target import Compiled, Estimate
from tosaic.pipeline import auto_forms, driver
from tosaic.pipeline.allocation import Allocation, Widths
from tosaic.pipeline.sensitivity import Rounding, Sensitivities

WIDE = "TOSA-1.0+INT+int16"


class Net(nn.Module):
    """A SiLU network whose channels have uneven gains, so that 8 bits lose where they are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.third, self.last = nn.Conv2d(16, 16, 1), nn.Linear(16, 5)
        self.first.weight.data *= torch.logspace(-1, 1, 16).reshape(-1, 1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.silu(self.first(x))
        y = nn.functional.silu(self.second(y))
        return self.last(torch.relu(self.third(y)).mean((2, 3)))


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def data() -> list[Tensor]:
    return list(torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(1)).split(1))


def _decibels(made, net, inputs) -> float:
    real = torch.cat([net(x).detach() for x in inputs])
    got = torch.cat([made.run(x) for x in inputs])
    return float(10 * torch.log10(real.square().sum() / (got - real).square().sum()))


def _compile(net, data, goal, target=WIDE, **more):
    return tosaic.compile(
        net, (data[0],), target=target, scheme="auto", calibration=data, accuracy=goal, **more
    )


def test_a_goal_between_int8_and_int16_takes_some_calls_and_reaches_it(net, data) -> None:
    plain = tosaic.compile(net, (data[0],), target=WIDE, scheme="int8", calibration=data)
    wide = tosaic.compile(net, (data[0],), target=WIDE, scheme="a16w8", calibration=data)
    held = data[3::4]
    low, high = (_decibels(made, net, held) for made in (plain, wide))
    goal = (2 * low + high) / 3
    made = _compile(net, data, tosaic.Goal(sqnr=goal))
    told = made.report.precision
    chosen = {call.node: call.scheme for call in told.calls if call.scheme != "int8"}
    assert told.reached
    assert chosen
    assert any(call.scheme != "a16w8" for call in told.calls)
    assert _decibels(made, net, held) >= goal
    schemes = {call.node: call.scheme for call in made.report.quantization.calls}
    assert all(schemes[name] == scheme for name, scheme in chosen.items() if name in schemes)
    assert "16 bits" in str(made.report)


def test_a_goal_that_int8_reaches_is_int8(net, data) -> None:
    made = _compile(net, data, tosaic.Goal(sqnr=5))
    assert set(made.report.quantization.schemes) == {"int8"}


def test_a_goal_out_of_reach_says_so_with_the_bound(net, data) -> None:
    told = _compile(net, data, tosaic.Goal(sqnr=300)).report.precision
    most = max(point.sqnr for point in told.points)
    assert not told.reached
    assert f"out of reach: {most:.1f} dB" in told.sentence


def test_a_metric_is_kept_within_its_drop(net, data) -> None:
    real = [net(x).detach() for x in data]

    def score(model) -> float:
        off = [float((model(x) - r).abs().max()) for x, r in zip(data, real, strict=True)]
        return -max(off)

    plain = tosaic.compile(net, (data[0],), target=WIDE, scheme="int8", calibration=data)
    lows = score(plain.run)
    made = _compile(net, data, tosaic.Goal(metric=score, drop=-lows / 3))
    assert score(made.run) >= lows / 3
    assert made.report.precision.reached


def test_cycles_are_a_budget(net, data) -> None:
    options = {"target": "ethos-u55-128", "calibration": data}
    ends = [
        tosaic.compile(net, (data[0],), scheme=s, **options).report.delegates[0].estimate.cycles
        for s in ("int8", "a16w8")
    ]
    budget = sum(ends) // 2
    made = _compile(net, data, tosaic.Goal(cycles=budget), target="ethos-u55-128")
    told = made.report.precision
    assert made.report.delegates[0].estimate.cycles <= budget
    assert told.points[-1].sqnr >= told.points[0].sqnr
    assert told.points[0].name == "int8"


def test_time_that_is_over_gives_the_best_found(net, data) -> None:
    told = _compile(net, data, tosaic.Goal(sqnr=50), budget_s=0.0).report.precision
    assert told.reached
    assert "time was over" in told.sentence


class Silent(Compiled):
    """A device whose compiler estimates nothing."""


class Mixed(Compiled):
    """A device on which graphs that mix 8 and 16 bits take longest."""

    @property
    def estimate(self) -> Estimate:
        kinds = {op.ins[0].dtype.name for op in self.graph.ops if op.name == "CONV2D"}
        return Estimate("a made-up compiler", cycles=1000 if len(kinds) > 1 else 100, scratch=1)


@pytest.fixture
def device(request, monkeypatch) -> str:
    def emit(graph, given=None, mends=True) -> Compiled:
        return request.param(graph, flatbuffer.write(graph))

    made_up = replace(driver.target_of(WIDE, {}), name="made-up", emit=emit)
    for module in (driver, auto_forms):
        monkeypatch.setattr(module, "target_of", lambda name, options: made_up)
    return "made-up"


class Wide(Compiled):
    """A device on which 8 bits take longest."""

    @property
    def estimate(self) -> Estimate:
        bytes_ = sum(op.ins[0].dtype.bits == 8 for op in self.graph.ops if op.name == "CONV2D")
        return Estimate("a made-up compiler", cycles=100 + 10 * bytes_, scratch=1)


@pytest.mark.parametrize("device", [Wide], indirect=True)
def test_16_bits_are_taken_where_they_cost_less_than_8(net, data, device) -> None:
    for goal in (tosaic.Goal(sqnr=5), tosaic.Goal(cycles=105)):
        told = _compile(net, data, goal, target=device).report.precision
        assert told.reached
        assert told.points[-1].cost == 100
    told = _compile(net, data, tosaic.Goal(cycles=99), target=device).report.precision
    assert not told.reached
    assert "out of reach: a16w8 is beyond it" in told.sentence


@pytest.mark.parametrize("device", [Silent], indirect=True)
def test_a_device_without_estimates_is_measured_by_work(net, data, device) -> None:
    told = _compile(net, data, tosaic.Goal(sqnr=48), target=device).report.precision
    chosen = [call for call in told.calls if call.scheme != "int8"]
    assert told.reached
    assert told.unit == "work"
    assert chosen
    assert any(call.scheme != "a16w8" for call in told.calls)
    costs = {point.name: point.cost for point in told.points}
    assert costs["int8"] < costs["chosen"] < costs["a16w8"]
    with pytest.raises(tosaic.InvalidInput, match="made-up has no estimate"):
        _compile(net, data, tosaic.Goal(cycles=1), target=device)


@pytest.mark.parametrize("device", [Mixed], indirect=True)
def test_16_bits_throughout_are_taken_where_they_cost_less_than_a_mixture(
    net, data, device
) -> None:
    told = _compile(net, data, tosaic.Goal(sqnr=48), target=device).report.precision
    assert {call.scheme for call in told.calls} == {"a16w8"}
    assert "which cost less than some of them" in told.sentence
    assert told.points[-1].cost == 100
    assert len(told.points) > 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "TOSA-1.0+INT"}, "no int16"),
        ({"calibration": None}, "calibration"),
        ({"accuracy": "cycles"}, "estimate"),
        ({"scheme": "int8", "accuracy": "sqnr"}, "scheme"),
    ],
)
def test_what_does_not_go_is_said(net, data, options, said) -> None:
    goals = {"cycles": tosaic.Goal(cycles=1), "sqnr": tosaic.Goal(sqnr=1)}
    given = {"target": WIDE, "scheme": "auto", "calibration": data, "accuracy": None} | options
    given["accuracy"] = goals.get(given["accuracy"])
    with pytest.raises(tosaic.InvalidInput, match=said):
        tosaic.compile(net, (data[0],), **given)


def test_a_goal_is_one_thing() -> None:
    with pytest.raises(tosaic.InvalidInput, match="sqnr and cycles"):
        tosaic.Goal(sqnr=30, cycles=5)
    with pytest.raises(tosaic.InvalidInput, match="drop"):
        tosaic.Goal(drop=1)


def _every(*calls: str) -> Widths:
    return Widths(frozenset(calls), frozenset(calls))


def test_the_solver_takes_the_cheapest_calls_that_leave_little_enough() -> None:
    found = Sensitivities(
        (
            Rounding(None, ("a",), 8.0),
            Rounding("a", ("b",), 4.0),
            Rounding("b", ("c", "d"), 2.0, (1.0, 1.0)),
            Rounding("d", (), 1.0),
        ),
        (("c", "d"),),
    )
    solver = Allocation(found, {"a": 1.0, "b": 1.0, "c": 10.0, "d": 10.0})
    assert solver.cheapest(15.0) == Widths()
    assert solver.cheapest(7.0) == _every("a")
    assert solver.cheapest(3.0) == _every("a", "b")
    assert solver.cheapest(0.0) == _every("a", "b", "c", "d")


def test_16_bits_that_cost_less_are_taken_whatever_the_error() -> None:
    roundings = Rounding(None, ("a",), 1.0), Rounding("a", ("b",), 1.0), Rounding("b", (), 1.0)
    solver = Allocation(Sensitivities(roundings, ()), {"a": -5.0, "b": 3.0})
    assert solver.cheapest(3.0) == _every("a")
    assert solver.cheapest(2.0) == _every("a")
    assert solver.cheapest(0.5) == _every("a", "b")


def _small_program(seed: int) -> tuple[Sensitivities, dict[str, float]]:
    """A chain with a branch, layers and other calls, with drawn errors and costs."""
    draw = random.Random(seed)
    calls = "abcde"
    reads = {"a": ("b", "d"), "b": ("c",), "c": ("d",), "d": ("e",), "e": ()}
    roundings = [Rounding(None, ("a",), draw.uniform(0, 4), size=draw.randint(1, 9))]
    for call, readers in reads.items():
        parts = tuple(draw.uniform(0, 2) for _ in readers) if len(readers) > 1 else ()
        error = sum(parts) or draw.uniform(0, 4)
        roundings.append(Rounding(call, readers, error, parts, draw.randint(1, 9)))
    found = Sensitivities(tuple(roundings), (), frozenset("abd"), frozenset("ab"))
    return found, {call: draw.uniform(0, 20) for call in calls}


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_of_all_is_much_cheaper_than_the_solvers(seed) -> None:
    """Beside all 2^(4 + 4) choices of a small program; one call's cost is what may be left."""
    found, extra = _small_program(seed)
    solver = Allocation(found, extra)
    most = 0.4 * solver.error(Widths())
    taken = solver.cheapest(most)
    assert solver.error(taken) <= most
    sets = [frozenset(s) for n in range(6) for s in itertools.combinations("abcde", n)]
    costs = [
        solver.cost(each)
        for r, g in itertools.product(sets, sets)
        if all((c in r) == (c in g) for c in "ce") and solver.error(each := Widths(r, g)) <= most
    ]
    assert solver.cost(taken) <= min(costs) + max(extra.values())


def test_a_looser_error_never_costs_more() -> None:
    for seed in range(6):
        found, extra = _small_program(seed)
        solver = Allocation(found, extra)
        total = solver.error(Widths())
        costs = [solver.cost(solver.cheapest(part / 8 * total)) for part in range(9)]
        assert costs == sorted(costs, reverse=True)

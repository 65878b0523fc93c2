"""Graphs that are defined for all inputs: saturated, broken and extreme ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tosaic
from judges.definedness import assert_sound, samples
from tosaic.errors import Unpredictable
from tosaic.ir.int_intervals import Intervals, analysed
from tosaic.lowering.builder import Lowering
from tosaic.lowering.samples import range_quant
from tosaic.pipeline import definedness
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.definedness import DEFINED, extreme_inputs
from tosaic.rules.layernorm import layer_norm
from tosaic.rules.softmax import log_softmax, softmax
from tosaic.spec.dtypes import I8, I16, DType
from tosaic.targets.catalog import target_of

pytestmark = pytest.mark.filterwarnings("ignore:a tensor that is quantized has NaN")

WIDE = "TOSA-1.0+INT+int16"


class Dead(nn.Module):
    """A branch that calibration never sees alive: the step of what it gives is tiny."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.act = nn.PReLU(8, init=1e-4)
        self.head = nn.Conv2d(8, 4, 1)
        nn.init.constant_(self.conv.bias, -20.0)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.conv(x)))


class Landmarks(nn.Module):
    """Depthwise convolutions with PReLU and hard-swish, residual sums and resized maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.depthwise = nn.Conv2d(8, 8, 5, 1, 2, groups=8)
        self.pointwise = nn.Conv2d(8, 8, 1)
        self.act, self.last = nn.PReLU(8), nn.PReLU(8)
        self.up, self.head = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.act(self.stem(x))
        y = self.last(y + self.pointwise(self.depthwise(y)))
        y = F.hardswish(self.up(F.interpolate(y, scale_factor=2.0, mode="bilinear")))
        return self.head(y), torch.sigmoid(y.mean((2, 3)))


def _compiled(net: nn.Module, example: Tensor, target: str, scheme: str, **more: Any) -> Artifact:
    data = [(example,)]
    return tosaic.compile(
        net.eval(), (example,), target=target, scheme=scheme, calibration=data, **more
    )


def _seeded(make: type[nn.Module], shape: tuple[int, ...], size: float) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return make(), torch.randn(shape) * size


def _broken(x: Tensor) -> list[Tensor]:
    """What a sensor gives that clips, saturates or breaks."""
    most = x.abs().max()
    board = torch.arange(x.numel()).reshape(x.shape) % 2 * 2.0 - 1.0
    hot = torch.zeros_like(x)
    hot[..., 0, 0] = 1e4
    nothing = torch.full_like(x, math.nan)
    ends = [torch.full_like(x, end) for end in (math.inf, -math.inf)]
    return [10 * x, -10 * x, board * 10 * most, hot, -hot, nothing, *ends]


@pytest.mark.parametrize("target", [WIDE, "ethos-u55-128"])
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_branch_that_calibration_saw_dead_is_defined_for_all_inputs(
    target: str, scheme: str
) -> None:
    net, x = _seeded(Dead, (1, 8, 6, 6), 0.05)
    made = _compiled(net, x, target, scheme)
    assert not made.partition.refused
    assert [p.checks[0] for p in made.partition.pieces if p.graph] == [DEFINED]
    for given in _broken(x):
        made.run(given, engine="tosa")


class Mixed(nn.Module):
    """A tiny input beside a large constant: in one scale the input is 2^15 times as coarse."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.lerp(x, torch.tensor([[0.5], [-0.3], [1.2]]), 0.15)


@pytest.mark.parametrize("target", [WIDE, "ethos-u65-256"])
def test_a_tiny_operand_beside_a_large_one_is_defined_for_all_inputs(target: str) -> None:
    x = torch.linspace(0.5e-6, 1e-6, 18).reshape(3, 2, 3, 1)
    made = _compiled(Mixed(), x, target, "a16w8")
    assert not made.partition.refused
    assert {p.checks[0] for p in made.partition.pieces if p.graph} == {DEFINED}
    for given in (10 * x, -10 * x, x * math.inf):
        made.run(given, engine="tosa")


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_network_of_depthwise_layers_is_defined_for_broken_sensors(scheme: str) -> None:
    net, x = _seeded(Landmarks, (1, 3, 16, 16), 1.0)
    made = _compiled(net, x, WIDE, scheme)
    assert f"Graph 0, {DEFINED}." in str(made.report)
    for given in _broken(x):
        made.run(given)
    for graph in made.partition.graphs:
        found = analysed(graph)
        assert assert_sound(graph, {}, extreme_inputs(graph), found) == 10


def test_a_graph_with_a_counterexample_leaves_the_call_to_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lowering, "_stays_below", lambda self, x, given, most: True)
    net, x = _seeded(Dead, (1, 8, 6, 6), 0.005)
    made = _compiled(net, x, WIDE, "a16w8")
    reason = "RESCALE: a result lies outside int32 before it narrows for some inputs"
    assert any(reason in str(refusal) for refusal in made.partition.refused)
    assert made.partition.graphs
    for given in _broken(x):
        made.run(given)


def test_what_is_neither_proved_nor_refuted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lowering, "_stays_below", lambda self, x, given, most: True)
    monkeypatch.setattr(definedness, "extreme_inputs", lambda graph: ())
    net, x = _seeded(Dead, (1, 8, 6, 6), 0.005)
    made = _compiled(net, x, WIDE, "a16w8")
    (sentence,) = made.partition.pieces[1].checks
    assert sentence.startswith("not proved to be defined for all inputs: RESCALE (aten.")
    assert "a value can be too large for its shift" in sentence


def test_a_graph_says_which_indices_it_is_not_defined_for() -> None:
    net = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 3))
    example = torch.tensor([[1, 2, 6]])
    made = tosaic.compile(
        net.eval(), (example,), target=WIDE, scheme="int8", calibration=[(example,)]
    )
    sentences = [s for p in made.partition.pieces for s in p.checks]
    assert any("defined for all inputs but indices" in s and "of 7 rows" in s for s in sentences)


def test_an_index_that_is_given_is_no_counterexample_for_another_operator() -> None:
    """An undecided gather behind an embedding, whose own index any extreme input takes too far."""

    class Picks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)

        def forward(self, ids: Tensor) -> Tensor:
            y = self.table(ids)
            # Among 0 and 1 one is larger or neither is: the sum is 0 or 1, by intervals up to 2.
            up, down = (y[..., :1] > y[..., 1:2]).int(), (y[..., :1] < y[..., 1:2]).int()
            return torch.gather(y[..., :2], -1, (up + down).long())

    example = torch.tensor([[1, 2, 6]])
    made = tosaic.compile(
        Picks().eval(), (example,), target=WIDE, scheme="int8", calibration=[(example,)]
    )
    assert not made.partition.refused
    sentences = [s for p in made.partition.pieces for s in p.checks]
    assert any("not proved" in s and "of 2 rows" in s for s in sentences)


def test_a_float_graph_has_nothing_to_prove() -> None:
    net, x = _seeded(Landmarks, (1, 3, 16, 16), 1.0)
    made = tosaic.compile(net.eval(), (x,), target="TOSA-1.0+FP")
    sentences = [s for p in made.partition.pieces for s in p.checks]
    assert not any("defined" in sentence for sentence in sentences)


def test_samples_of_rules_are_defined_and_within_their_bounds() -> None:
    """Some of them; ``python -m judges.definedness`` tries all on any target."""
    given = 0
    for name, kind, graph in samples(target_of(WIDE), every=61):
        found = analysed(graph)
        assert_sound(graph, {}, extreme_inputs(graph), found)
        is_given = all(definedness._reads_integers(f.op) for f in found.findings.values())
        assert is_given, f"{name} {kind}: {next(iter(found.findings.values()))}"
        given += bool(found.findings)
    assert given < 8


def _rows(kind: DType, length: int) -> list[np.ndarray]:
    """Rows that are all alike, almost alike, at both ends, or have one element elsewhere."""
    low, high = kind.range
    ends = [low, low + 1, -1, 0, 1, high - 1, high]
    rows = []
    for a in ends:
        for b in ends:
            one = np.full(length, a)
            one[0] = b
            half = np.where(np.arange(length) % 2, a, b)
            rows += [one, half]
    random = np.random.default_rng(3)
    rows += [random.integers(low, high, length, endpoint=True) for _ in range(20)]
    return [np.stack(rows).astype(kind.array)]


@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("length", [1, 3, 5, 64, 100])
@pytest.mark.parametrize("eps", [0.0, 1e-5, 3.0])
def test_what_norms_say_of_their_rows_holds_for_extreme_rows(
    kind: DType, length: int, eps: float
) -> None:
    (rows,) = _rows(kind, length)
    for scale in (0.01, 3.0):
        b = Lowering(WIDE)
        quant = range_quant(torch.tensor([-scale, scale * 0.7]), kind)
        x = b.with_quant(b.input(kind, rows.shape, "x"), quant)
        b.wanted = (range_quant(torch.tensor([-4.0, 4.0]), kind), kind)
        b.output(b.requantize(layer_norm(b, x, [length], None, None, eps), *b.wanted))
        found = analysed(b.graph)
        assert not found.findings
        assert assert_sound(b.graph, {}, [[rows]], found) == 1


@pytest.mark.parametrize("function", [softmax, log_softmax])
@pytest.mark.parametrize("kind", [I8, I16], ids=str)
@pytest.mark.parametrize("length", [1, 3, 300])
def test_what_softmax_says_of_its_sums_holds_for_extreme_rows(
    function: Any, kind: DType, length: int
) -> None:
    (rows,) = _rows(kind, length)
    for scale in (1e-4, 1.0, 200.0):
        b = Lowering(WIDE)
        quant = range_quant(torch.tensor([-scale, scale]), kind)
        x = b.with_quant(b.input(kind, rows.shape, "x"), quant)
        b.wanted = (range_quant(torch.tensor([-1.0, 1.0]), kind), kind)
        b.output(b.requantize(function(b, x, 1), *b.wanted))
        found = analysed(b.graph)
        assert not found.findings
        assert assert_sound(b.graph, {}, [[rows]], found) == 1


def test_clamps_that_a_proof_needs_stay() -> None:
    """The network of a dead branch, without the limits that were put in: a finding."""
    net, x = _seeded(Dead, (1, 8, 6, 6), 0.005)
    made = _compiled(net, x, WIDE, "a16w8")
    (graph,) = made.partition.graphs
    assert not analysed(graph).findings
    for op in [op for op in graph.ops if op.name in ("MAXIMUM", "MINIMUM")]:
        for reader in graph.ops:
            reader.ins = [op.ins[0] if v is op.outs[0] else v for v in reader.ins]
    assert [f.op.name for f in analysed(graph).findings.values()]


@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
@pytest.mark.parametrize("io", [None, "int8"])
def test_nan_is_the_zero_point_and_infinities_saturate_on_every_engine(
    scheme: str, io: str | None, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    net, data = nn.Conv1d(1, 2, 1).eval(), [(torch.rand(1, 1, 6) * 3 - 1,) for _ in range(4)]
    made = tosaic.compile(
        net, data[0], target="ethos-u85-256", scheme=scheme, calibration=data,
        **({} if io is None else {"io": io}),
    )  # fmt: skip
    broken = torch.tensor([[[math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5]]])
    plain = torch.tensor([[[0.0, 1e6, -1e6, 1e6, -1e6, 0.5]]])
    expected = made.run(plain)
    assert len(expected.unique()) > 4
    for engine in ("npu", "tosa"):
        assert torch.equal(made.run(broken, engine=engine), expected)
    made.save(tmp_path / "net.pte")
    runner = tosaic.load(tmp_path / "net.pte")
    if io is None:
        assert torch.equal(runner.run(broken), expected)
    else:
        (port,) = made.boundary.inputs
        assert port.quantize(broken)[0, 0, 0] == port.zero_point
        assert torch.equal(port.quantize(broken), port.quantize(plain))


def test_a_graph_that_takes_floats_makes_the_same_of_what_is_no_number() -> None:
    torch.manual_seed(3)
    net, data = nn.Conv1d(1, 2, 1).eval(), [(torch.rand(1, 1, 6) * 3 - 1,) for _ in range(4)]
    made = tosaic.compile(net, data[0], target="TOSA-1.0+INT+FP", scheme="int8", calibration=data)
    assert "CAST" in [op.name for graph in made.partition.graphs for op in graph.ops]
    broken = torch.tensor([[[math.nan, math.inf, -math.inf, 1e30, -1e30, 0.5]]])
    plain = torch.tensor([[[0.0, 1e6, -1e6, 1e6, -1e6, 0.5]]])
    assert torch.equal(made.run(broken), made.run(plain))


def test_a_rough_analysis_is_no_tighter_than_an_exact_one() -> None:
    net, x = _seeded(Landmarks, (1, 3, 16, 16), 1.0)
    made = _compiled(net, x, WIDE, "int8")
    (graph,) = made.partition.graphs
    rough, exact = Intervals({}, True), Intervals()
    for op in graph.ops:
        for value in op.outs:
            wide, narrow = rough.of(value).ends, exact.of(value).ends
            assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]


def test_every_operator_that_is_not_proved_is_named_with_its_line() -> None:
    """A float beyond int32 becomes the last int32, of which a sum or a difference overflows."""

    class Whole(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x.int() + 3, x.int() - 5

    x = torch.rand(4)
    made = tosaic.compile(Whole(), (x,), target="TOSA-1.0+FP")
    (sentence,) = (s for p in made.partition.pieces for s in p.checks if "not proved" in s)
    for operator in ("ADD (aten.add.Tensor, ", "SUB (aten.sub.Tensor, "):
        with_line = operator + Path(__file__).name
        assert with_line in sentence.replace(str(Path(__file__).parent) + "/", "")
    with pytest.raises(Unpredictable, match="overflows"):
        made.run(torch.full((4,), 1e15))

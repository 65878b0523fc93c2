"""The report, explain and compare tell a user what happened, with the user's own lines."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.errors import InvalidInput
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.compare import Comparison


class Mixed(nn.Module):
    """A network with one operator in the middle that has no form in TOSA."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)
        self.norm = nn.BatchNorm2d(8)
        with torch.no_grad():
            self.norm.running_var.fill_(0.3)  # type: ignore[union-attr]

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = torch.special.bessel_j0(x)  # the line that refusals must name
        result: Tensor = self.second(x)
        return result


@pytest.fixture(scope="module")
def mixed() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    return Mixed().eval(), torch.randn(1, 3, 12, 12)


def compiled(model: nn.Module, x: Tensor, target: str = "TOSA-1.0+INT") -> Artifact:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return tosaic.compile(model, (x,), target=target)


def test_a_report_counts_operators_and_multiplications(mixed: tuple[nn.Module, Tensor]) -> None:
    report = compiled(*mixed).report
    assert report.ops["CONV2D"] == 2
    assert report.macs == 8 * 27 * 100 + 4 * 72 * 64
    assert [len(d.inputs) for d in report.delegates] == [1, 1]
    assert report.delegates[0].inputs[0].shape == (1, 3, 12, 12)
    assert report.delegates[0].inputs[0].quant is not None


def test_a_report_prints_the_refusal_with_the_users_line(mixed: tuple[nn.Module, Tensor]) -> None:
    report = compiled(*mixed).report
    (refusal,) = report.refused
    assert refusal.op == "aten.special_bessel_j0.default"
    assert "there is no rule" in refusal.reason
    assert __file__ in refusal.where
    text = str(report)
    assert "# the line that refusals must name" in text.replace("\n", " ") or "bessel_j0(x)" in text
    assert "CONV2D" in text
    assert "\x1b" not in text


def test_a_call_that_cannot_be_quantized_is_refused_for_that_reason() -> None:
    """And not because it is in float then, which is what comes of it."""

    class Whole(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.digamma(x * 2)

    data = [(torch.randn(2, 9),) for _ in range(4)]
    art = tosaic.compile(Whole(), data[0], target="ethos-u55-128", calibration=data, scheme="a16w8")
    (refusal,) = art.report.refused
    assert refusal.reason.endswith("steps off this function")


def test_a_line_of_source_is_shown_as_it_is_written() -> None:
    """Rich would take an index for a colour, or fail for one that ends nothing."""

    class Picks(nn.Module):
        def forward(self, x: Tensor, red: Tensor) -> tuple[Tensor, Tensor]:
            return torch.special.bessel_j0(x)[red], x + 1  # [/red]

    data = [(torch.randn(9), torch.tensor([3, 1]))]
    told = tosaic.explain(Picks(), data[0])
    text = "".join(str(told).split())
    assert "returntorch.special.bessel_j0(x)[red],x+1#[/red]" in text


def test_explain_says_of_every_call_where_it_runs(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    told = tosaic.explain(model, (x,))
    places = {call.op: call.compiled for call in told.calls}
    assert places == {
        "aten.conv2d.default": True,
        "aten.relu.default": True,
        "aten.special_bessel_j0.default": False,
    }
    assert told.graphs == 2
    assert told.refused == [
        type(told.refused[0])(r.op, r.reason, r.where) for r in compiled(model, x).report.refused
    ]
    assert "3 of 4 calls" in str(told)


def test_explain_in_float_counts_the_batch_norm(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    told = tosaic.explain(model, (x,), target="TOSA-1.0+FP")
    assert "aten.batch_norm.default" in {call.op for call in told.calls}


def test_compare_finds_the_layer_that_a_short_range_cuts(mixed: tuple[nn.Module, Tensor]) -> None:
    """Calibrated on inputs that are much too small, the first layers saturate."""
    model, x = mixed
    with pytest.warns(UserWarning, match="one of them is not like what will come"):
        short = tosaic.compile(model, (x,), calibration=[x * 0.05])
    fair = tosaic.compile(model, (x,), calibration=[x])
    bad, good = (tosaic.compare(model, art, (x,)) for art in (short, fair))
    assert good.layers[0].name == "x"
    assert good.layers[0].saturation < 0.01 < 0.5 < bad.layers[0].saturation
    assert good.outputs[0].sqnr > bad.outputs[0].sqnr + 10
    assert "dB" in str(bad)


def test_compare_agrees_with_the_numbers_taken_by_hand(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    art = tosaic.compile(model, (x,), calibration=[x])
    real, ours = model(x).detach().double(), art.run(x).double()
    output = tosaic.compare(model, art, (x,)).outputs[0]
    ratio = real.square().sum() / (real - ours).square().sum()
    assert output.sqnr == pytest.approx(10 * math.log10(ratio), rel=1e-4)
    assert output.max_error == pytest.approx(float((real - ours).abs().max()), rel=1e-4)


def test_compare_of_a_float_artifact_is_nearly_exact(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    told = tosaic.compare(model, compiled(model, x, "TOSA-1.0+FP"), [(x,), (x * 2,)])
    assert {layer.op for layer in told.layers} >= {"aten.conv2d.default", "aten.relu.default"}
    assert all(layer.sqnr > 100 for layer in told.layers)


class Difference(nn.Module):
    """Two values that are nearly equal: what is left of them has the noise of both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        with torch.no_grad():
            self.b.weight.copy_(self.a.weight + 0.03 * torch.randn(16, 16))
            self.b.bias.copy_(self.a.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x.tanh()
        return self.head(self.a(x).tanh() - self.b(x).tanh())


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_compare_names_the_fall_and_the_calls_that_need_16_bits_together() -> None:
    torch.manual_seed(0)
    net, data = Difference().eval(), [(torch.randn(4, 16),) for _ in range(8)]

    def compared(*calls: str) -> Comparison:
        schemes = tosaic.Schemes("int8", nodes=dict.fromkeys(calls, "a16w8"))
        art = tosaic.compile(
            net, data[0], calibration=data, scheme=schemes, target="TOSA-1.0+INT+int16"
        )
        return tosaic.compare(net, art, data)

    plain = compared()
    assert plain.fall is not None
    assert plain.fall.call == "sub"
    group = plain.together(plain.fall)
    assert {"linear", "linear_1", "sub", "linear_2"} <= {*group}
    assert "The ratio falls at sub" in str(plain)
    assert "sub alone with 16 bits gains little" in " ".join(str(plain).split())
    alone, together = (compared(*calls).outputs[0].sqnr for calls in (("sub",), group))
    assert alone < plain.outputs[0].sqnr + 1
    assert together > plain.outputs[0].sqnr + 6


def test_compare_without_inputs_is_refused(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    with pytest.raises(InvalidInput, match="there is no input: give at least one"):
        tosaic.compare(model, compiled(model, x), [])


def test_quantize_gives_a_program_that_compile_takes(mixed: tuple[nn.Module, Tensor]) -> None:
    model, x = mixed
    program = tosaic.quantize(model, (x,), calibration=[x])
    art = tosaic.compile(program, (x,))
    assert art.report.ops["CONV2D"] == 2
    assert torch.allclose(art.run(x), program(x), atol=0.1)

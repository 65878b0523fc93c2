"""The quantizer: programs that lower whole, stay close to float, and agree with Arm's model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from judges.reference import run_reference
from tosaic.errors import InvalidInput
from tosaic.front import torchapi
from tosaic.front.calls import fuses_activation
from tosaic.passes.engine import run
from tosaic.passes.fold_batch_norm import fold_batch_norm
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.driver import compile_model
from tosaic.quant import TosaicQuantizer, quantize
from tosaic.quant.observer import RangeObserver
from tosaic.quant.statistics import BINS

QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


class Net(nn.Module):
    """Layers with a forward function beside them."""

    def __init__(self, forward: Callable[..., Any], *layers: nn.Module, **buffers: Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.call = forward
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(self, *inputs: Tensor) -> Any:
        return self.call(self, *inputs)


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def norm(channels: int) -> nn.BatchNorm2d:
    """A batch norm with statistics that are not those of a new one."""
    layer = nn.BatchNorm2d(channels)
    layer.running_mean = data(channels, seed=1) * 0.3
    layer.running_var = data(channels, seed=2).abs() + 0.5
    layer.weight.data = data(channels, seed=3).abs() + 0.5
    layer.bias.data = data(channels, seed=4) * 0.3
    return layer


def conv(inputs: int, outputs: int, **options: Any) -> nn.Conv2d:
    torch.manual_seed(inputs * 100 + outputs)
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def linear(inputs: int, outputs: int) -> nn.Linear:
    torch.manual_seed(inputs)
    return nn.Linear(inputs, outputs)


def sequence(net: Net, x: Tensor) -> Tensor:
    for layer in net.layers:
        x = layer(x)
    return x


NETWORKS: dict[str, Net] = {
    "conv_bn_relu": Net(sequence, conv(3, 8, bias=False), norm(8), nn.ReLU()),
    "conv_bn_relu6": Net(sequence, conv(3, 8), norm(8), nn.ReLU6(), conv(8, 6)),
    "depthwise": Net(sequence, conv(3, 8), nn.ReLU(), conv(8, 8, groups=8), norm(8), nn.ReLU6()),
    "residual": Net(
        lambda net, x: F.relu(x + net.layers[1](F.relu(net.layers[0](x)))), conv(3, 8), conv(8, 3)
    ),
    "linear": Net(
        sequence, conv(3, 4), nn.Flatten(), linear(4 * 8 * 10, 32), nn.ReLU(), linear(32, 40)
    ),
    "linear_of_rows": Net(sequence, linear(10, 12), nn.ReLU(), linear(12, 7)),
    "cat": Net(
        lambda net, x: net.layers[2](torch.cat([net.layers[0](x), x, net.layers[1](x) * x], 1)),
        conv(3, 8),
        conv(3, 3),
        conv(14, 5),
    ),
    "sigmoid": Net(lambda net, x: torch.sigmoid(net.layers[0](x)) * x, conv(3, 3)),
    "max_pool": Net(sequence, conv(3, 8), nn.ReLU(), nn.MaxPool2d(2), conv(8, 4)),
    "dropout": Net(sequence, conv(3, 8), nn.Dropout(0.3), nn.ReLU(), conv(8, 4)),
    "buffer": Net(lambda net, x: net.layers[0](x + net.offset), conv(3, 4), offset=data(3, 1, 1)),
    "two_readers": Net(lambda net, x: (y := net.layers[0](x)) + F.relu(y), conv(3, 8)),
    "mean": Net(lambda net, x: net.layers[0](x).mean([2, 3]), conv(3, 40)),
}
INPUT = (1, 3, 8, 10)


def compiled(
    net: nn.Module, *examples: Tensor, scheme: str = "int8", count: int = 8
) -> tuple[fx.GraphModule, Artifact]:
    """Calibrated on other numbers than the examples, and lowered."""
    calibration = [tuple(data(*x.shape, seed=s) for x in examples) for s in range(10, 10 + count)]
    program = quantize(net.eval(), examples, scheme=scheme, calibration=calibration)
    target = "TOSA-1.0+INT" if scheme == "int8" else "TOSA-1.0+INT+int16"
    return program, compile_model(program, examples, target, None, None)


def sqnr(real: Tensor, approximate: Tensor) -> float:
    real = real.detach().double()
    error = real - approximate.detach().double()
    return 10 * math.log10(float(real.square().sum() / error.square().sum()))


def integers(art: Artifact, *inputs: Tensor) -> list[np.ndarray]:
    """Inputs as the graph takes them."""
    found = []
    for x, value in zip(inputs, art.graph.inputs, strict=True):
        assert value.quant is not None
        levels = x.double().numpy() / value.quant.scale + value.quant.zero_point
        found.append(np.clip(np.rint(levels), *value.dtype.range).astype(value.dtype.array))
    return found


def targets(program: fx.GraphModule) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


def parameters(program: fx.GraphModule) -> set[tuple[float, int]]:
    return {
        tuple(n.args[1:3]) for n in program.graph.nodes if str(n.target) in (QUANTIZE, DEQUANTIZE)
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_an_int8_program_lowers_whole_and_is_close_to_float(name: str) -> None:
    net, x = NETWORKS[name], data(*INPUT, seed=99)
    _, art = compiled(net, data(*INPUT))
    assert art.report.refused == []
    result = art.run(x)
    assert sqnr(net(x), result) > 25
    both = torch.cat([result, art.run(data(*INPUT, seed=98))])
    assert len(both.unique()) > 35


@pytest.mark.parametrize("name", NETWORKS)
def test_an_int8_program_gives_what_the_reference_model_gives(name: str) -> None:
    _, art = compiled(NETWORKS[name], data(*INPUT))
    given = integers(art, data(*INPUT, seed=99))
    (theirs,) = run_reference(art.bytes, given)
    output = art.graph.outputs[0].quant
    assert output is not None
    real = (torch.from_numpy(theirs).float() - output.zero_point) * output.scale
    assert torch.allclose(art.run(data(*INPUT, seed=99)), real, atol=output.scale * 1e-4)


@pytest.mark.parametrize("name", ["conv_bn_relu6", "depthwise", "residual", "linear", "sigmoid"])
def test_int16_activations_are_closer(name: str) -> None:
    net, x = NETWORKS[name], data(*INPUT, seed=99)
    _, narrow = compiled(net, data(*INPUT))
    _, art = compiled(net, data(*INPUT), scheme="a16w8")
    assert art.report.refused == []
    assert {v.dtype.name for v in (*art.graph.inputs, *art.graph.outputs)} == {"i16"}
    assert sqnr(net(x), art.run(x)) > max(35, sqnr(net(x), narrow.run(x)) + 2)


def test_batch_norm_and_activation_are_part_of_the_convolution() -> None:
    program, art = compiled(NETWORKS["conv_bn_relu"], data(*INPUT))
    assert not any("batch_norm" in target for target in targets(program))
    assert targets(program).count(QUANTIZE) == 2
    assert {k: v for k, v in art.report.ops.items() if k != "TRANSPOSE"} == {
        "CONV2D": 1,
        "RESCALE": 1,
    }


@pytest.mark.parametrize(
    "net",
    [
        NETWORKS["conv_bn_relu"],
        NETWORKS["conv_bn_relu6"],
        Net(sequence, conv(3, 8), nn.BatchNorm2d(8, affine=False, eps=0.5)),
        Net(lambda net, x: (y := net.layers[0](x)) + net.layers[1](y), conv(3, 8), norm(8)),
        Net(lambda net, x: net.layers[1](net.layers[0](x + net.layers[0](x))), conv(3, 3), norm(3)),
        Net(lambda net, x: F.batch_norm(net.layers[0](x), None, None, training=True), conv(3, 8)),
    ],
)
def test_folding_batch_norms_changes_nothing(net: Net) -> None:
    x = data(*INPUT)
    module = torchapi.module_of(torchapi.export(net.eval(), (x,)))
    run(module, [fold_batch_norm])
    assert torch.allclose(module(x), net(x), atol=1e-5)


def test_what_is_concatenated_has_one_scale() -> None:
    program, art = compiled(NETWORKS["cat"], data(*INPUT))
    (node,) = (n for n in program.graph.nodes if "aten.cat" in str(n.target))
    (user,) = node.users
    assert {tuple(n.args[1:3]) for n in node.args[0]} == {tuple(user.args[1:3])}
    assert art.report.ops["CONCAT"] == 1


def test_an_accumulator_with_two_readers_is_settled_first() -> None:
    program, _ = compiled(NETWORKS["two_readers"], data(*INPUT))
    (node,) = (n for n in program.graph.nodes if "conv2d" in str(n.target))
    assert {str(user.target) for user in node.users} == {QUANTIZE}


def test_weights_have_a_scale_for_each_channel_and_biases_the_product_of_scales() -> None:
    program, _ = compiled(Net(sequence, conv(3, 8)), data(*INPUT))
    (node,) = (n for n in program.graph.nodes if "conv2d" in str(n.target))
    source, weight, bias = node.args[:3]
    scales = [getattr(program, str(n.args[1].target)) for n in (weight, bias)]
    levels = [getattr(program, str(n.args[0].target)) for n in (weight, bias)]
    assert torch.equal(scales[1], scales[0] * source.args[1])
    assert [tensor.dtype for tensor in levels] == [torch.int8, torch.int32]
    assert levels[0].flatten(1).abs().amax(1).tolist() == [127] * 8


def test_a_transposed_convolution_has_its_channels_on_axis_1() -> None:
    net = Net(sequence, nn.ConvTranspose2d(3, 6, 3, stride=2))
    program, art = compiled(net, data(*INPUT))
    (node,) = (n for n in program.graph.nodes if "conv_transpose2d" in str(n.target))
    assert node.args[1].args[3] == 1
    assert sqnr(net(data(*INPUT, seed=99)), art.run(data(*INPUT, seed=99))) > 25


def test_what_no_rule_takes_stays_in_float() -> None:
    net = Net(lambda net, x: torch.special.bessel_j0(net.layers[0](x)), conv(3, 8))
    program, art = compiled(net, data(*INPUT))
    assert targets(program).count(QUANTIZE) == 2
    assert [refusal.op for refusal in art.report.refused] == ["aten.special_bessel_j0.default"]
    assert sqnr(net(data(*INPUT, seed=99)), art.run(data(*INPUT, seed=99))) > 25


def test_the_quantizer_says_what_it_refused_and_why() -> None:
    from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

    net = Net(lambda net, x, w: F.conv2d(x, w))
    examples = data(*INPUT), data(4, 3, 3, 3)
    quantizer = TosaicQuantizer("int8")
    prepare_pt2e(torch.export.export(net, examples).module(), quantizer)
    assert {k: str(v) for k, v in quantizer.refused.items()} == {
        "conv2d": "the weight inputs_1 is computed, and must be a constant"
    }


def test_integers_and_masks_are_not_quantized() -> None:
    net = Net(lambda net, x, i: (net.layers[0](x), i + 1), conv(3, 4))
    program = quantize(
        net, (data(*INPUT), torch.arange(5)), calibration=[(data(*INPUT), torch.arange(5))]
    )
    (node,) = (n for n in program.graph.nodes if "aten.add" in str(n.target))
    assert node.args[0].op == "placeholder"
    assert {user.op for user in node.users} == {"output"}


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0, 1e-30, 1e30])
def test_an_activation_that_never_changes_keeps_a_positive_finite_scale(value: float) -> None:
    net = Net(lambda net, x: net.layers[0](x * 0 + value), linear(4, 4))
    program = quantize(net, (data(2, 4),), calibration=[data(2, 4)])
    for scale, _ in parameters(program):
        assert 0 < scale < math.inf
    art = compile_model(program, (data(2, 4),), "TOSA-1.0+INT", None, None)
    assert sqnr(net(data(2, 4)), art.run(data(2, 4))) > 25


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, torch.finfo(torch.float32).min])
def test_infinities_and_nan_do_not_spoil_a_range(bad: float) -> None:
    plain, spoiled = data(4, 64), data(4, 64)
    spoiled[0, 0] = bad
    plain[0, 0] = 0
    ranges = []
    for values in (plain, spoiled):
        observer = RangeObserver(
            dtype=torch.int8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127
        )
        observer(values)
        ranges.append([float(v) for v in observer.calculate_qparams()])
    assert ranges[0] == pytest.approx(ranges[1], rel=0.02)


def test_nothing_but_nan_gives_a_scale_all_the_same() -> None:
    observer = RangeObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
    observer(torch.full((4,), math.nan))
    assert 0 < float(observer.calculate_qparams()[0]) < math.inf


@pytest.mark.parametrize("factors", [(1, 1), (1, 7), (7, 1), (1, 1000)])
def test_a_range_does_not_depend_on_the_order_of_what_is_seen(factors: tuple[int, int]) -> None:
    def scale(*batches: Tensor) -> float:
        observer = RangeObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
        for batch in batches:
            observer(batch)
        return float(observer.calculate_qparams()[0])

    first, second = data(5000) * factors[0], data(5000, seed=1) * factors[1]
    assert scale(first, second) == pytest.approx(scale(second, first), rel=0.05)
    assert scale(first, second) == pytest.approx(scale(torch.cat([first, second])), rel=0.05)


def test_few_integers_are_not_spent_on_a_few_values_far_out() -> None:
    values = data(20000) ** 3
    observer = RangeObserver(dtype=torch.int8, quant_min=-8, quant_max=7)
    observer(values)

    def error(scale: float, zero: int) -> float:
        levels = (values / scale + zero).round().clamp(-8, 7)
        return float(((levels - zero) * scale - values).square().mean())

    low, high = float(values.min()), float(values.max())
    everything = (high - low) / 15
    found = error(*(v.item() for v in observer.calculate_qparams()))
    assert found < 0.8 * error(everything, round(-8 - low / everything))


def test_a_histogram_that_grows_counts_what_one_of_that_size_counts() -> None:
    first, second = data(5000), data(5000, seed=1) * 7
    observer = RangeObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
    observer(first)
    observer(second)
    seen = observer.seen
    assert len(seen.counts) > BINS // 2
    edges = (seen.first + np.arange(len(seen.counts) + 1)) * seen.width
    assert np.array_equal(seen.counts, np.histogram(torch.cat([first, second]).numpy(), edges)[0])


def test_zeros_do_not_count_since_they_cost_nothing() -> None:
    scales = []
    for zeros in (0, 50_000):
        observer = RangeObserver(dtype=torch.int8, quant_min=-8, quant_max=7)
        observer(torch.cat([data(5000) ** 3, torch.zeros(zeros)]))
        scales.append(observer.calculate_qparams()[0])
    assert scales[0] == scales[1]


def test_a_range_without_far_values_is_kept_whole() -> None:
    values = data(20000).clamp(-1, 2)
    observer = RangeObserver(dtype=torch.int8, quant_min=-128, quant_max=127)
    observer(values)
    scale, zero = (v.item() for v in observer.calculate_qparams())
    assert (scale, zero) == (pytest.approx(3 / 255), -43)


def test_without_data_the_examples_serve_and_a_warning_says_so() -> None:
    with pytest.warns(UserWarning, match="no calibration data: ranges come from the example"):
        quantize(Net(sequence, linear(4, 4)), (data(2, 4),))


@pytest.mark.parametrize("calibration", [[], (), iter(())])
def test_empty_calibration_is_refused(calibration: Any) -> None:
    with pytest.raises(InvalidInput, match="there is no calibration input: give at least one"):
        quantize(Net(sequence, linear(4, 4)), (data(2, 4),), calibration=calibration)


@pytest.mark.parametrize(
    ("calibration", "sentence"),
    [
        (data(2, 4), "calibration is an iterable of inputs, such as a list, not a Tensor"),
        (5, "calibration is an iterable of inputs, such as a list, not an int"),
        ([data(2, 4), data(2, 5)], "calibration input 2 does not run: "),
        ([data(2, 4), 3], "input 2 does not fit: inputs_0 must be a tensor, not int"),
    ],
)
def test_calibration_that_does_not_fit_is_refused(calibration: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        quantize(Net(sequence, linear(4, 4)), (data(2, 4),), calibration=calibration)


def test_bad_schemes_and_models_are_refused() -> None:
    net, x = Net(sequence, linear(4, 4)), data(2, 4)
    with pytest.raises(
        InvalidInput, match="there is no scheme 'int3', perhaps int8; there are int8, a16w8"
    ):
        quantize(net, (x,), scheme="int3", calibration=[x])
    with pytest.raises(InvalidInput, match="there is no file .net.pt2."):
        quantize("net.pt2", (x,), calibration=[x])
    program = quantize(net, (x,), calibration=[x])
    with pytest.raises(InvalidInput, match="the model is quantized already"):
        quantize(program, (x,), calibration=[x])


def test_the_model_itself_is_left_as_it_was() -> None:
    net, x = Net(sequence, conv(3, 8, bias=False), norm(8), nn.Dropout()), data(*INPUT)
    net.train()
    net.layers[1].eval()
    modes = [m.training for m in net.modules()]
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantize(net, (x,), calibration=[x, (x * 2,), [x + 1]])
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())


def test_an_exported_program_is_quantized_as_its_module_is_and_stays_usable() -> None:
    net, x = NETWORKS["conv_bn_relu"].eval(), data(*INPUT)
    exported = torch.export.export(net, (x,))
    programs = [quantize(m, (x,), calibration=[x]) for m in (net, exported, exported)]
    results = [program(x) for program in programs]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ("aten.conv2d.default", "aten.relu.default", True),
        ("aten.conv2d.padding", "aten.relu6.default", True),
        ("aten.conv_transpose2d.input", "aten.relu.default", True),
        ("aten.linear.default", "aten.hardtanh.default", True),
        ("aten.add.Tensor", "aten.clamp.default", True),
        ("aten.mul.Tensor", "aten.relu.default", True),
        ("aten.conv2d.default", "aten.sigmoid.default", False),
        ("aten.relu.default", "aten.relu.default", False),
        ("aten.max_pool2d.default", "aten.relu.default", False),
        ("getitem", "aten.relu.default", False),
    ],
)
def test_limits_ride_on_sums(before: str, after: str, answer: bool) -> None:
    assert fuses_activation(before, after) is answer

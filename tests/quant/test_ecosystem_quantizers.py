"""Quantizers under the names that the ecosystem knows, in torchao's own flow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import (
    ComposableQuantizer,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
)

import tosaic
from tosaic.errors import InvalidInput, Unsupported
from tosaic.executorch import (
    EthosUCompileSpec,
    EthosUQuantizer,
    TosaCompileSpec,
    TOSAQuantizer,
    VgfCompileSpec,
    VgfQuantizer,
    get_symmetric_a8w4_quantization_config,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
    get_uint8_io_quantization_config,
)

SPEC = "TOSA-1.0+INT+int16+int4"
INT8, WIDE = get_symmetric_quantization_config(), get_symmetric_a16w8_quantization_config()
NARROW = get_symmetric_a8w4_quantization_config(is_qat=False)


def data(seed: int = 0) -> Tensor:
    return torch.randn((1, 3, 8, 8), generator=torch.Generator().manual_seed(seed))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU())
        self.last = nn.Linear(64, 30)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sigmoid(self.second(self.first(x))).flatten(1))


def converted(quantizer: Any, net: nn.Module | None = None, prepare: Any = prepare_pt2e) -> Any:
    module = torch.export.export((net or Net()).eval(), (data(),)).module()
    prepared = prepare(module, quantizer)
    for seed in range(1, 5):
        prepared(data(seed))
    with torch.no_grad():
        return convert_pt2e(prepared)


def tosa(*configs: tuple[str, Any], spec: str = SPEC) -> TOSAQuantizer:
    quantizer = TOSAQuantizer(TosaCompileSpec(spec))
    for name, arguments in configs:
        getattr(quantizer, name)(*arguments)
    return quantizer


def weights(module: fx.GraphModule) -> list[tuple[str, int, int]]:
    """How each weight is dequantized: with one scale or several, and its limits."""
    found = []
    for node in module.graph.nodes:
        if str(node.target) in ("aten.conv2d.default", "aten.linear.default"):
            weight = node.args[1]
            kind = "per_tensor" if "per_tensor" in str(weight.target) else "per_channel"
            found.append((kind, *weight.args[-3:-1]) if "dequantize" in str(weight.target) else "")
    return found


def activations(module: fx.GraphModule) -> list[fx.Node]:
    return [n for n in module.graph.nodes if ".quantize_per_tensor" in str(n.target)]


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        (get_symmetric_quantization_config(), ("per_channel", -127, 127)),
        (get_symmetric_quantization_config(is_per_channel=False), ("per_tensor", -127, 127)),
        (get_symmetric_quantization_config(weight_qmin=-31, weight_qmax=31),
         ("per_channel", -31, 31)),
        (get_symmetric_a16w8_quantization_config(False, weight_qmin=-100, weight_qmax=100),
         ("per_tensor", -100, 100)),
        (NARROW, ("per_channel", -7, 7)),
        (get_symmetric_a8w4_quantization_config(False, False), ("per_tensor", -7, 7)),
    ],
)  # fmt: skip
def test_arguments_of_weights_are_honoured(config: Any, limits: tuple[str, int, int]) -> None:
    module = converted(tosa(("set_global", (config,))))
    assert weights(module) == [limits] * 3
    art, x = tosaic.compile(module, (data(),), target=SPEC), data(9)
    assert art.report.refused == []
    with torch.no_grad():
        real = Net()(x)
    assert float((art.run(x) - real).abs().max()) < 0.2 * float(real.abs().max())


def test_arguments_of_activations_are_honoured() -> None:
    config = get_symmetric_quantization_config(act_qmin=-100, act_qmax=90, eps=0.05)
    found = activations(converted(tosa(("set_global", (config,)))))
    assert {n.args[3:5] for n in found} == {(-100, 90)}
    assert min(n.args[1] for n in found if not is_sigmoid(n)) == pytest.approx(0.05)
    wide = activations(converted(tosa(("set_global", (WIDE,)))))
    assert min(n.args[1] for n in wide if not is_sigmoid(n)) == 2.0**-12
    finer = get_symmetric_a16w8_quantization_config(epsilon=2.0**-20)
    fine = activations(converted(tosa(("set_global", (finer,)))))
    assert min(n.args[1] for n in fine) < 2.0**-12


def is_sigmoid(node: fx.Node) -> bool:
    """Whether a value's range is known, and not observed."""
    return any(name in str(node.args[0]) for name in ("sigmoid", "flatten"))


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ([("set_global", (INT8,))], [127, 127, 127]),
        ([("set_global", (INT8,)), ("set_module_name", ("second", NARROW))], [127, 7, 127]),
        ([("set_global", (INT8,)), ("set_module_type", (nn.Conv2d, NARROW))], [7, 7, 127]),
        ([("set_global", (INT8,)), ("set_module_type", (nn.Conv2d, NARROW)),
          ("set_module_name", ("first", None))], [None, 7, 127]),
        ([("set_global", (NARROW,)), ("set_node_target", (torch.ops.aten.linear.default, INT8)),
          ("set_node_name", ("conv2d_1", INT8))], [7, 127, 127]),
        ([("set_module_name", ("last", NARROW))], [None, None, 7]),
    ],
)  # fmt: skip
def test_configs_choose_by_node_module_and_type(configs: Any, expected: list[int | None]) -> None:
    found = weights(converted(tosa(*configs)))
    assert [w[2] if w else None for w in found] == expected


def test_training_in_each_config() -> None:
    for config in (
        get_symmetric_quantization_config(is_qat=True),
        get_symmetric_a16w8_quantization_config(is_qat=True),
        get_symmetric_a8w4_quantization_config(),
    ):
        module = converted(tosa(("set_global", (config,))), prepare=prepare_qat_pt2e)
        art = tosaic.compile(module, (data(),), target=SPEC)
        assert art.report.refused == []
        with torch.no_grad():
            wanted = module(data(9))
        assert float((art.run(data(9)) - wanted).abs().max()) < 0.05 * float(wanted.abs().max())


class Foreign(Quantizer):
    """Another quantizer, which takes the first layer for itself, and its bias as it is."""

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        made = [
            QuantizationSpec(torch.int8, MinMaxObserver.with_args(eps=2.0**-12), low, 127, scheme)
            for low, scheme in ((-128, torch.per_tensor_affine), (-127, torch.per_tensor_symmetric))
        ]
        node = next(n for n in model.graph.nodes if "conv2d" in str(n.target))
        inputs = dict(zip(node.args[:2], made, strict=True))
        node.meta["quantization_annotation"] = QuantizationAnnotation(
            input_qspec_map=inputs, output_qspec=made[0], _annotated=True
        )
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to check."""


@pytest.mark.parametrize("config", [INT8, WIDE, NARROW])
def test_quantizers_are_composed_with_others(config: Any) -> None:
    """Each keeps what it has annotated; biases without a scale of ours are rounded on the way."""
    own = tosa(("set_global", (config,)))
    module = converted(ComposableQuantizer([Foreign(), own]))
    assert weights(module)[0] == ("per_tensor", -127, 127)
    assert weights(module)[1][0] == "per_channel"
    art, x = tosaic.compile(module, (data(),), target=SPEC), data(9)
    assert art.report.refused == []
    with torch.no_grad():
        wanted = module(x)
    assert float((art.run(x) - wanted).abs().max()) < 0.03 * float(wanted.abs().max())


def test_two_of_ours_share_a_model() -> None:
    first = tosa(("set_module_name", ("first", WIDE)))
    second = EthosUQuantizer(EthosUCompileSpec("ethos-u85-256")).set_global(NARROW)
    module = converted(ComposableQuantizer([first, second]))
    assert [w[2] for w in weights(module)] == [127, 7, 7]
    kinds = {str(n.args[-1]) for n in activations(module)}
    assert kinds == {"torch.int16", "torch.int8"}


def test_a_large_bias_is_not_cut_where_quantizers_are_composed() -> None:
    """32 bits do not hold it in the scale of the products, 48 do."""
    net = nn.Sequential(nn.Conv2d(3, 40, 1))
    with torch.no_grad():
        net[0].weight.mul_(1e-4)
        net[0].bias.copy_(torch.linspace(-9, 9, 40))
    config = get_symmetric_a16w8_quantization_config(epsilon=2.0**-30)
    module = converted(ComposableQuantizer([tosa(("set_global", (config,)))]), net)
    art = tosaic.compile(module, (data(),), target=SPEC)
    assert art.report.refused == []
    with torch.no_grad():
        real = net(data(9))
    assert float((art.run(data(9)) - real).abs().max()) < 1e-3 * 9


def test_bytes_at_the_boundary() -> None:
    quantizer = VgfQuantizer(VgfCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(INT8).set_io(get_uint8_io_quantization_config())
    module = converted(quantizer)
    kinds = [str(n.args[-1]).removeprefix("torch.") for n in activations(module)]
    assert (kinds[0], kinds[-1]) == ("uint8", "uint8")
    assert set(kinds[1:-1]) == {"int8"}


def test_wrong_uses_get_their_sentence() -> None:
    for sentence, call in (
        ("scales that change from run to run",
         lambda: get_symmetric_quantization_config(is_dynamic=True)),
        ("scales that change from run to run",
         lambda: get_uint8_io_quantization_config(is_dynamic=True)),
    ):  # fmt: skip
        with pytest.raises(Unsupported, match=sentence):
            call()
    for sentence, call in (
        ("the integers of activations range from -128",
         lambda: get_symmetric_quantization_config(act_qmin=0)),
        ("the integers of weights range", lambda: get_symmetric_quantization_config(
            weight_qmax=300)),
        ("the smallest step of activations lies between",
         lambda: get_symmetric_quantization_config(eps=0)),
        ("the scheme a8w4 needs int4, which TOSA-1.0.INT does not have",
         lambda: tosa(("set_global", (NARROW,)), spec="TOSA-1.0+INT")),
        ("have is_qat all alike", lambda: tosa(("set_global", (INT8,)), (
            "set_module_name", ("first", get_symmetric_a8w4_quantization_config())))),
        ("uint8 is for the boundary of a model",
         lambda: tosa(("set_global", (get_uint8_io_quantization_config(),)))),
        ("the model calls no module 'frist'; there are, for instance, first",
         lambda: converted(tosa(("set_module_name", ("frist", INT8))))),
        ("a quantization config is None or made by", lambda: tosa(("set_global", ("int8",)))),
        (r"give EthosUQuantizer\(EthosUCompileSpec\(...\)\), not a TosaCompileSpec",
         lambda: EthosUQuantizer(TosaCompileSpec(SPEC))),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=sentence):
            call()


def test_a_batch_that_is_open_is_quantized_as_one_of_the_examples_size() -> None:
    """Who trains exports with batches of any size; the device gets one of one."""
    quantizer = tosa(("set_global", (get_symmetric_quantization_config(is_qat=True),)))
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    example = torch.cat([data(), data(1)])
    module = torch.export.export(Net().train(), (example,), dynamic_shapes=shapes).module()
    prepared = prepare_qat_pt2e(module, quantizer)
    prepared(torch.cat([data(seed) for seed in range(5)])).sum().backward()
    with torch.no_grad():
        made = torch.export.export(convert_pt2e(prepared), (data(),))
    art = tosaic.compile(made, (data(),), target=SPEC)
    assert art.report.refused == []
    assert len(art.partition.graphs) == 1


def test_configs_are_attributes_too() -> None:
    quantizer = tosa()
    quantizer.global_config = quantizer.io_config = INT8
    quantizer.module_name_config = {"first": None}
    quantizer.module_type_config = {nn.Linear: WIDE, nn.LSTM: None}  # that it lacks is no slip
    assert quantizer.global_config == quantizer.io_config == INT8
    assert quantizer.module_name_config == {"first": None}
    assert quantizer.module_type_config == {nn.Linear: WIDE, nn.LSTM: None}
    kinds = [n.args[-1] for n in activations(converted(quantizer))]
    assert torch.int16 in kinds
    assert weights(converted(quantizer))[0] == ""


def test_a_model_is_quantized_in_one_call() -> None:
    module = torch.export.export(Net().eval(), (data(),)).module()
    samples = [(data(seed),) for seed in range(1, 5)]
    quantizer = EthosUQuantizer("TOSA-1.0+INT").set_global(INT8)
    made = quantizer.quantize_with_submodules(module, samples)
    wanted = converted(TOSAQuantizer("TOSA-1.0+INT").set_global(INT8))
    with torch.no_grad():
        assert torch.equal(made(data(9)), wanted(data(9)))

"""Programs that torchao's flow has made with uint8 at the boundary, or further in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn
from torchao.quantization.pt2e import MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import (
    convert_pt2e,
    prepare_pt2e,
    prepare_qat_pt2e,
)
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.composable_quantizer import ComposableQuantizer

import tosaic
from judges.reference import run_reference
from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.pipeline.artifact import Artifact
from tosaic.quant import TosaicQuantizer
from tosaic.quant.boundary import Bytes

KEY = "quantization_annotation"
UINT8 = QuantizationSpec(
    torch.uint8, MinMaxObserver, 0, 255, torch.per_tensor_affine, is_dynamic=False
)
INSIDE = "TOSA has uint8 at the boundary of a graph only"


class Net(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.other = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.function = function

    def forward(self, image: Tensor) -> Any:
        return self.function(self, image)


class Annotator(Quantizer):  # type: ignore[misc]
    """A user's own quantizer: says something of nodes by their operator."""

    def __init__(self, say: Callable[[fx.Node], QuantizationAnnotation | None]) -> None:
        super().__init__()
        self.say = say

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        for node in model.graph.nodes:
            said = self.say(node)
            if said is not None:
                node.meta[KEY] = said
        return model

    def validate(self, model: fx.GraphModule) -> None:
        """Nothing to say."""


def ends(node: fx.Node) -> QuantizationAnnotation | None:
    """uint8 for what comes in and goes out."""
    if node.op == "placeholder":
        return QuantizationAnnotation(output_qspec=UINT8, _annotated=True)
    if node.op == "output":
        read = dict.fromkeys(node.all_input_nodes, UINT8)
        return QuantizationAnnotation(input_qspec_map=read, _annotated=True)
    return None


class Linked(TosaicQuantizer):
    """int8 within, and bytes outside that follow it."""

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        super().annotate(model)
        Bytes().annotate(model.graph, self)
        return model

    def prepare_obs_or_fq_callback(self, model: fx.GraphModule, found: dict[Any, Any]) -> None:
        super().prepare_obs_or_fq_callback(model, found)
        Bytes().link(found)


def images(count: int) -> list[tuple[Tensor]]:
    torch.manual_seed(3)
    return [(torch.rand(1, 4, 8, 8),) for _ in range(count)]


def converted(
    function: Callable[..., Any], quantizers: Sequence[Quantizer], training: bool = False
) -> fx.GraphModule:
    data = images(4)
    exported = torch.export.export(Net(function).eval(), data[0]).module()
    quantizer = quantizers[0] if len(quantizers) == 1 else ComposableQuantizer(list(quantizers))
    prepared = (prepare_qat_pt2e if training else prepare_pt2e)(exported, quantizer)
    with torch.no_grad():
        for given in data:
            prepared(*given)
    made: fx.GraphModule = convert_pt2e(prepared)
    return made


def flags(art: Artifact) -> list[str]:
    """Sides of RESCALE that are unsigned, each at the boundary of the file."""
    graph, found = flatbuffer.read(art.bytes), []
    for op in graph.walk():
        if op.attrs.get("input_unsigned"):
            assert op.ins[0] in graph.inputs
            found.append("in")
        if op.attrs.get("output_unsigned"):
            assert op.outs[0] in graph.outputs
            found.append("out")
    return found


FORMS: dict[str, Callable[..., Any]] = {
    "layers": lambda net, x: net.other(net.conv(x).relu()),
    "an input used twice": lambda net, x: net.conv(x) + net.other(x),
    "concat": lambda net, x: torch.cat([x, net.conv(x)], 1),
    "reshape": lambda net, x: net.conv(x.reshape(1, 4, 16, 4)).reshape(1, -1),
    "a maximum": lambda net, x: nn.functional.max_pool2d(x, 2, 1),
}


@pytest.mark.parametrize("first", [True, False], ids=["before ours", "after ours"])
@pytest.mark.parametrize("name", FORMS)
def test_a_composed_quantizer_carries_uint8_no_further_than_the_boundary(
    name: str, first: bool
) -> None:
    quantizers = [Annotator(ends), TosaicQuantizer()]
    program = converted(FORMS[name], quantizers if first else quantizers[::-1])
    (x,) = images(6)[5]
    art = tosaic.compile(program, (x,))
    assert not art.report.refused
    assert flags(art) == ["in", "out"]
    assert [p.dtype for p in art.boundary.inputs] == ["float32"]
    with torch.no_grad():
        expected = program(x)
    step = art.report.delegates[0].outputs[0].quant.scale
    assert (art.run(x) - expected).abs().max() <= 1.01 * step
    raw = tosaic.compile(program, (x,), io="uint8")
    codes = raw.boundary.inputs[0].quantize(x)
    (found,) = run_reference(raw.bytes, [codes.view(torch.int8).numpy()])
    got = raw.run(codes)
    assert np.array_equal(got.numpy(), found.view(np.uint8))
    assert torch.equal(raw.boundary.outputs[0].dequantize(got), art.run(x))
    assert len(np.unique(found)) > 40


@pytest.mark.parametrize("training", [False, True], ids=["after training", "in training"])
def test_bytes_that_follow_int8_are_only_moved(training: bool) -> None:
    program = converted(FORMS["layers"], [Linked(training=training)], training)
    art = tosaic.compile(program, images(1)[0], io="uint8")
    assert flags(art) == ["in", "out"]
    for op in art.graph.walk():
        if op.attrs.get("input_unsigned") or op.attrs.get("output_unsigned"):
            multiplier, shift = (int(v.const.array[0]) for v in op.ins[1:3] if v.const is not None)
            assert multiplier == 1 << shift
    (x,) = images(6)[5]
    with torch.no_grad():
        expected = program(x)
    assert (art.run(x) - expected).abs().max() <= 1.01 * art.boundary.outputs[0].scale


def spread(node: fx.Node) -> QuantizationAnnotation | None:
    """A reshape that shares what its input has, whatever that is."""
    if node.op != "call_function" or "reshape" not in str(node.target):
        return None
    same = SharedQuantizationSpec(node.args[0])
    return QuantizationAnnotation({node.args[0]: same}, same, _annotated=True)


def test_uint8_that_sharing_has_carried_inwards_is_refused_with_its_sentence() -> None:
    both = [Annotator(lambda n: ends(n) or spread(n))]
    program = converted(lambda net, x: net.conv(x.reshape(1, 4, 16, 4)), both)
    art = tosaic.compile(program, images(1)[0])
    reasons = {r.op: r.reason for r in art.report.refused}
    assert f"it reads uint8 (image), and {INSIDE}" in reasons["aten.reshape.default"]


def within(node: fx.Node) -> QuantizationAnnotation | None:
    if node.op != "call_function":
        return None
    return QuantizationAnnotation({node.args[0]: UINT8}, UINT8, _annotated=True)


def test_uint8_inside_is_refused_with_its_sentence() -> None:
    program = converted(lambda net, x: net.conv(x).tanh(), [Annotator(within)])
    art = tosaic.compile(program, images(1)[0])
    assert not art.partition.graphs
    assert all(INSIDE in r.reason for r in art.report.refused)
    (x,) = images(1)[0]
    with torch.no_grad():
        assert torch.equal(art.run(x), program(x))
    with pytest.raises(InvalidInput, match="nothing of the model runs on ethos-u55-128.*" + INSIDE):
        tosaic.compile(program, (x,), target="ethos-u55-128")


class Between(TosaicQuantizer):
    """int8, but uint8 where a tensor is reshaped."""

    def annotate(self, model: fx.GraphModule) -> fx.GraphModule:
        super().annotate(model)
        return Annotator(lambda n: within(n) if "reshape" in str(n.target) else None).annotate(
            model
        )


def test_uint8_between_two_layers_is_refused_and_the_layers_are_not() -> None:
    program = converted(lambda net, x: net.other(net.conv(x).reshape(1, 4, 4, 16)), [Between()])
    (x,) = images(2)[1]
    art = tosaic.compile(program, (x,))
    assert {r.op for r in art.report.refused} == {
        "aten.reshape.default", "quantized_decomposed.quantize_per_tensor.default"
    }  # fmt: skip
    assert all(INSIDE in r.reason for r in art.report.refused)
    assert len(art.partition.graphs) == 2
    with torch.no_grad():
        expected = program(x)
    assert (art.run(x) - expected).abs().max() < 0.05
    assert len(expected.unique()) > 30


@pytest.mark.parametrize("zero_point", [-1, 256])
def test_a_zero_point_out_of_range_in_a_program_is_refused(zero_point: int) -> None:
    program = converted(FORMS["layers"], [Annotator(ends), TosaicQuantizer()])
    for node in program.graph.nodes:
        if "quantize_per_tensor" in str(node.target) and node.args[5] is torch.uint8:
            node.args = (*node.args[:2], zero_point, *node.args[3:])
    program.recompile()
    art = tosaic.compile(program, images(1)[0])
    sentence = f"the zero point of uint8 is 0 to 255 in TOSA, it cannot be {zero_point}"
    assert any(sentence in r.reason for r in art.report.refused)

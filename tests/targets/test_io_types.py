"""Types at a program's boundary: uint8, int8, int16 and floats outside, the scheme's within."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.reference import run_reference
from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.ir.graph import Graph, Op, Value
from tosaic.pipeline.artifact import Artifact

INTEGERS = "TOSA-1.0+INT"
NPUS = ("ethos-u55-128", "ethos-u85-256")


class Net(nn.Module):
    """A function with two convolutions at hand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.other = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.function = function

    def forward(self, image: Tensor, *more: Tensor) -> Any:
        return self.function(self, image, *more)


def cnn() -> nn.Module:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8), nn.ReLU6(), nn.Conv2d(8, 12, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(12 * 36, 10),
    ]  # fmt: skip
    return nn.Sequential(*layers).eval()


def images(count: int, *shape: int, seed: int = 3) -> list[tuple[Tensor, ...]]:
    torch.manual_seed(seed)
    return [(torch.rand(1, *(shape or (3, 16, 16))),) for _ in range(count)]


@cache
def compiled(io: Any = None, target: str = INTEGERS, scheme: str | None = None) -> Artifact:
    data = images(6)
    return tosaic.compile(
        cnn(), data[0], target=target, calibration=data, io=io, scheme=scheme
    )  # fmt: skip


def made(
    function: Callable[..., Any], io: Any = "uint8", *, more: int = 0, **options: Any
) -> Artifact:
    torch.manual_seed(5)
    data = [(torch.rand(1, 4, 8, 8), *(torch.randn(1, 4, 8, 8) for _ in range(more)))
            for _ in range(4)]  # fmt: skip
    return tosaic.compile(Net(function), data[0], calibration=data, io=io, **options)


def camera(art: Artifact, seed: int = 0) -> list[Tensor]:
    """Bytes as a camera gives them, for every input of the boundary that is integers."""
    rng = np.random.default_rng(seed)
    found = []
    for port in art.boundary.inputs:
        limits = torch.iinfo(getattr(torch, port.dtype))
        raw = rng.integers(limits.min, limits.max + 1, port.shape)
        found.append(torch.from_numpy(raw).to(getattr(torch, port.dtype)))
    return found


def by_reference(art: Artifact, given: list[Tensor]) -> list[np.ndarray]:
    """What Arm's reference model makes of the bytes, outputs read as the boundary has them."""
    arrays = [t.view(torch.int8).numpy() if t.dtype is torch.uint8 else t.numpy() for t in given]
    found = run_reference(art.bytes, arrays)
    return [array.view(np.uint8) if port.dtype == "uint8" else array
            for array, port in zip(found, art.boundary.outputs, strict=True)]  # fmt: skip


def leaves(result: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def check(art: Artifact, least: int = 30) -> list[Tensor]:
    """Every engine and the reference model give the same bytes, and not always the same ones."""
    given = camera(art)
    expected = by_reference(art, given)
    for engine in ("tosa", "npu") if art.delegates else ("tosa",):
        got = leaves(art.run(*given, engine=engine))
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected):
            assert mine.dtype is getattr(torch, str(theirs.dtype))
            assert np.array_equal(mine.numpy(), theirs)
    assert all(len(np.unique(array)) >= min(least, array.size // 4) for array in expected)
    return leaves(art.run(*given))


def flagged(graph: Graph) -> Iterator[tuple[Op, str, Value]]:
    for op in graph.walk():
        for side, value in (("input", op.ins[0] if op.ins else None), ("output", op.outs[0])):
            if op.attrs.get(f"{side}_unsigned") and value is not None:
                yield op, side, value


def assert_unsigned_outside_only(art: Artifact) -> Graph:
    """In the file: each uint8 tensor is an input or an output, and one RESCALE has its flag."""
    graph = flatbuffer.read(art.bytes)
    found = list(flagged(graph))
    outside = [
        value for ports, values in (
            (art.boundary.inputs, graph.inputs), (art.boundary.outputs, graph.outputs)
        ) for port, value in zip(ports, values, strict=True) if port.dtype == "uint8"
    ]  # fmt: skip
    assert len(found) == len(outside)
    assert {id(value) for _, _, value in found} == {id(value) for value in outside}
    readers = [op for op in graph.walk() for value in op.ins if any(value is o for o in outside)]
    assert len(readers) == sum(side == "input" for _, side, _ in found)
    return graph


@pytest.mark.parametrize("target", [INTEGERS, *NPUS])
def test_bytes_of_a_camera_give_the_float_path_quantized_by_hand(target: str) -> None:
    bytes_in, floats = compiled("uint8", target), compiled(None, target)
    (port,), (result,) = bytes_in.boundary.inputs, bytes_in.boundary.outputs
    assert (port.dtype, result.dtype) == ("uint8", "uint8")
    for seed in range(3):
        (picture,) = camera(bytes_in, seed)
        real = (picture.numpy().astype(np.float32) - port.zero_point) * np.float32(port.scale)
        scores = floats.run(torch.from_numpy(real)).numpy()
        by_hand = np.rint(scores / np.float32(result.scale)) + result.zero_point
        got = bytes_in.run(picture)
        assert got.dtype is torch.uint8
        assert np.array_equal(got.numpy(), by_hand)
        assert len(np.unique(by_hand)) > 5
        assert ((by_hand > 0) & (by_hand < 255)).mean() > 0.8


@pytest.mark.parametrize("target", [INTEGERS, *NPUS])
@pytest.mark.parametrize("io", ["uint8", ("uint8", "int8"), ("int8", "uint8"), "int16"])
def test_the_file_agrees_with_the_reference_model(io: Any, target: str) -> None:
    art = compiled(io, target)
    assert not art.report.refused
    check(art, least=5)


@pytest.mark.parametrize("io", ["uint8", ("uint8", "float"), ("float", "uint8"), "int8", None])
def test_uint8_is_at_the_boundary_of_the_file_alone(io: Any) -> None:
    art = compiled(io)
    if "float" in (io or ("float",)):
        graph, sides = flatbuffer.read(art.bytes), ["input"] if io and io[0] == "uint8" else []
        sides += ["output"] if io and io[1] == "uint8" else []
        assert [side for _, side, _ in flagged(graph)] == sides
    else:
        assert_unsigned_outside_only(art)
    assert all(value.dtype.name in {"i8", "i32"} for value in art.graph.values()
               if value.dtype.name != "shape")  # fmt: skip


def test_zero_points_move_by_128_at_the_boundary() -> None:
    art = compiled("uint8")
    graph = assert_unsigned_outside_only(art)
    floats = flatbuffer.read(compiled().bytes)
    for op, side, _ in flagged(graph):
        given, zero = (int(v.const.array[0]) for v in op.ins[3:5] if v.const is not None)
        port = (art.boundary.inputs if side == "input" else art.boundary.outputs)[0]
        outer, inner = (given, zero) if side == "input" else (zero, given)
        assert outer % 256 == port.zero_point
        assert (outer % 256) - inner == 128
    assert {op.name for op in floats.walk()} <= {op.name for op in graph.walk()}


def test_one_side_may_be_bytes_and_the_other_floats() -> None:
    inward, outward, both = compiled(("uint8", "float")), compiled(("float", "uint8")), compiled()
    (x,) = images(1, seed=8)[0]
    codes = inward.boundary.inputs[0].quantize(x)
    expected = both.run(x)
    assert torch.equal(inward.run(codes), expected)
    assert torch.equal(inward.run(x), expected)
    assert torch.equal(outward.run(x), outward.boundary.outputs[0].quantize(expected))
    assert torch.equal(outward.run(x, raw=False), expected)
    assert outward.run(x).dtype is torch.uint8
    assert [p.dtype for p in inward.boundary.outputs] == ["float32"]


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "an input used twice": (lambda net, x: net.conv(x) + net.other(x), 1),
    "an input read by a sum and a layer": (lambda net, x: net.conv(x) + x, 1),
    "an input straight to an output": (lambda net, x: (net.conv(x), x), 2),
    "an output twice": (lambda net, x: [net.conv(x)] * 2, 2),
    "an output that is read on": (lambda net, x: (net.conv(x), net.other(net.conv(x))), 2),
    "concat first and last": (lambda net, x: torch.cat([x, net.conv(x)], 1), 1),
    "concat of an input with itself": (lambda net, x: torch.cat([x, x.flip(2)], 1), 1),
    "reshape first and last": (lambda net, x: net.conv(x.reshape(1, 4, 16, 4)).reshape(1, -1), 1),
    "a maximum first and last": (
        lambda net, x: nn.functional.max_pool2d(net.conv(nn.functional.max_pool2d(x, 2)), 2, 1), 1,
    ),
    "nothing but a maximum": (lambda net, x: nn.functional.max_pool2d(x, 2), 1),
    "nothing but a reshape": (lambda net, x: x.reshape(1, -1), 1),
    "a zero point of 0 before the end": (lambda net, x: torch.tanh(net.conv(x) * 3), 1),
    "a softmax at the end": (lambda net, x: torch.softmax(net.conv(x) * 4, 1), 1),
    "a transposed input": (lambda net, x: net.conv(x.permute(0, 1, 3, 2)), 1),
}  # fmt: skip


@cache
def case(name: str, io: Any = "uint8", target: str = INTEGERS) -> Artifact:
    return made(CASES[name][0], io, target=target)


@pytest.mark.parametrize("name", CASES)
def test_forms_at_the_boundary_agree_with_the_reference_model(name: str) -> None:
    outputs = CASES[name][1]
    art, floats = case(name), case(name, None)
    assert not art.report.refused
    assert [p.dtype for p in art.boundary.outputs] == ["uint8"] * outputs
    (picture,) = camera(art)
    got = leaves(art.run(picture))
    if "straight" in name:  # the graph does not give what nothing computes
        assert torch.equal(got[1], picture)
        assert len(art.graph.outputs) == 1
        arrays = run_reference(art.bytes, [picture.view(torch.int8).numpy()])
        assert np.array_equal(arrays[0].view(np.uint8), got[0].numpy())
    else:
        assert_unsigned_outside_only(art)
        check(art)
    expected = leaves(floats.run(art.boundary.inputs[0].dequantize(picture)))
    for mine, theirs, port in zip(got, expected, art.boundary.outputs, strict=True):
        assert torch.equal(port.dequantize(mine), theirs)


@pytest.mark.parametrize("target", NPUS)
@pytest.mark.parametrize("name", CASES)
def test_forms_at_the_boundary_run_on_the_npu(name: str, target: str) -> None:
    art = case(name, target=target)
    assert not art.report.refused
    (picture,) = camera(art)
    stream, graph = (leaves(art.run(picture, engine=engine)) for engine in ("npu", "tosa"))
    plain = leaves(case(name).run(picture))
    for mine, theirs, interpreted in zip(stream, graph, plain, strict=True):
        assert torch.equal(mine, theirs)
        assert mine.dtype is torch.uint8
        assert len(mine.unique()) >= min(30, mine.numel() // 4)
        assert (theirs.int() - interpreted.int()).abs().max() <= 3  # sums ride there, not here


def test_several_inputs_have_types_of_their_own() -> None:
    def function(net: Net, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return net.conv(x) + net.other(y) * z

    io = {"image": "uint8", "more_1": tosaic.IO("int16", scale=2.0**-12), "add": "uint8"}
    art = made(function, io, more=2)
    assert [p.dtype for p in art.boundary.inputs] == ["uint8", "float32", "int16"]
    assert art.boundary.inputs[2].scale == 2.0**-12
    x, y, z = torch.rand(1, 4, 8, 8), torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8)
    codes = [port.quantize(v) for port, v in zip(art.boundary.inputs, (x, y, z))]
    assert [c.dtype for c in codes] == [torch.uint8, torch.float32, torch.int16]
    assert torch.equal(art.run(*codes, raw=False), art.run(x, y, z))
    whole = made(function, ({0: "uint8", 1: "uint8", 2: "uint8"}, "uint8"), more=2)
    check(whole)
    assert_unsigned_outside_only(whole)


def test_given_scales_are_those_of_the_boundary() -> None:
    io = (tosaic.IO("uint8", scale=1 / 255), tosaic.IO("uint8", scale=0.05, zero_point=60))
    art = compiled(io)
    (port,), (result,) = art.boundary.inputs, art.boundary.outputs
    assert (port.scale, port.zero_point) == (1 / 255, 0)
    assert (result.scale, result.zero_point) == (0.05, 60)
    assert_unsigned_outside_only(art)
    check(art, least=5)
    (picture,) = camera(art)
    real = compiled().run(picture.float() / 255)
    assert (art.run(picture, raw=False) - real).abs().max() < 0.06


def test_int16_has_every_step_of_int8() -> None:
    art, floats = compiled("int16"), compiled()
    (x,) = images(1, seed=4)[0]
    step = floats.report.delegates[0].inputs[0].quant.scale
    on_steps = (x / step).round() * step  # between them, int16 rounds twice
    assert torch.equal(art.run(on_steps), floats.run(on_steps))
    samples = art.boundary.inputs[0].quantize(x)
    assert samples.dtype is torch.int16
    assert len(samples.unique()) > 500
    error = (art.run(samples, raw=False) - floats.run(x)).abs().max()
    assert error <= 2 * floats.report.delegates[0].outputs[0].quant.scale


@pytest.mark.parametrize("io", ["uint8", "int8", "int16"])
def test_int16_within_takes_bytes_too(io: str) -> None:
    art = compiled(io, "TOSA-1.0+INT+int16", "a16w8")
    assert_unsigned_outside_only(art)
    check(art, least=5)
    (x,) = images(1, seed=4)[0]
    floats = compiled(None, "TOSA-1.0+INT+int16", "a16w8")
    assert (art.run(x) - floats.run(x)).abs().max() <= 1.5 * art.boundary.outputs[0].scale


def test_run_speaks_the_language_that_it_is_spoken_to() -> None:
    art = compiled("uint8")
    (x,) = images(1, seed=6)[0]
    codes = art.boundary.inputs[0].quantize(x)
    floats, raw = art.run(x), art.run(codes)
    assert (floats.dtype, raw.dtype) == (torch.float32, torch.uint8)
    assert torch.equal(art.run(codes.numpy()), raw)
    assert torch.equal(art.run(x, raw=True), raw)
    assert torch.equal(art.run(codes, raw=False), floats)
    assert torch.equal(art.boundary.outputs[0].dequantize(raw), floats)
    assert torch.equal(floats, compiled().run(x))
    with pytest.raises(InvalidInput, match=r"must be uint8\[1,3,16,16\] or the floats"):
        art.run(codes.to(torch.int8))


def test_channels_last_bytes_are_taken_as_they_lie() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    data = [(x.to(memory_format=torch.channels_last),) for (x,) in images(3)]
    art = tosaic.compile(net, data[0], calibration=data, io="uint8")
    (port,), (result,) = art.boundary.inputs, art.boundary.outputs
    assert port.shape == (1, 3, 16, 16)
    assert port.dim_order == result.dim_order == (0, 2, 3, 1)
    assert "TRANSPOSE" not in art.report.ops
    assert_unsigned_outside_only(art)
    lying = camera(art)[0].to(memory_format=torch.channels_last)
    found = run_reference(
        art.bytes, [lying.permute(0, 2, 3, 1).contiguous().view(torch.int8).numpy()]
    )
    assert np.array_equal(art.run(lying).permute(0, 2, 3, 1).numpy(), found[0].view(np.uint8))


def test_the_artifact_tells_its_boundary() -> None:
    art = made(lambda net, x: {"map": net.conv(x), "best": net.conv(x).amax((2, 3)).argmax(1)})
    data = json.loads(art.boundary.json())
    (image,) = data["inputs"]
    assert image["name"] == "image"
    assert image["dtype"] == "uint8"
    assert image["shape"] == [1, 4, 8, 8]
    assert image["bytes"] == 256
    assert image["scale"] == art.boundary.inputs[0].scale
    assert [(o["name"], o["dtype"]) for o in data["outputs"]] == [
        ("map", "uint8"),
        ("best", "int64"),
    ]
    assert data["outputs"][1]["scale"] is None
    text = str(art.report)
    assert "The whole program" in text
    assert f"scale {image['scale']:.6g}, zero point {image['zero_point']}" in text
    assert art.report.data()["boundary"]["inputs"][0]["zero_point"] == image["zero_point"]


def test_what_nothing_quantizes_is_observed_for_its_scale() -> None:
    art = made(lambda net, x: torch.linalg.inv(net.conv(torch.linalg.inv(x))))
    assert [p.dtype for p in (*art.boundary.inputs, *art.boundary.outputs)] == ["uint8"] * 2
    x = torch.rand(1, 4, 8, 8) + torch.eye(8)
    (port,) = art.boundary.inputs
    assert torch.equal(art.run(port.quantize(x), raw=False), art.run(x))
    straight = made(lambda net, x: x)
    (picture,) = camera(straight)
    assert torch.equal(straight.run(picture), picture)
    assert not straight.partition.pieces


def test_compare_speaks_floats_whatever_the_boundary_is() -> None:
    data = images(2, seed=7)
    plain, bytes_in = (tosaic.compare(cnn(), compiled(io), data) for io in (None, "uint8"))
    assert [o.sqnr for o in bytes_in.outputs] == [o.sqnr for o in plain.outputs]
    assert [layer.sqnr for layer in bytes_in.layers][1:] == [la.sqnr for la in plain.layers][2:]


WRONG: dict[str, tuple[Any, str]] = {
    "type": ("uint4", "io has no type 'uint4'; its types are uint8, int8, int16, float"),
    "name": ({"picture": "uint8"}, "no input or output named 'picture'; its inputs are 0 (image)"),
    "index": ({1: "uint8"}, "the model has no input 1; its inputs are 0 (image)"),
    "output": (("uint8", {"map": "int8"}), "no output named 'map'; its outputs are 0 (conv2d)"),
    "parts": (("uint8", "uint8", "uint8"), "io has 3 parts: give a type, a dict"),
    "none": (7, "io has no type 7"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_io_gets_its_sentence_before_anything_is_calibrated(name: str) -> None:
    io, sentence = WRONG[name]
    with pytest.raises(InvalidInput) as problem:
        tosaic.compile(Net(lambda net, x: net.conv(x)), (torch.rand(1, 4, 8, 8),), io=io,
                       calibration=_unreadable())  # fmt: skip
    assert sentence in str(problem.value)


def _unreadable() -> Iterator[Any]:
    raise AssertionError("calibrated")
    yield


WRONG_NUMBERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "above": (("uint8", 0.1, 256), "the zero point of uint8 is 0 to 255 in TOSA, it cannot be 256"),
    "below": (("uint8", 0.1, -1), "the zero point of uint8 is 0 to 255 in TOSA, it cannot be -1"),
    "int8": (("int8", 0.1, 128), "the zero point of int8 is -128 to 127"),
    "int16": (("int16", 0.1, 3), "the zero point of int16 is 0 in TOSA"),
    "negative": (("uint8", -1.0), "a scale is a positive number, not -1.0"),
    "infinite": (("uint8", float("inf")), "a scale is a positive number, not inf"),
    "alone": (("uint8", None, 3), "a zero point needs a scale"),
    "float": (("float", 0.1), "a float has no scale"),
    "part": (("uint8", 0.1, 1.5), "a zero point is a whole number, not 1.5"),
}


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_a_meaning_that_tosa_lacks_is_refused(name: str) -> None:
    arguments, sentence = WRONG_NUMBERS[name]
    with pytest.raises(InvalidInput) as problem:
        tosaic.IO(*arguments)
    assert sentence in str(problem.value)


@pytest.mark.parametrize("zero_point", [0, 255])
def test_the_ends_of_the_range_of_zero_points_work(zero_point: int) -> None:
    side = 1 if zero_point == 0 else -1
    data = [(side * torch.rand(1, 4, 8, 8),) for _ in range(4)]
    io = tosaic.IO("uint8", scale=0.004, zero_point=zero_point)
    net = Net(lambda net, x: net.conv(x))
    art = tosaic.compile(net, data[0], calibration=data, io=io)
    ports = (*art.boundary.inputs, *art.boundary.outputs)
    assert [p.zero_point for p in ports] == [zero_point] * 2
    assert_unsigned_outside_only(art)
    given = camera(art)
    (expected,) = by_reference(art, given)
    assert np.array_equal(art.run(*given).numpy(), expected)
    assert len(np.unique(expected)) > 50


def test_integers_and_masks_keep_their_types() -> None:
    def function(net: Net, x: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        return torch.where(mask, net.conv(x), x) + places

    data = [(torch.rand(1, 4, 8, 8), torch.rand(1, 4, 8, 8) > 0.5, torch.arange(8))
            for _ in range(2)]  # fmt: skip
    net = Net(function)
    art = tosaic.compile(net, data[0], calibration=data, io="uint8")
    assert [p.dtype for p in art.boundary.inputs] == ["uint8", "bool", "int64"]
    for index, kind in ((1, "bool"), (2, "int64")):
        with pytest.raises(InvalidInput, match=f"more_{index - 1} cannot be uint8: it is {kind}"):
            tosaic.compile(net, data[0], calibration=data, io={index: "uint8"})


def test_a_float_target_has_no_integers_at_its_boundary() -> None:
    for target in ("TOSA-1.0+FP", "TOSA-1.0+INT+FP"):
        with pytest.raises(InvalidInput, match="integers at the boundary are for quantized models"):
            tosaic.compile(cnn(), images(1)[0], target=target, io="uint8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        art = tosaic.compile(cnn(), images(1)[0], target="TOSA-1.0+FP", io="float")
    assert [p.dtype for p in art.boundary.inputs] == ["float32"]


class Camera(nn.Module):
    """A model that takes bytes itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.function = nn.Conv2d(3, 4, 3, padding=1), function

    def forward(self, frame: Tensor) -> Any:
        return self.function(self.conv, frame)


@pytest.mark.parametrize("target", [INTEGERS, *NPUS])
@pytest.mark.parametrize("io", [None, (None, "uint8"), {0: "uint8"}])
def test_bytes_that_the_model_itself_casts_are_read_in_the_graph(io: Any, target: str) -> None:
    def function(conv: nn.Module, frame: Tensor) -> Tensor:
        return conv(frame.float() / 255)

    torch.manual_seed(2)
    data = [(torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8),) for _ in range(4)]
    net = Camera(function)
    art = tosaic.compile(net, data[0], calibration=data, io=io, target=target)
    assert not art.report.refused
    (port,) = art.boundary.inputs
    assert (port.dtype, port.scale, port.zero_point) == ("uint8", 1.0, 0)
    (frame,) = data[1]
    with torch.no_grad():
        real = net(frame)
    assert (art.run(frame, raw=False) - real).abs().max() < 0.02
    arrays = run_reference(art.bytes, [frame.view(torch.int8).numpy()])
    codes = art.run(frame) if io == (None, "uint8") else None
    if codes is not None:
        assert np.array_equal(arrays[0].view(np.uint8), codes.numpy())
    assert [side for _, side, _ in flagged(art.graph)][:1] == ["input"]


def turned(conv: nn.Module, frame: Tensor) -> Tensor:
    return conv(frame.permute(0, 3, 1, 2).float() / 255)


def cut_and_flipped(conv: nn.Module, frame: Tensor) -> Tensor:
    part = frame[:, 2:, 1:9].contiguous().flip(2).movedim(-1, 1)
    return conv(part.to(torch.float32).sub(127.5).div(127.5))


@pytest.mark.parametrize("target", [INTEGERS, NPUS[0]])
@pytest.mark.parametrize("function", [turned, cut_and_flipped])
def test_bytes_that_are_moved_before_they_are_cast_are_read_in_the_graph(
    function: Callable[..., Any], target: str
) -> None:
    """As a camera gives them, with the channels last."""
    torch.manual_seed(2)
    data = [(torch.randint(0, 256, (1, 10, 10, 3), dtype=torch.uint8),) for _ in range(4)]
    net = Camera(function)
    art = tosaic.compile(net, data[0], calibration=data, target=target)
    assert not art.report.refused
    (port,) = art.boundary.inputs
    assert (port.dtype, port.scale, port.zero_point) == ("uint8", 1.0, 0)
    with torch.no_grad():
        assert (art.run(*data[1]) - net(*data[1])).abs().max() < 0.03


def test_bytes_that_are_computed_with_as_such_stay_in_pytorch() -> None:
    data = [(torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8),) for _ in range(2)]
    net = Camera(lambda conv, frame: conv((frame + 1).float() / 255))
    art = tosaic.compile(net, data[0], calibration=data)
    assert "frame is torch.uint8, which TOSA does not have" in art.report.refused[0].reason
    with torch.no_grad():
        assert (art.run(*data[1]) - net(*data[1])).abs().max() < 0.02


def test_a_tosa_file_takes_bytes_as_bytes() -> None:
    art = compiled("uint8")
    (picture,) = camera(art)
    loaded = tosaic.load(art.bytes)
    expected = by_reference(art, [picture])
    for given in (picture, picture.numpy(), picture.view(torch.int8)):
        assert np.array_equal(loaded.run(given)[0].view(np.uint8), expected[0])
    with pytest.raises(InvalidInput, match="takes int8 elements, not uint8"):
        tosaic.load(compiled("int8").bytes).run(picture)

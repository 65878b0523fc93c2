"""Schemes for the parts of a model: which counts, what it lowers to, and what the report says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.reference import run_reference
from tosaic.errors import InvalidInput
from tosaic.files.flatbuffer import write
from tosaic.interp.model import Model
from tosaic.pipeline.artifact import Artifact

ALL = "TOSA-1.0+INT+FP+int16+int4"
INTEGERS = "TOSA-1.0+INT+int16+int4"
Schemes = tosaic.Schemes


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Three(nn.Module):
    """Three parts with names."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Sigmoid())
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(8 * 64, 40))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(self.stem(x)))


EXAMPLE = (data(1, 3, 8, 8),)
CALIBRATION = [(data(1, 3, 8, 8, seed=s),) for s in range(1, 9)]


def compiled(scheme: Any, target: str = ALL, net: nn.Module | None = None) -> Artifact:
    return tosaic.compile(
        (net or Three()).eval(), EXAMPLE, target=target, scheme=scheme, calibration=CALIBRATION
    )


def kinds(art: Artifact) -> dict[str, str]:
    """The types that each module computes in, and those of its weights."""
    found, layers = {}, iter(("stem.0", "body.0", "head.1"))
    for op in art.graph.walk():
        kind = str(op.ins[0].dtype)
        if op.name == "CONV2D":
            found[next(layers)] = f"{kind} x {op.operand('weight').dtype}"
        elif op.name in ("TABLE", "SIGMOID"):
            found["body.1"] = kind
        elif op.name == "CLAMP" and op.attrs["max_val"] > 1e30:  # a ReLU that does not ride
            found["stem.1"] = kind
    return found


def sqnr(real: Tensor, got: Tensor) -> float:
    real = real.detach()
    return float(10 * torch.log10(real.square().sum() / (real - got).square().sum()))


def judged(art: Artifact, *inputs: Tensor) -> None:
    """Every graph of an artifact on what really comes to it, beside the reference model."""
    values = art.trace(*inputs)
    for piece in art.partition.pieces:
        if piece.graph is None:
            continue
        given = [
            np.ascontiguousarray(values[n].numpy()).astype(v.dtype.array).reshape(v.shape)
            for n, v in zip(piece.inputs, piece.graph.inputs, strict=True)
        ]
        has_floats = any(v.dtype.is_float for op in piece.graph.walk() for v in op.ins)
        ours, theirs = Model(piece.graph).run(*given), run_reference(write(piece.graph), given)
        for mine, reference in zip(ours, theirs, strict=True):
            assert len(np.unique(reference)) > 30
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(mine, reference, rtol=1e-4, atol=1e-5)
            elif has_floats:  # sums of floats in another order may round to the next integer
                off = np.abs(mine.astype(np.int64) - reference.astype(np.int64))
                assert off.max() <= 1
                assert (off > 0).mean() < 0.03
            else:
                np.testing.assert_array_equal(mine, reference)


PLAIN = {"stem.0": "i8 x i8", "body.0": "i8 x i8", "body.1": "i8", "head.1": "i8 x i8"}
FLOAT = {"stem.0": "f32 x f32", "stem.1": "f32", "body.0": "f32 x f32", "body.1": "f32",
         "head.1": "f32 x f32"}  # fmt: skip
NARROW = {"stem.0": "i8 x i4", "body.0": "i8 x i4"}
BODY = {"body.0": "f32 x f32", "body.1": "f32"}


@pytest.mark.parametrize(
    ("scheme", "wanted"),
    [
        ("int8", PLAIN),
        (Schemes("int8", module_names={"body": None}), PLAIN | BODY),
        (Schemes("int8", module_names={"body": None, "body.1": "a16w8"}),
         PLAIN | BODY | {"body.1": "i16"}),
        (Schemes("int8", module_types={nn.Conv2d: "a8w4"}), PLAIN | NARROW),
        (Schemes("int8", module_types={nn.Conv2d: "a8w4"}, module_names={"stem": "int8"}),
         PLAIN | {"body.0": "i8 x i4"}),
        (Schemes("int8", module_types={nn.Conv2d: None}, module_names={"stem": None, "body": None},
                 nodes={"conv2d": "a8w4"}),
         PLAIN | BODY | {"stem.0": "i8 x i4"}),
        (Schemes("int8", nodes={"aten.sigmoid.default": None}), PLAIN | {"body.1": "f32"}),
        (Schemes("int8", nodes={"aten.sigmoid.default": None, "sigmoid": "int8"}), PLAIN),
        (Schemes("int8", nodes={"conv2d": None}),
         PLAIN | {"stem.0": "f32 x f32", "stem.1": "f32"}),
        (Schemes("int8", nodes={"relu": None}), PLAIN | {"stem.1": "f32"}),
        (Schemes(None, module_names={"body": "int8"}),
         FLOAT | {"body.0": "i8 x i8", "body.1": "i8"}),
        (Schemes(None, module_names={"head": "int8"}, nodes={"sigmoid": "a16w8"}),
         FLOAT | {"body.1": "i16", "head.1": "i8 x i8"}),
    ],
)  # fmt: skip
def test_what_is_named_most_exactly_counts(scheme: Any, wanted: dict[str, str]) -> None:
    assert kinds(compiled(scheme)) == wanted


def test_integers_and_floats_live_in_one_graph() -> None:
    scheme = Schemes("int8", module_names={"body": None, "head": "a16w8"})
    art, x = compiled(scheme), data(1, 3, 8, 8, seed=99)
    assert art.report.refused == []
    types = {str(v.dtype) for op in art.graph.walk() for v in op.ins}
    assert {"f32", "i8", "i16"} <= types
    judged(art, x)
    assert sqnr(Three()(x), art.run(x)) > 35


def test_on_integers_alone_a_part_in_float_stays_in_pytorch_with_the_reason() -> None:
    art, x = compiled(Schemes("int8", module_names={"stem": None}), INTEGERS), data(1, 3, 8, 8)
    assert [r.op for r in art.report.refused] == ["aten.conv2d.default", "aten.relu.default"]
    assert all(r.reason.startswith("it is left in float (module stem), and")
               for r in art.report.refused)  # fmt: skip
    judged(art, x)
    assert sqnr(Three()(x), art.run(x)) > 35


def test_between_int8_and_int16_is_a_rescale() -> None:
    art, x = compiled(Schemes("int8", module_names={"body": "a16w8"}), INTEGERS), data(1, 3, 8, 8)
    crossing = {
        (str(op.ins[0].dtype), str(op.outs[0].dtype)) for op in art.graph.walk()
        if op.name == "RESCALE"
    }  # fmt: skip
    assert {("i8", "i16"), ("i16", "i8")} <= crossing
    judged(art, x)
    assert sqnr(Three()(x), art.run(x)) > 35


@pytest.mark.parametrize("zero_point", [0, 3, -7, -128])
def test_casts_inside_of_a_graph_are_pytorchs_quantize_and_dequantize(zero_point: int) -> None:
    """In every bit, ties and what saturates included."""
    from tosaic.ir.graph import Quant
    from tosaic.lowering.alternatives.cast import to_integers, to_real
    from tosaic.lowering.builder import Lowering
    from tosaic.spec import dtypes as d
    from tosaic.spec.env import Env

    b, scale = Lowering(Env.parse(ALL)), 0.0378
    steps = torch.cat([torch.arange(-300, 300) / 2, data(400) * 90, torch.tensor([1e9, -1e9])])
    real = (steps * scale).reshape(1, -1)
    x = b.input(d.F32, tuple(real.shape))
    levels = to_integers(b, x, Quant(scale, zero_point), d.I8)
    b.output(levels)
    b.output(to_real(b, levels))
    (got, back), operators = run_reference(write(b.graph), [real.numpy()]), torch.ops
    limits = scale, zero_point, -128, 127, torch.int8
    wanted = operators.quantized_decomposed.quantize_per_tensor(real, *limits)
    again = operators.quantized_decomposed.dequantize_per_tensor(wanted, *limits)
    assert len(wanted.unique()) > 200 or zero_point == -128
    assert np.array_equal(got, wanted.numpy())
    assert np.array_equal(back, again.numpy())


class Meeting(nn.Module):
    """Values with fixed ranges and without meet where data is moved."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.wide, self.plain = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        a, b, c = torch.sigmoid(x), torch.tanh(x), self.wide(x)
        return torch.cat([a.flip(2), b, c, self.plain(x).transpose(2, 3)], 1).reshape(1, 14, 64)


@pytest.mark.parametrize("scheme", ["int8", Schemes("int8", module_names={"wide": "a16w8"})])
def test_ranges_that_meet_are_rescaled_and_never_mixed_up(scheme: Any) -> None:
    net, x = Meeting(), data(1, 3, 8, 8, seed=99)
    art = compiled(scheme, INTEGERS, net)
    assert art.report.refused == []
    (joined,) = (op for op in art.graph.walk() if op.name == "CONCAT")
    assert len({v.dtype for v in joined.ins}) == 1
    judged(art, x)
    parts = zip(net(x).split([3, 3, 4, 4], 1), art.run(x).split([3, 3, 4, 4], 1), strict=True)
    assert min(sqnr(real, got) for real, got in parts) > 28


LAYERS = {
    "conv1d": (nn.Conv1d(4, 6, 3), (1, 4, 12), 0),
    "conv2d": (nn.Conv2d(4, 6, 3), (1, 4, 8, 8), 0),
    "conv3d": (nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), 0),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), (1, 6, 8, 8), 0),
    "multiplied": (nn.Conv2d(3, 6, 3, groups=3), (1, 3, 8, 8), 0),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (1, 4, 8, 8), 0),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 5, 5), 1),
    "transposed1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), (1, 4, 9), 1),
    "grouped transposed": (nn.ConvTranspose2d(4, 6, 3, groups=2), (1, 4, 5, 5), 1),
    "linear": (nn.Linear(12, 6), (3, 12), 0),
}


@pytest.mark.parametrize("scheme", ["int8", "a16w8", "a8w4"])
@pytest.mark.parametrize("name", LAYERS)
def test_scales_lie_along_the_channels_of_the_output(name: str, scheme: str) -> None:
    layer, shape, axis = LAYERS[name]
    with torch.no_grad():  # channels of very different size: a wrong axis would lose the small ones
        sizes = 10.0 ** -torch.arange(layer.weight.shape[axis])
        layer.weight.copy_(data(*layer.weight.shape).movedim(axis, -1).mul(sizes).movedim(-1, axis))
    examples = (data(*shape),)
    made = tosaic.quantize(layer, examples, scheme=scheme, calibration=[data(*shape, seed=1)])
    (node,) = (n for n in made.graph.nodes if n.op == "call_function" and len(n.args) > 2
               and "aten" in str(n.target))  # fmt: skip
    weight = node.args[1]
    assert weight.args[3] == axis
    art = tosaic.compile(made, examples, target=INTEGERS)
    assert art.report.refused == []
    scales = getattr(made, str(weight.args[1].target))
    assert len(scales) == layer.weight.shape[axis]
    assert float(scales.max() / scales.min()) > 10 ** (len(scales) - 2)


def test_a_wrong_use_gets_its_sentence() -> None:
    net = Three()
    for scheme, target, sentence in (
        ("int3", INTEGERS, "there is no scheme 'int3', perhaps int8; there are int8, a16w8, a8w4"),
        (5, INTEGERS, "a scheme is a name, or tosaic.Schemes"),
        ("a8w4", "TOSA-1.0+INT", "the scheme a8w4 needs int4, which TOSA-1.0.INT does not have"),
        ("a16w8", "TOSA-1.0+INT", "the scheme a16w8 needs int16, which TOSA-1.0.INT does not"),
        ("int8", "TOSA-1.0+FP", "has floats alone; a scheme needs a target with integers"),
        (Schemes("int8", module_names={"haed": None}), ALL, "calls no module 'haed'; .*head"),
        (Schemes("int8", module_types={nn.LSTM: None}), ALL, "calls no module of type .*LSTM"),
        (Schemes("int8", nodes={"conv2d_7": None}), ALL, "has no call 'conv2d_7'; .*conv2d"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            compiled(scheme, target, net)
    with pytest.raises(InvalidInput, match="there is no scheme 'int7'"):
        Schemes("int8", module_names={"stem": "int7"})
    with pytest.raises(InvalidInput, match="module_names is a dict of schemes, not list"):
        Schemes("int8", module_names=["stem"])  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="are for tosaic.compile, not for quantize"):
        tosaic.quantize(net, EXAMPLE, scheme=Schemes("int8", io="uint8"))


def test_the_report_says_what_each_call_computes_in_and_by_which_rule() -> None:
    scheme = Schemes("int8", module_names={"stem": None}, module_types={nn.Linear: "a8w4"})
    report = compiled(scheme).report
    told = report.quantization
    assert told is not None
    assert {(c.node, c.scheme, c.rule) for c in told.calls} == {
        ("conv2d", "float", "module stem"), ("relu", "float", "module stem"),
        ("conv2d_1", "int8", "global"), ("sigmoid", "int8", "global"),
        ("flatten", "int8", "global"), ("linear", "a8w4", "module type Linear"),
    }  # fmt: skip
    linear = told.calls[-1]
    assert (linear.weight.dtype, linear.weight.channels, linear.module) == ("int4", 40, "head.1")
    assert linear.result.dtype == "int8"
    assert told.schemes == {"int8": 3, "float": 2, "a8w4": 1}
    plain = json.loads(json.dumps(report.data()))
    assert plain["quantization"]["calls"][2]["result"]["dtype"] == "int8"
    assert "module type Linear" in str(told)
    assert "Calls by scheme: int8 3, float 2, a8w4 1" in str(report)


def test_what_could_not_be_followed_is_told_with_the_reason() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), Bessel())
    told = compiled("int8", INTEGERS, net).report.quantization
    assert told is not None
    (left,) = told.floats
    assert (left.op, left.rule) == ("aten.special_bessel_j0.default", "global")
    assert "there is no rule for" in left.reason


class Bessel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.special.bessel_j0(x)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_npu_runs_int4_weights_and_mixed_schemes(target: str) -> None:
    scheme = Schemes("a8w4", module_names={"head": "a16w8"})
    art, x = compiled(scheme, target), data(1, 3, 8, 8, seed=99)
    assert art.report.refused == []
    assert "i4" in {str(v.dtype) for op in art.graph.walk() for v in op.ins}
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))
    assert sqnr(Three()(x), art.run(x)) > 25

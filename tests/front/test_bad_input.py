"""Bad input and what does not fit: one clear sentence each."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.programs import FLOAT, INTEGER, assert_same, check, compiled
from tosaic.errors import InvalidInput
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.driver import compile_model

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")


class Two(nn.Module):
    def forward(self, x: Tensor, y: dict[str, Tensor]) -> Tensor:
        return x * 2 + y["a"]


def pair() -> tuple[Any, ...]:
    return torch.randn(2, 3), {"a": torch.randn(2, 3)}


@pytest.fixture(scope="module")
def art() -> Artifact:
    return compiled(Two(), pair())


RUNS: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few": ((torch.zeros(2, 3),), "the program takes 2 inputs, not 1"),
    "shape": (
        (torch.zeros(2, 4), {"a": torch.zeros(2, 3)}),
        r"input 0 \(x\) must be float32\[2,3\], as in the export, not float32\[2,4\]",
    ),
    "batch": (
        (torch.zeros(3, 3), {"a": torch.zeros(3, 3)}),
        r"input 0 \(x\) must be float32\[2,3\], as in the export, not float32\[3,3\]",
    ),
    "type": (
        (torch.zeros(2, 3), {"a": torch.zeros(2, 3, dtype=torch.int64)}),
        r"input 1 \(y_a\) must be float32\[2,3\], as in the export, not int64\[2,3\]",
    ),
    "no tensor": (("text", {"a": torch.zeros(2, 3)}), r"must be float32\[2,3\], not str"),
    "sparse": (
        (torch.zeros(2, 3).to_sparse(), {"a": torch.zeros(2, 3)}),
        r"input 0 \(x\) must be a dense tensor, not a sparse_coo one",
    ),
    "no values": (
        (torch.zeros(2, 3), {"a": torch.zeros(2, 3, device="meta")}),
        r"input 1 \(y_a\) must be a dense tensor, not a meta one",
    ),
    "nesting": ((torch.zeros(2, 3), [torch.zeros(2, 3)]), "the inputs are not nested like the exa"),
    "other key": ((torch.zeros(2, 3), {"b": torch.zeros(2, 3)}), "not nested like the example"),
}


@pytest.mark.parametrize("name", RUNS)
def test_what_does_not_fit_the_export_is_named_at_run_time(art: Artifact, name: str) -> None:
    arguments, sentence = RUNS[name]
    with pytest.raises(InvalidInput, match=sentence):
        art.run(*arguments)


def test_arrays_are_taken_as_tensors(art: Artifact) -> None:
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.ones((2, 3), np.float32)
    assert_same(art.run(x, {"a": y}), torch.as_tensor(x * 2 + y))


def converted() -> Any:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return tosaic.quantize(net, (torch.randn(2, 4),), calibration=[torch.randn(2, 4)])


def spoiled() -> nn.Module:
    net = nn.Linear(4, 4)
    nn.init.constant_(net.weight[0, 1:2], float("nan"))
    return net


def packed() -> nn.Module:
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})


def torn() -> Any:
    yield torch.randn(2, 4)
    raise ValueError("the disk is gone")


def made() -> Artifact:
    return tosaic.compile(nn.ReLU(), (torch.randn(2, 4),), target=FLOAT)


COMPILES: dict[str, tuple[Any, str]] = {
    "no examples": (
        lambda x: tosaic.compile(nn.ReLU()),
        "give example_inputs: a tensor, or a tuple of the model's arguments",
    ),
    "a product without its size": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="u85"),
        "no target .u85., perhaps ethos-u85-128, ethos-u85-256, .*; `tosaic targets` lists all",
    ),
    "a float scheme": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), scheme="fp32"),
        "no scheme 'fp32'; there are int8, .* and auto; a model in float needs no scheme and a",
    ),
    "calibration that breaks off": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), calibration=torn()),
        "calibration input 2 cannot be read: ValueError: the disk is gone",
    ),
    "calibration without elements": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), calibration=[x, x[:0]]),
        "calibration input 2 has no elements in input: leave it out",
    ),
    "an option that is called otherwise": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="ethos-u55-128", max_flash=5),
        "ethos-u55-128 has no option 'max_flash', perhaps max_flash_bytes; it has system_config, ",
    ),
    "an option of another type": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="ethos-u55-128", max_flash_bytes="big"),
        "the option max_flash_bytes is of type int, not 'big'",
    ),
    "a limit below nothing": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="ethos-u55-128", max_scratch_bytes=-1),
        "max_scratch_bytes and max_flash_bytes are bytes, and 0 is no limit",
    ),
    "an option of VGF of another type": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="vgf", widen="perhaps"),
        "the option widen is of type bool, not 'perhaps'",
    ),
    "saved to nothing": (
        lambda x: made().save(None),  # type: ignore[arg-type]
        "an artifact is saved to a path, not to NoneType",
    ),
    "compared the other way round": (
        lambda x: tosaic.compare(made(), nn.ReLU(), [x]),  # type: ignore[arg-type]
        "compare takes the model, then what compile gave of it, not a ReLU",
    ),
    "a number as model": (lambda x: tosaic.compile(3, (x,)), "a model is an nn.Module"),
    "a list": (
        lambda x: tosaic.compile(nn.ReLU(), [x]),  # type: ignore[arg-type]
        "example_inputs must be a tensor or a tuple of the model's arguments, not a list",
    ),
    "unknown target": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), target="U55"),
        "there is no target 'U55'",
    ),
    "unknown scheme": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), scheme="int3", calibration=[x]),
        "there is no scheme 'int3'",
    ),
    "empty calibration": (
        lambda x: tosaic.compile(nn.ReLU(), (x,), calibration=[]),
        "there is no calibration input: give at least one",
    ),
    "calibration of another shape": (
        lambda x: tosaic.compile(nn.Linear(4, 4), (x,), calibration=[torch.randn(2, 5)]),
        "calibration input 1 does not run",
    ),
    "quantized and a scheme": (
        lambda x: tosaic.compile(converted(), (x,), scheme="int8"),
        "the model is quantized already; give it without a scheme",
    ),
    "too many examples": (
        lambda x: tosaic.compile(nn.ReLU(), (x, x + 1), target=FLOAT),
        "the example inputs do not fit ReLU.forward",
    ),
    "an array as example": (
        lambda x: tosaic.compile(nn.ReLU(), (x.numpy(),)),
        r"example input 0 is an array: give torch.from_numpy\(array\)",
    ),
    "NaN in a weight": (
        lambda x: tosaic.compile(spoiled(), (x,)),
        "^weight has NaN in it: train the model again",
    ),
    "nothing to compute": (
        lambda x: tosaic.compile(nn.Identity(), (x,), target="ethos-u55-128"),
        "nothing of the model runs on ethos-u55-128: it has no calls",
    ),
    "packed weights": (
        lambda x: tosaic.compile(packed(), (x,)),
        "quantized.linear_dynamic.default has packed weights .* give the float model",
    ),
    "examples that overlap": (
        lambda x: tosaic.compile(Two(), (x[:, :2], {"a": x[:, 1:3]}), target=FLOAT),
        "example inputs 0 and 1 overlap in memory; pass a clone",
    ),
    "a model without values": (
        lambda x: tosaic.compile(nn.Linear(4, 4, device="meta"), (x,), target=FLOAT),
        "Linear is on the meta device and has no values: load them first",
    ),
    "examples without values": (
        lambda x: tosaic.compile(nn.Linear(4, 4), (x.to("meta"),)),
        "example inputs on the meta device have no values: give calibration",
    ),
}


@pytest.mark.filterwarnings("ignore:no calibration data", "ignore:Unable to execute the generated")
@pytest.mark.parametrize("name", COMPILES)
def test_wrong_uses_of_compile_get_a_sentence(name: str) -> None:
    call, sentence = COMPILES[name]
    with pytest.raises(InvalidInput, match=sentence):
        call(torch.randn(2, 4))


def test_examples_that_share_a_storage_but_no_element_are_fine() -> None:
    both = torch.randn(4, 6)
    check(Two(), (both[:, ::2], {"a": both[:, 1::2]}))


def test_a_dynamic_dimension_is_named_with_the_way_out() -> None:
    shapes = {"x": {0: torch.export.Dim("n", min=2, max=9)}, "y": {"a": {0: torch.export.Dim.AUTO}}}
    with pytest.warns(UserWarning, match=r"x.shape\[0\]=1; x.shape\[0\]=2; x.shape\[0\]=9"):
        compile_model(Two(), pair(), FLOAT, None, None, shapes)
    exported = torch.export.export(Two(), pair(), dynamic_shapes=shapes)
    with pytest.raises(InvalidInput, match=r"dimension 0 of input 0 \(x\) is dynamic, .* compile"):
        tosaic.explain(exported, pair(), target=FLOAT)
    with pytest.raises(InvalidInput, match="the program is exported already"):
        compile_model(exported, pair(), FLOAT, None, None, shapes)


def test_dynamic_shapes_that_specialise_are_taken() -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(2, 3) + torch.ones(2, 3)

    x = torch.randn(2, 3)
    shapes = {"x": {0: torch.export.Dim.AUTO}}
    with pytest.warns(UserWarning, match=r"x.shape\[0\] is always 2: torch.export says so"):
        art = compile_model(Fixed(), (x,), FLOAT, None, None, shapes)
    assert_same(art.run(x), Fixed()(x))


class Devices(nn.Module):
    """Makes tensors where its input is, and asks for a device by name."""

    def forward(self, x: Tensor) -> Tensor:
        y = x + torch.zeros(2, 3, device=x.device) + torch.arange(3, device="cpu")
        return y.to("cpu") * torch.full_like(x, 2.0)


def test_devices_inside_a_graph_are_moved_as_one() -> None:
    x = torch.randn(2, 3)
    exported = torch.export.export(Devices(), (x,))
    elsewhere, moved = torch.device("cuda"), 0
    for node in exported.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": elsewhere}
            moved += 1
        if any(isinstance(a, torch.device) for a in node.args):
            node.args = tuple(elsewhere if isinstance(a, torch.device) else a for a in node.args)
            moved += 1
    assert moved >= 2
    for target in (FLOAT, "TOSA-1.0+INT+FP"):
        art = tosaic.compile(exported, (x,), target=target)
        assert_same(art.run(x), Devices()(x))


def test_an_example_without_values_serves_where_nothing_is_calibrated() -> None:
    x = torch.randn(2, 3)
    art = tosaic.compile(Devices(), (x.to("meta"),), target=FLOAT)
    assert_same(art.run(x), Devices()(x))
    net = nn.Linear(3, 3)
    quantized = compiled(net, (x.to("meta"),), INTEGER, calibration=[x, -x, x / 2])
    assert (quantized.run(x) - net(x)).abs().max() < 0.1


def test_a_program_exported_without_values_is_refused() -> None:
    with torch.device("meta"):
        net, x = nn.Linear(3, 3), torch.randn(2, 3)
    exported = torch.export.export(net, (x,))
    with pytest.raises(InvalidInput, match="weight is on the meta device and has no values"):
        tosaic.compile(exported, (x,), target=FLOAT)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x - 1


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(5)


@pytest.mark.parametrize(
    ("net", "sentence"),
    [
        (Branching(), "a branch, a loop or a size depends on values .* torch.where or torch.cond"),
        (Failing(), "torch.export does not take Failing: SystemExit: 5"),
        (nn.Sequential(Branching()), "Sequential: a branch"),
    ],
)
def test_what_cannot_be_exported_is_told_once_with_the_users_line(
    net: nn.Module, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidInput, match=sentence) as told:
        tosaic.compile(net, (torch.randn(2, 3),), target=FLOAT)
    kind = type(net[0] if isinstance(net, nn.Sequential) else net)
    line = inspect.getsourcelines(kind.forward)[1] + 1
    assert str(told.value).endswith(f"(at {__file__}:{line})")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("size", [3e38, 2.0**118, 1e-44])
def test_numbers_at_the_ends_of_float_are_calibrated(size: float) -> None:
    """They overflow or vanish where a histogram scales them."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4) * size
    art = tosaic.compile(nn.ReLU(), (x,), calibration=[x, x.flip(0)])
    assert art.report.refused == []
    if size < 1e38:  # larger ones stand for masks, which do not count
        assert (art.run(x) - x.relu()).abs().max() <= size / 100 + 2**-30


def test_arrays_calibrate_as_tensors_do() -> None:
    net, data = nn.Linear(4, 3), [torch.randn(2, 4) for _ in range(3)]
    made = [
        tosaic.compile(net, (data[0],), calibration=given).bytes
        for given in (data, [d.numpy() for d in data], [(d.numpy(),) for d in data])
    ]
    assert made[0] == made[1] == made[2]

"""Each family of ATen names has one canonical overload, which is all that passes and rules know."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
import tosaic.rules
from tosaic.front import torchapi
from tosaic.front.registry import RULES
from tosaic.passes.importer import import_model

aten = torch.ops.aten


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def names(model: Any, *examples: Tensor) -> list[str]:
    graph = import_model(model, examples).model.graph
    return [str(n.target) for n in graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("aten.add_.Tensor", "aten.add.Tensor"),
        ("aten.pow_.Scalar", "aten.pow.Tensor_Scalar"),
        ("aten.floor_divide_.Tensor", "aten.floor_divide.default"),
        ("aten.permute_copy.default", "aten.permute.default"),
        ("aten.subtract_.Tensor", "aten.sub.Tensor"),
        ("aten.__and__.Tensor", "aten.bitwise_and.Tensor"),
        ("aten.swapaxes.default", "aten.transpose.int"),
        ("aten.max.other", "aten.maximum.default"),
        ("aten.add_.Scalar", "aten.add.Tensor"),
        ("aten.div.Scalar_mode", "aten.div.Tensor_mode"),
        ("aten.index_copy.default", "aten.index_copy.default"),
        ("aten._to_copy.default", "aten._to_copy.default"),
        ("aten.max.dim", "aten.max.dim"),
        ("aten.add.out", "aten.add.out"),
        ("getitem", "getitem"),
    ],
)
def test_a_name_has_one_canonical_form(name: str, plain: str) -> None:
    assert torchapi.canonical_name(name) == plain
    if name != plain:
        assert name in torchapi.aliases(plain)


def test_rules_are_registered_for_canonical_overloads_alone() -> None:
    assert [name for name in RULES if torchapi.canonical_name(name) != name] == []


def test_an_imported_program_calls_canonical_overloads_alone() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.subtract(x.clone().relu_(), 1).swapaxes(0, 1)
        y = torch.add(y, 2, out=torch.empty_like(y))
        y += aten.permute_copy(x, [1, 0])
        return y.masked_fill_((y > 0) & (y < 1), 0.5).clamp_(-1, 3)

    x = torch.linspace(-2, 3, 12).reshape(3, 4)
    found = names(Calls(function), x)
    assert found == [torchapi.canonical_name(name) for name in found]
    assert "aten.relu.default" in found
    art = tosaic.compile(Calls(function), (x,), target="TOSA-1.0+FP")
    torch.testing.assert_close(torch.as_tensor(art.run(x)), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().logical_and_(x > 1),
        lambda x: x.clone().gt_(0.5),
        lambda x: x.clone().add_(torch.ones(4, dtype=torch.float64)),
        lambda x: x.half().add_(x).float(),
    ],
)
def test_what_is_written_in_place_keeps_its_type(function: Any) -> None:
    x = torch.tensor([[-1.0, 0.0, 0.75, 2.0]])
    source = import_model(Calls(function), (x,))
    run = torchapi.module_of(source.model)
    (made,) = torchapi.flatten(run(x))[0]
    assert made.dtype is function(x).dtype
    assert torch.equal(made, function(x))


def test_values_keep_the_names_that_the_author_wrote() -> None:
    from tosaic.quant.flow import float_module
    from tosaic.quant.quantizer import TosaicQuantizer
    from tosaic.quant.value_names import name_of

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Dropout(inplace=True)).eval()
    source = import_model(net, (torch.randn(1, 3, 8, 8),))
    module = float_module(source, TosaicQuantizer("int8"))
    assert {"0/conv2d", "1/relu_"} <= {name_of(n) for n in module.graph.nodes}
    assert module.meta["tosaic.outline"][-2:] == ["1/relu_", "2/dropout_"]


def test_a_scheme_finds_calls_by_either_name() -> None:
    from tosaic.quant import Schemes, quantize

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), nn.Hardswish(inplace=True)).eval()
    x = torch.randn(1, 3, 8, 8)
    for key in ("aten.hardswish_.default", aten.hardswish_.default, "aten.hardswish.default"):
        made = quantize(net, (x,), scheme=Schemes("int8", nodes={key: None}), calibration=[x])
        (call,) = [n for n in made.graph.nodes if "hardswish" in str(n.target)]
        assert "dequantize" in str(call.args[0])
        assert not any("quantize_per" in str(user.target) for user in call.users)


def test_functions_of_branches_are_canonical_too() -> None:
    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(
                x.sum() > 0, lambda v: torch.subtract(v, 1), lambda v: torch.multiply(v, 2), (x,)
            )

    model = import_model(Branches(), (torch.randn(3),)).model
    inner = [
        str(n.target) for part in model.graph_module.modules() if hasattr(part, "graph")
        for n in part.graph.nodes if n.op == "call_function"
    ]  # fmt: skip
    assert "aten.sub.Tensor" in inner
    assert "aten.mul.Tensor" in inner
    assert "aten.subtract.Tensor" not in inner


def test_the_given_program_is_left_as_it_was() -> None:
    x = torch.randn(3, 4)
    exported = torch.export.export(Calls(lambda x: torch.subtract(x, 1).relu()), (x,))
    before = str(exported.graph)
    tosaic.compile(exported, (x,), target="TOSA-1.0+FP")
    assert str(exported.graph) == before


def test_the_support_table_has_the_names_that_programs_have() -> None:
    from tosaic.pipeline.op_support import columns_for, support

    wanted = ("aten.relu.default", "aten.relu_.default", "aten.permute_copy.default")
    rows = {
        row.op: row.answers for row in support(columns_for("TOSA-1.0+FP"), lambda op: op in wanted)
    }
    assert sorted(rows) == sorted(wanted)
    assert rows["aten.relu.default"] == rows["aten.relu_.default"]

"""The engine and the matcher of the FX passes, alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import tosaic
from tosaic.front import torchapi
from tosaic.passes import phases
from tosaic.passes.engine import Call, Pass, Replacement, node_pass, run
from tosaic.passes.importer import import_model, with_attention
from tosaic.passes.match import matched, name_of, number, op, var

aten = torch.ops.aten
ATTENTION = "aten.scaled_dot_product_attention.default"


def module_of(function: Any, *examples: Tensor) -> fx.GraphModule:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    return torchapi.module_of(import_model(Net(), examples).model)


def calls(module: fx.GraphModule) -> list[str]:
    return [name_of(n) for n in module.graph.nodes if name_of(n)]


def test_a_node_becomes_another_call_and_keeps_its_name() -> None:
    @node_pass("aten.sin.default")
    def sine_to_cosine(node: fx.Node) -> Replacement:
        return Call(aten.cos.default, node.args)

    x = torch.randn(4)
    module = module_of(lambda x: x.sin() + 1, x)
    name = next(n.name for n in module.graph.nodes if name_of(n) == "aten.sin.default")
    assert run(module, [sine_to_cosine])
    assert any(n.name == name and name_of(n) == "aten.cos.default" for n in module.graph.nodes)
    assert torch.equal(torchapi.flatten(module(x))[0][0], x.cos() + 1)
    assert not run(module, [sine_to_cosine])


def test_consumers_read_the_replacement_and_dead_code_goes() -> None:
    @node_pass("aten.exp.default")
    def exp_of_log(node: fx.Node) -> Replacement:
        found = matched(node, op("exp.default", op("log.default", var("x"))))
        return None if found is None else found["x"]

    module = module_of(lambda x: x.log().exp() + x.exp(), torch.rand(4))
    run(module, [exp_of_log])
    assert calls(module) == ["aten.exp.default", "aten.add.Tensor"]


def test_passes_run_on_the_functions_of_branches() -> None:
    seen = []

    def look(module: fx.GraphModule) -> bool:
        seen.append(calls(module))
        return False

    class Branches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))

    module = torchapi.module_of(import_model(Branches(), (torch.randn(3),)).model)
    run(module, [Pass("look", look)])
    assert ["aten.sin.default"] in seen[:2]
    assert ["aten.cos.default"] in seen[:2]
    assert "cond" in seen[2]


def test_operands_of_a_sum_match_in_either_order_and_behind_copies() -> None:
    form = op("add.Tensor", op("sin.default", var("x")), number("n"), commutes=True)
    for function in (lambda x: x.sin() + 2, lambda x: x.sin().clone() + 2):
        last = [n for n in module_of(function, torch.randn(4)).graph.nodes if name_of(n)][-1]
        found = matched(last, form)
        assert found is not None
        assert found["n"] == 2
        assert found["x"].op == "placeholder"
    last = [n for n in module_of(lambda x: x.sin() - 2, torch.randn(4)).graph.nodes if name_of(n)]
    assert matched(last[-1], form) is None


def test_a_variable_is_the_same_operand_wherever_it_stands() -> None:
    form = op("mul.Tensor", var("x"), op("tanh.default", var("x")), commutes=True)
    for function, is_same in (
        (lambda x: x.tanh() * x, True),
        (lambda x: x.tanh() * 2, False),
    ):
        last = [n for n in module_of(function, torch.randn(4)).graph.nodes if name_of(n)][-1]
        assert (matched(last, form) is not None) is is_same


def test_the_order_of_passes_is_data_with_a_name_for_each() -> None:
    order = phases.quantization(lambda module: False)
    for listed in (phases.IMPORT, phases.FLOAT, order):
        assert all(isinstance(each, Pass) and each.name for each in listed)
    names = [each.name for each in order]
    assert names.index("fold_constants") < names.index("fuse_attention") < names.index("decompose")
    assert next(each.name for each in phases.IMPORT) == "canonical_overloads"


class Attention(nn.Module):
    """Attention as it is written out, with a mask of one kind."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.kind, self.inner = kind, nn.Linear(8, 24)
        self.register_buffer("past", torch.ones(6, 6).tril().bool())

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.inner(x).reshape(2, 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(4)
        if self.kind == "causal":
            scores = scores.masked_fill(~self.past, -math.inf)
        elif self.kind == "added":
            scores = scores + (1.0 - mask)[:, None, None] * -1e4
        elif self.kind == "filled":
            scores = scores.masked_fill(mask[:, None, None] == 0, -1e4)
        return torch.softmax(scores, -1) @ v


@pytest.mark.parametrize(
    ("kind", "is_found"), [("none", True), ("causal", True), ("added", True), ("filled", False)]
)
def test_written_attention_is_recognised_in_float_where_it_is_exact(
    kind: str, is_found: bool
) -> None:
    """A row that is masked altogether is the mean of all values where −10000 is filled in, which
    the operator with a condition does not give."""
    net, x = Attention(kind).eval(), torch.randn(2, 6, 8)
    masks = torch.tensor([[1.0, 1, 1, 1, 0, 0], [0.0, 0, 0, 0, 0, 0]])
    source = with_attention(import_model(net, (x, masks)))
    assert (ATTENTION in [name_of(n) for n in source.model.graph.nodes]) is is_found
    art = tosaic.compile(net, (x, masks), target="TOSA-1.0+FP")
    assert not art.report.refused
    torch.testing.assert_close(torch.as_tensor(art.run(x, masks)), net(x, masks))


def test_attention_of_a_vector_is_left_as_it_is() -> None:
    class Pointer(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.softmax(q @ k.transpose(0, 1), -1) @ k

    q, k = torch.randn(4), torch.randn(6, 4)
    for target in ("TOSA-1.0+FP", "TOSA-1.0+INT"):
        given = {} if "FP" in target else {"calibration": [(q, k)]}
        art = tosaic.compile(Pointer(), (q, k), target=target, **given)
        made = torch.as_tensor(art.run(q, k))
        torch.testing.assert_close(made, Pointer()(q, k), atol=1e-5 if not given else 0.1, rtol=0)

"""Plain modules are traced without torch.export, and give its very program."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import tosaic
import zoo
from judges.programs import check
from tosaic.front import torchapi
from tosaic.front.torchapi.tracing import TracedProgram, Untraced, traced

NETWORKS = ("ds_cnn", "mobilenet_v3_small", "resnet18", "squeezenet", "super_resolution", "yolo")
_BATCH_NORM = torch.ops.aten.batch_norm.default, torch.ops.aten.layer_norm.default


class Mixed(nn.Module):
    """Several results, writes in place, indices, constants from nothing, a nested argument."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 12)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.norm = nn.LayerNorm(12)
        self.register_buffer("places", torch.arange(5), persistent=False)

    def forward(self, given: dict[str, Tensor], input: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        x = self.embedding(given["tokens"]) + self.places[:, None]
        y, _ = self.attention(x, x, x, need_weights=False)
        first, second = self.norm(x + y).chunk(2, -1)
        first = torch.relu_(first * input)
        mask = torch.ones(5, 5).tril().bool()
        return first[:, self.places[1:3]], {"all": second.masked_fill(~mask[:, :1], 0.0)}


def mixed() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Mixed().eval(), ({"tokens": torch.tensor([[1, 2, 3, 4, 10]])}, torch.tensor(2.0))


def plain_arguments(node: fx.Node) -> str:
    """Arguments without the last of norms, which says whether a GPU's library may serve."""
    bound = torchapi.bound_arguments(node)
    if node.target in _BATCH_NORM:
        bound = {k: v for k, v in bound.items() if not k.startswith("cudnn")}
    return str(bound)


def form(node: fx.Node) -> list[Any]:
    leaves, _ = torchapi.flatten(node.meta.get("val"))
    return [(t.shape, t.stride(), t.dtype, t.device) for t in leaves if isinstance(t, Tensor)]


def assert_same_program(mine: Any, theirs: Any) -> None:
    calls = [n for n in theirs.graph.nodes if "_assert" not in str(n.target)]
    assert len(calls) == len(mine.graph.nodes) > 5
    for own, other in zip(mine.graph.nodes, calls):
        assert own.name == other.name
        assert own.target == other.target
        assert plain_arguments(own) == plain_arguments(other)
        assert own.op == "output" or form(own) == form(other)
        if own.op == "call_function":
            assert torchapi.location(own) == torchapi.location(other)
            assert [*torchapi.modules_of(own)] == [*torchapi.modules_of(other)]
    assert mine.graph_signature == theirs.graph_signature
    assert mine.call_spec == theirs.call_spec
    assert mine.state_dict.keys() == theirs.state_dict.keys()
    assert mine.constants.keys() == theirs.constants.keys()
    names = [p.module_call_graph[0].signature.forward_arg_names for p in (mine, theirs)]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_traced_network_is_the_program_that_torch_export_gives(name: str) -> None:
    if zoo.missing(name):
        pytest.skip(f"{zoo.missing(name)} is not installed")
    net, example, _ = zoo.build(name)
    net.eval()
    assert_same_program(traced(net, example), torchapi.export(net, example))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(1, 1, 5, 4), (2, 6, 9, 7), (2, 6, 1, 1)])
def test_a_traced_convolution_has_the_sizes_and_strides_of_one_that_runs(
    size: tuple[int, ...], layout: torch.memory_format
) -> None:
    x = torch.randn(size).to(memory_format=layout)
    for kernel, stride, padding, dilation in itertools.product((1, (3, 2)), (1, 2), (1, 2), (1, 2)):
        for groups in {1, size[1]}:
            layer = nn.Conv2d(size[1], 12, kernel, stride, padding, dilation, groups)
            layer = layer.to(memory_format=layout)
            try:
                result = layer(x)
            except RuntimeError:  # the window is larger than what it moves over
                with pytest.raises(Untraced):
                    traced(layer, (x,))
                continue
            (call,) = (n for n in traced(layer, (x,)).graph.nodes if n.op == "call_function")
            assert form(call) == [(result.shape, result.stride(), result.dtype, result.device)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [(8,), (3, 8), (1, 5, 8), (4, 1, 8), (2, 3, 4, 8), (2, 0, 8)])
def test_a_traced_linear_layer_has_the_sizes_and_strides_of_one_that_runs(
    size: tuple[int, ...], bias: bool
) -> None:
    layer = nn.Linear(8, 6, bias)
    last_first = torch.randn(size).movedim(-1, 0).contiguous().movedim(0, -1)
    for x in (torch.randn(size), last_first, torch.randn(*size[:-1], 16)[..., ::2]):
        result = layer(x)
        (call,) = (n for n in traced(layer, (x,)).graph.nodes if n.op == "call_function")
        assert form(call) == [(result.shape, result.stride(), result.dtype, result.device)]
    with pytest.raises(Untraced):
        traced(layer, (torch.randn(*size[:-1], 7),))


@pytest.mark.parametrize(
    "x", [torch.randn(1, 5, 8, 8), torch.ones(1, 6, 8, 8, dtype=torch.int64), torch.randn(1, 6, 8)]
)
def test_a_convolution_that_does_not_fit_its_input_is_not_traced(x: Tensor) -> None:
    with pytest.raises(Untraced):
        traced(nn.Conv2d(6, 4, 3), (x,))


def test_nested_arguments_attention_and_writes_in_place_are_those_of_torch_export() -> None:
    net, example = mixed()
    assert_same_program(traced(net, example), torchapi.export(net, example))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.second = nn.GRU(8, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (hidden, _) = self.first(x)
        return self.second(y)[0], hidden


def test_recurrent_layers_are_traced_and_keep_the_lists_of_their_parameters() -> None:
    net, x = Recurrent().eval(), torch.randn(1, 6, 3)
    lists = [id(net.first._flat_weights), id(net.second._flat_weights)]
    mine = traced(net, (x,))
    assert lists == [id(net.first._flat_weights), id(net.second._flat_weights)]
    assert all(type(w) is nn.Parameter for w in net.first._flat_weights)
    theirs = torchapi.export(net, (x,))
    assert operators(mine) == operators(theirs)
    for one, other in zip(mine.module()(x), net(x), strict=True):
        torch.testing.assert_close(one, other)


def operators(program: Any) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if "aten" in str(n.target)]


class Picked(nn.Module):
    """Sizes that depend on values, but on no input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., self.mask.nonzero().squeeze(1)] * 2, x[:, self.mask]


def test_sizes_that_no_input_changes_are_known() -> None:
    net, x = Picked(), torch.randn(2, 3)
    assert isinstance(torchapi.captured(net, (x,)), TracedProgram)
    for target, near in (("TOSA-1.0+FP", 1e-6), ("TOSA-1.0+INT", 0.05)):
        options: Any = {"calibration": [(x,)]} if "INT" in target else {}
        art = tosaic.compile(net, (x,), target=target, **options)
        assert not art.report.refused
        torch.testing.assert_close(art.run(x), net(x), rtol=0, atol=near)


def test_sizes_that_an_export_leaves_open_stay_in_pytorch_with_the_reason() -> None:
    net, x = Picked(), torch.randn(2, 3)
    exported = torch.export.export(net, (x,))
    art = tosaic.compile(exported, (x,), target="TOSA-1.0+INT", calibration=[(x,)])
    assert any("size that depends on the input" in r.reason for r in art.report.refused)
    torch.testing.assert_close(art.run(x), net(x), rtol=0, atol=0.05)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if float(x.sum()) > 0 else x


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        self.count += x
        return self.count * 2


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Any = None
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2
        self.seen.append(self.last)
        return self.last + 1


class Padded(nn.Module):
    """Pads to a multiple of a step that is a buffer, and takes what is beyond an index of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        missing = -x.shape[-1] % self.step
        if missing > 0:
            x = nn.functional.pad(x, (int(missing), self.step // 2))
        return x * self.step


def test_numbers_of_buffers_may_be_read_in_python() -> None:
    """torch.export has no values for them, so it takes no such module."""
    check(Padded(), (torch.randn(2, 6),))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_traced(kind: Any) -> None:
    net, example = kind(5, 7, batch_first=True).eval(), (torch.randn(1, 4, 5),)
    before = list(net._flat_weights)
    assert isinstance(traced(net, example), TracedProgram)
    assert all(a is b for a, b in zip(net._flat_weights, before, strict=True))


class Closed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tensor([1.0, 2.0, 3.0])


class Choosing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))


class Cast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return x[:, None] @ x[None]


class Sized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


class Written(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        mask = torch.zeros(3)
        mask[1:] = x[1:]
        return mask.nonzero() * 2


@pytest.mark.parametrize(
    "kind",
    [Branching, Counting, Remembering, Closed, Choosing, Cast, Sized, Written],
    ids=lambda k: k.__name__,
)
def test_what_is_not_plain_is_left_to_torch_export_and_leaves_no_trace(kind: Any) -> None:
    net, x = kind(), torch.tensor([1.0, -2.0, 3.0])
    with pytest.raises(Untraced):
        traced(net, (x,))
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not torch.compiler.is_compiling()
    assert not net._forward_hooks
    assert not net._forward_pre_hooks
    assert all(type(buffer) is Tensor for buffer in net.buffers())
    if isinstance(net, Remembering):
        assert net.last is None
        assert not net.seen
    if isinstance(net, Counting):
        assert not net.count.any()


def test_a_trace_changes_neither_values_nor_random_numbers_nor_modes() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout(), nn.ReLU(inplace=True))
    x = torch.rand(1, 1, 6, 6)
    before, state = x.clone(), {k: v.clone() for k, v in net.state_dict().items()}
    numbers = torch.get_rng_state()
    made = torchapi.captured(net, (x,))
    assert isinstance(made, TracedProgram)
    assert net.training
    assert net[1].training
    assert torch.equal(x, before)
    assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)


def test_what_writes_to_a_value_that_is_read_again_is_found_by_torch() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 3
            part = y[:, 1:]
            part.add_(1)
            return y + part.sum()

    x = torch.randn(2, 4)
    art = tosaic.compile(Twice(), (x,), target="TOSA-1.0+FP")
    torch.testing.assert_close(art.run(x), Twice()(x.clone()))


def test_a_plain_network_is_compiled_without_loading_torch_compile_and_torchao() -> None:
    script = """
import sys, torch, tosaic
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU6(), torch.nn.MaxPool2d(2),
    torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5), torch.nn.Softmax(-1))
x = (torch.rand(1, 3, 12, 12),)
art = tosaic.compile(net, x, calibration=[x])
assert not art.report.refused
art.bytes
heavy = {"torch._dynamo", "torch._inductor", "torchao", "sympy", "executorch",
         "torch.distributed.tensor"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["[]"]

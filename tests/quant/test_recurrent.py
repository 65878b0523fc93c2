"""Recurrent layers: their steps mean what PyTorch's layers mean, share what is the same, and are
exact in integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, fx, nn

import tosaic
from judges.programs import fed
from judges.reference import run_reference
from tosaic.front import torchapi
from tosaic.passes.decompose import expand

H = 6
FORMS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "lstm": (lambda: nn.LSTM(4, H), (torch.ones(3, 2, 4),)),
    "lstm of two layers both ways": (
        lambda: nn.LSTM(4, H, 2, batch_first=True, bidirectional=True, dropout=0.5),
        (torch.ones(1, 3, 4),),
    ),
    "lstm with a projection and a state": (
        lambda: nn.LSTM(4, H, proj_size=3, bias=False, bidirectional=True),
        (torch.ones(3, 1, 4), (torch.ones(2, 1, 3), torch.ones(2, 1, H))),
    ),
    "gru without a batch": (lambda: nn.GRU(4, H), (torch.ones(3, 4),)),
    "gru both ways with a state": (
        lambda: nn.GRU(4, H, bidirectional=True, batch_first=True),
        (torch.ones(2, 3, 4), torch.ones(2, 2, H)),
    ),
    "gru in blocks of steps": (
        lambda: nn.GRU(4, H, 2, bidirectional=True),
        (torch.ones(19, 2, 4),),
    ),
    "rnn": (lambda: nn.RNN(4, H, 2), (torch.ones(3, 1, 4),)),
    "rnn with relu": (
        lambda: nn.RNN(4, H, nonlinearity="relu", bias=False),
        (torch.ones(3, 1, 4), torch.ones(1, 1, H)),
    ),
    "lstm cell": (lambda: nn.LSTMCell(4, H), (torch.ones(2, 4),)),
    "lstm cell with a state": (
        lambda: nn.LSTMCell(4, H),
        (torch.ones(2, 4), (torch.ones(2, H), torch.ones(2, H))),
    ),
    "gru cell": (lambda: nn.GRUCell(4, H, bias=False), (torch.ones(2, 4), torch.ones(2, H))),
    "rnn cell": (lambda: nn.RNNCell(4, H), (torch.ones(1, 4), torch.ones(1, H))),
}
TARGETS = [
    ("TOSA-1.0+INT", "int8", 18.0),
    ("TOSA-1.0+INT+int16", "int8", 24.0),
    ("TOSA-1.0+INT+int16", "a16w8", 30.0),
]


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    net: nn.Module = FORMS[name][0]().eval()
    for key, weights in net.named_parameters():
        if "weight" in key:
            nn.init.normal_(weights, 0, 1.2 / weights.shape[1] ** 0.5)
    return net


def drawn(name: str, count: int, seed: int) -> list[tuple[Any, ...]]:
    make = torch.Generator().manual_seed(seed)
    flat, spec = torchapi.flatten(FORMS[name][1])
    return [
        torchapi.unflatten([4 * torch.rand(t.shape, generator=make) - 2 for t in flat], spec)
        for _ in range(count)
    ]


def flat(values: Any) -> list[Tensor]:
    return list(torchapi.flatten(values)[0])


def is_recurrent(node: fx.Node) -> bool:
    return any(kind in torchapi.target_name(node) for kind in ("lstm", "gru", "rnn"))


@pytest.mark.parametrize("name", FORMS)
def test_the_steps_of_a_layer_mean_what_the_layer_means(name: str) -> None:
    net, (inputs,) = made(name), drawn(name, 1, 1)
    module = torchapi.module_of(torchapi.export(net, inputs))
    assert expand(module, is_recurrent) == 1
    assert not any(is_recurrent(node) for node in module.graph.nodes)
    with torch.no_grad():
        for ours, theirs in zip(flat(module(*inputs)), flat(net(*inputs)), strict=True):
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("target", "scheme", "least"), TARGETS)
@pytest.mark.parametrize("name", FORMS)
def test_a_layer_in_integers_is_whole_exact_and_near(
    name: str, target: str, scheme: str, least: float
) -> None:
    net, data, unseen = made(name), drawn(name, 64, 1), drawn(name, 12, 2)
    art = tosaic.compile(net, data[0], target=target, scheme=scheme, calibration=data)
    assert not art.report.refused, art.report
    given = fed(art, unseen[0])
    ours, theirs = tosaic.load(art.bytes).run(*given), run_reference(art.bytes, given)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
    with torch.no_grad():
        real = [torch.stack(each) for each in zip(*(flat(net(*x)) for x in unseen))]
    got = [torch.stack(each) for each in zip(*(flat(art.run(*x)) for x in unseen))]
    for mine, wanted in zip(got, real, strict=True):
        found = float(10 * torch.log10(wanted.square().sum() / (mine - wanted).square().sum()))
        assert found > least, found


def compiled(steps: int) -> Any:
    torch.manual_seed(0)
    net = nn.LSTM(8, 32, batch_first=True).eval()
    data = [(torch.randn(1, steps, 8),) for _ in range(4)]
    return tosaic.compile(
        net, data[0], target="TOSA-1.0+INT+int16", scheme="int8", calibration=data
    )


def test_steps_share_weights_tables_and_ranges() -> None:
    """One more step costs its operators, and no constant of any size."""
    few, many = compiled(3), compiled(6)

    def constants(art: Any) -> tuple[int, int]:
        found = {v for op in art.graph.ops for v in op.ins if v.is_const}
        large = [v for v in found if v.type.size >= 128]
        return len(large), sum(v.type.size for v in large)

    # Weights of inputs and, gate by gate, of states, biases with their scales, and tables; in the
    # first step the state is zero and its share in the gates a constant.
    assert constants(many) == constants(few)
    assert constants(many)[0] <= 15
    assert many.report.ops["CONV2D"] - few.report.ops["CONV2D"] == 3
    assert len(many.bytes) - len(few.bytes) < 3 * 4500


def test_the_state_that_a_device_keeps_has_16_bits() -> None:
    """A cell far beyond what a table shows comes back as fine as it went in."""
    torch.manual_seed(0)
    net = nn.LSTMCell(8, 16).eval()
    data = [(torch.randn(1, 8), (torch.randn(1, 16).tanh(), 20 * torch.randn(1, 16)))
            for _ in range(32)]  # fmt: skip
    art = tosaic.compile(net, data[0], target="ethos-u55-128", calibration=data)
    assert not art.report.refused, art.report
    kinds = (
        [str(port.dtype) for port in art.graph.inputs],
        [str(v.dtype) for v in art.graph.outputs],
    )
    assert [sorted(each) for each in kinds] == [["i16", "i8", "i8"], ["i16", "i8"]]
    with torch.no_grad():
        _, cell = net(*data[0])
    assert float((art.run(*data[0])[1] - cell).abs().max()) < 0.3
    assert float(cell.abs().max()) > 10


@pytest.mark.filterwarnings("ignore:no calibration data")
def test_short_sequences_take_less_memory_than_the_products_of_all_their_steps_on_u55() -> None:
    """Seven times what one direction gives: the input, the layer below, what waits, and a step."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.LSTM(16, 16, 2, batch_first=True, bidirectional=True)

        def forward(self, x: Tensor) -> Tensor:
            y, (hidden, _) = self.layers(x)
            return torch.cat([hidden[-2], hidden[-1], y.mean(1)], 1)

    torch.manual_seed(0)
    art = tosaic.compile(
        Net().eval(), (torch.randn(1, 8, 16),), target="ethos-u55-128", io="int8", check=True
    )
    (delegate,) = art.report.delegates
    assert delegate.estimate is not None
    steps, hidden = 8, 16
    assert delegate.estimate.scratch <= 7 * steps * hidden < steps * (4 * hidden) * 2


def test_a_table_of_int16_is_followed_by_the_shift_that_devices_have() -> None:
    """U55 and U65 have TABLE and RESCALE by 2^-7 as one operation, and six of any other factor."""
    torch.manual_seed(0)
    net = nn.RNN(8, 8, batch_first=True)
    data = [torch.randn(1, 4, 8) * 8 for _ in range(4)]
    made = tosaic.compile(net, (data[0],), target="TOSA-1.0+INT+int16", calibration=data)
    (graph,) = made.partition.graphs
    tables = [op for op in graph.walk() if op.name == "TABLE" and op.ins[0].dtype.bits == 16]
    assert tables
    for table in tables:
        (use,) = [op for op in graph.walk() if table.outs[0] in op.ins]
        multiplier, shift = (int(v.const.array.reshape(-1)[0]) for v in use.ins[1:3])
        assert use.name == "RESCALE"
        assert multiplier / 2**shift == 2.0**-7

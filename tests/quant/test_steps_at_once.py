"""All steps of a recurrent layer are calibrated at once: ranges are those of its steps in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from tosaic.passes.rnn_states import Layers
from tosaic.quant import flow
from tosaic.quant.steps import Recorded
from tosaic.targets.catalog import target_of

STEPS = 28
LAYERS = {
    "lstm": lambda: nn.LSTM(6, 8, 2, batch_first=True),
    "lstm, backwards as well": lambda: nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True),
    "lstm with a projection": lambda: nn.LSTM(6, 8, 2, bias=False, proj_size=5),
    "gru, backwards as well": lambda: nn.GRU(6, 8, 2, bidirectional=True),
    "rnn": lambda: nn.RNN(6, 8, 3, batch_first=True),
    "rnn with relu": lambda: nn.RNN(6, 8, 2, nonlinearity="relu", bias=False),
}


class First(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.rnn(x)[0]
        return y


def model(name: str) -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(1)
    net = First(LAYERS[name]()).eval()
    shape = (1, STEPS, 6) if net.rnn.batch_first else (STEPS, 1, 6)
    return net, [(number + 1) * torch.randn(shape) for number in range(3)]


def scales(module: fx.GraphModule) -> Iterator[tuple[str, list[Any]]]:
    """The numbers of each call that quantizes, in the program and in its loops."""
    for name, part in module.named_modules():
        if isinstance(part, fx.GraphModule):
            for node in part.graph.nodes:
                if "quantize_per" in str(node.target):
                    yield name, [a for a in node.args if not isinstance(a, fx.Node)]


@pytest.mark.parametrize("name", LAYERS)
def test_ranges_are_those_of_steps_in_turn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = model(name)
    whole: list[bool] = []
    at_once: Any = Recorded._at_once

    def counted(self: Recorded, *given: Any) -> Any:
        made = at_once(self, *given)
        whole.append(made is not None)
        return made

    monkeypatch.setattr(Recorded, "_at_once", counted)
    target = target_of("ethos-u85-256")
    made = flow.quantize(net, (data[0],), calibration=data, target=target)
    assert whole
    assert all(whole)
    monkeypatch.setattr(Recorded, "_at_once", lambda *given: None)
    in_turn = flow.quantize(net, (data[0],), calibration=data, target=target)
    assert len(list(scales(in_turn))) > 20
    for (_, ours), (_, theirs) in zip(scales(made), scales(in_turn), strict=True):
        assert ours == theirs
    assert torch.equal(made(data[1]), in_turn(data[1]))
    assert not any(isinstance(kept, Layers) for n in made.graph.nodes for kept in n.meta.values())


def test_states_of_other_weights_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = model("lstm")
    target = target_of("ethos-u85-256")
    right = flow.quantize(net, (data[0],), calibration=data, target=target)
    states = Layers.states
    monkeypatch.setattr(
        Layers, "states", lambda self, x, carried: [s * 1.01 for s in states(self, x, carried)]
    )
    made = flow.quantize(net, (data[0],), calibration=data, target=target)
    assert list(scales(made)) == list(scales(right))

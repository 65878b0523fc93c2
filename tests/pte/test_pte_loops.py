"""Recurrences by the step: one stream that instructions of a ``.pte`` call again and again."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.executorch.package import LinuxOptions, plain_file
from tosaic.executorch.programfile import Call, Jump, Method, TensorValue, write_program

TARGET = "ethos-u85-256"


class Net(nn.Module):
    """A recurrent layer, and a layer that reads the last step."""

    def __init__(self, kind: type[nn.RNNBase], batch: int, **options: Any) -> None:
        super().__init__()
        self.layers: Any = kind(8, 16, **options)
        self.ways, self.batch = 1 + bool(options.get("bidirectional")), batch
        self.head = nn.Linear(16 * self.ways, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers(x)[0]
        return self.head(y[:, -1] if self.layers.batch_first else y[-1]), y

    def example(self, steps: int) -> Tensor:
        sizes = [self.batch, steps] if self.layers.batch_first else [steps, self.batch]
        return torch.randn(*sizes, 8)


NETS: dict[str, tuple[type[nn.RNNBase], int, dict[str, Any]]] = {
    "lstm": (nn.LSTM, 1, {"num_layers": 2, "batch_first": True}),
    "gru": (nn.GRU, 1, {"bidirectional": True, "batch_first": True}),
    "lstm both ways": (nn.LSTM, 2, {"bidirectional": True, "batch_first": True}),
    "rnn": (nn.RNN, 2, {"num_layers": 2}),
}


@cache
def compiled(name: str, steps: int, unroll: bool | int | None) -> tuple[Any, Tensor, Net]:
    torch.manual_seed(7)
    kind, batch, options = NETS[name]
    net = Net(kind, batch, **options).eval()
    x = net.example(steps)
    options = {} if unroll is None else {"unroll": unroll}
    made = tosaic.compile(net, (x,), target=TARGET, calibration=[x, net.example(steps)], **options)
    return made, x, net


@pytest.mark.parametrize("name", NETS)
def test_a_loop_gives_the_bits_of_its_steps_written_out(name: str) -> None:
    loop, x, net = compiled(name, 6, False)
    whole, _, _ = compiled(name, 6, True)
    assert len(whole.partition.graphs) == 1
    assert any(piece.parts for piece in loop.partition.pieces)
    ours, written = loop.run(x), whole.run(x)
    assert all(map(torch.equal, ours, written))
    assert all(map(torch.equal, ours, loop.run(x, engine="tosa")))
    with torch.no_grad():
        for one, real in zip(ours, net(x)):
            assert (one - real).abs().max() < 0.03 * real.abs().max()


@pytest.mark.parametrize("name", NETS)
def test_a_file_runs_its_loop_again_and_again(name: str, tmp_path: Any) -> None:
    art, x, net = compiled(name, 6, False)
    art.save(tmp_path / "net.pte")
    runner = tosaic.load(tmp_path / "net.pte")
    for given in (x, net.example(6), x):
        assert all(map(torch.equal, runner.run(given), art.run(given)))


@pytest.mark.parametrize("name", NETS)
def test_a_file_is_as_large_for_any_number_of_steps(name: str) -> None:
    sizes, delegates = [], []
    for steps in (60, 300):
        art, _, _ = compiled(name, steps, None)
        data = plain_file(art, LinuxOptions())
        assert data is not None
        sizes.append(len(data))
        delegates.append([len(made.data) for made in art.delegates])
    assert abs(sizes[1] - sizes[0]) < 0.02 * sizes[0]
    assert delegates[0][0] == delegates[1][0]


def test_memory_of_a_last_step_is_that_of_a_step() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = nn.LSTM(8, 16, 2, batch_first=True), nn.Linear(16, 5)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.head(self.layers(x)[0][:, -1])
            return y

    torch.manual_seed(1)
    net, sizes = Last().eval(), []
    for steps in (40, 160):
        x = torch.randn(1, steps, 8)
        art: Any = tosaic.compile(net, (x,), target=TARGET, calibration=[x])
        sizes.append(art.report.sram)
        with torch.no_grad():
            assert (art.run(x) - net(x)).abs().max() < 0.02
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("wrong", [-1, 0, "all", 1.5])
def test_a_wrong_number_of_steps_is_told(wrong: Any) -> None:
    with pytest.raises(tosaic.errors.InvalidInput, match="unroll is True|unroll is of type"):
        tosaic.compile(nn.ReLU(), (torch.ones(1, 2),), target=TARGET, unroll=wrong)


def test_short_recurrences_are_one_stream() -> None:
    art, _, _ = compiled("gru", 4, None)
    assert len(art.partition.graphs) == 1


@pytest.mark.parametrize("engine", ["npu", "tosa"])
def test_steps_stream_what_a_run_computes_at_once(engine: str) -> None:
    art, x, _ = compiled("lstm", 7, 1)
    state, seen = None, []
    for element in x.split(1, dim=1):
        y, state = art.step(element, state=state, engine=engine)
        seen.append(y)
    assert torch.equal(torch.cat(seen, 1), art.run(x)[1])
    with pytest.raises(tosaic.errors.InvalidInput, match="elements as"):
        art.step(x)


def test_the_stock_runtime_runs_a_loop_backwards() -> None:
    """A running sum from the last element of the second axis to the first, twice."""
    runtime = pytest.importorskip("executorch.runtime")
    line, row, filled = (
        TensorValue(3, 4, sizes, tuple(range(len(sizes))))
        for sizes in ((1, 5, 2), (1, 2), (5, 1, 2))
    )
    names = [
        ("aten::copy_", ""), ("aten::select_copy", "int_out"), ("aten::add", "out"),
        ("executorch_prim::et_copy_index", "tensor"), ("executorch_prim::add", "Scalar"),
        ("executorch_prim::eq", "Scalar"), ("executorch_prim::sub", "Scalar"),
    ]  # fmt: skip
    # x, first state, state, index, one, count, flag, axis, element, next state, filled, its alias,
    # last, place, another flag
    values = [line, row, row, 0, 1, 5, False, 1, row, row, filled, line, 4, 0, False]
    calls = [
        Call("out", 0, (2, 1, 14, 2)), Call("out", 6, (12, 3, 13)),
        Call("out", 1, (0, 7, 13, 8, 8)),
        Call("out", 2, (2, 8, 4, 9, 9)), Call("out", 3, (10, 9, 13)), Call("out", 0, (2, 9, 14, 2)),
        Call("out", 4, (3, 4, 3)), Call("out", 5, (3, 5, 6)), Jump(6, 1), Call("out", 6, (3, 5, 3)),
    ]  # fmt: skip
    leaf = '[1, {"type": null, "context": null, "children_spec": []}]'
    start = torch.tensor([[100, -100]], dtype=torch.int32)
    made = Method(
        values, [0], [11], calls, names, [], leaf, leaf,
        constants={1: start.numpy().tobytes()}, aliases={11: 10}, growing={10},
    )  # fmt: skip
    program = runtime.Runtime.get().load_program(
        write_program(made), verification=runtime.Verification.InternalConsistency
    )
    method = program.load_method("forward")
    x = torch.arange(10, dtype=torch.int32).reshape(1, 5, 2) ** 2
    for given in (x, -x):
        (got,) = method.execute([given])
        assert torch.equal(got, given.flip(1).cumsum(1).flip(1).to(torch.int32) + start)

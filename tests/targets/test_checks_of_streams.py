"""Every stream is compared with its TOSA graph, whatever its size, and the report says how."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from tosaic.errors import Unpredictable
from tosaic.interp.model import Model
from tosaic.ir.graph import Array
from tosaic.targets.ethosu import check as ethosu_check
from tosaic.targets.ethosu.delegate import Delegate

U55 = "ethos-u55-128"


def compiled(net: nn.Module, data: Sequence[Any], target: str = U55, **options: Any) -> Any:
    return tosaic.compile(net.eval(), data[0], target=target, calibration=data, **options)


def images(count: int, *shape: int) -> list[tuple[Tensor, ...]]:
    made = torch.Generator().manual_seed(1)
    return [(torch.randn(shape, generator=made),) for _ in range(count)]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[Array]]:
    """The inputs that streams are compared on while they are compiled."""
    seen: list[list[Array]] = []
    plain = ethosu_check.compare

    def compare(made: Delegate, arrays: Sequence[Array], wanted: Sequence[Array]) -> None:
        seen.append(list(arrays))
        plain(made, arrays, wanted)

    monkeypatch.setattr(ethosu_check, "compare", compare)
    return seen


def layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, 3)


def test_a_stream_of_many_weights_is_checked_on_three_inputs(runs: list[list[Array]]) -> None:
    torch.manual_seed(0)
    art = compiled(nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 4)), images(2, 1, 1024))
    assert len(art.delegates[0].result.weights) > 1 << 19
    assert len(runs) == 3
    assert all(len(np.unique(arrays[0])) > 200 for arrays in runs[1:])  # of all that int8 holds
    told = "equals its TOSA graph bit by bit for 3 inputs (1 of calibration, 2 random)"
    assert told in art.report.delegates[0].checks[-1]


def test_the_report_says_what_was_checked_in_text_in_json_and_on_the_page(tmp_path: Path) -> None:
    art = compiled(layer(), images(2, 1, 3, 8, 8))
    (sentence,) = [s for s in art.report.delegates[0].checks if s.startswith("arithmetic")]
    assert sentence in " ".join(str(art.report).split())
    assert sentence in json.loads(json.dumps(art.report.data()))["delegates"][0]["checks"]
    art.save(tmp_path / "page.html")
    assert sentence in (tmp_path / "page.html").read_text()


def test_without_checks_the_report_says_so(runs: list[list[Array]]) -> None:
    art = compiled(layer(), images(2, 1, 3, 8, 8), check=False)
    assert not runs
    told = art.report.delegates[0].checks[-1]
    assert told == "nothing was checked of the stream, as check=False asks"


class Split(nn.Module):
    """Two graphs, as no Ethos-U55 has a rule for the call between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.linalg.matrix_exp(self.first(x) * 0.1))


@pytest.mark.parametrize("form", ["tuple", "tensor", "dict", "generator", "batch"])
def test_the_calibration_input_reaches_every_graph(form: str, runs: list[list[Array]]) -> None:
    data = images(3, 1, 3, 8, 8)
    given: Any = {
        "tuple": data,
        "tensor": [x for (x,) in data],
        "dict": [{"x": x} for (x,) in data],
        "generator": (each for each in data),
        "batch": [torch.cat([x for (x,) in data])],
    }[form]
    example = images(9, 1, 3, 8, 8)[-1]
    net = Split().eval() if form != "batch" else layer().eval()
    art = tosaic.compile(net, example, target=U55, calibration=given)
    graphs = art.partition.graphs
    assert len(graphs) == (1 if form == "batch" else 2)
    trace = {node.name: value for node, value in art.trace(*data[0]).items()}
    for number, piece in enumerate(p for p in art.partition.pieces if p.graph is not None):
        wanted = trace[piece.inputs[0].name].numpy()
        order = piece.input_orders[0]
        wanted = wanted if order is None else wanted.transpose(order)
        assert np.array_equal(runs[3 * number][0], wanted)
        assert "1 of calibration, 2 random" in piece.checks[-1]


def test_where_a_graph_has_no_result_another_input_is_drawn(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[Array]]
) -> None:
    plain, asked = Model.run, [0]

    def run(self: Model, *inputs: Any) -> list[Array]:
        asked[0] += 1
        if asked[0] < 5:
            raise Unpredictable("an index lies outside")
        return plain(self, *inputs)

    monkeypatch.setattr(Model, "run", run)
    art = compiled(layer(), images(2, 1, 3, 8, 8))
    assert len(runs) == 2
    assert (
        "2 inputs (2 random); others have no result: an index" in art.report.delegates[0].checks[-1]
    )


def test_where_a_graph_has_no_result_at_all_the_report_says_that_nothing_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(self: Model, *inputs: Any) -> list[Array]:
        raise Unpredictable("an index lies outside")

    monkeypatch.setattr(Model, "run", run)
    art = compiled(layer(), images(2, 1, 3, 8, 8))
    assert art.report.delegates[0].checks[-1] == (
        "arithmetic was not checked: the graph has no result for any input tried: "
        "an index lies outside"
    )


def test_a_fault_that_only_calibration_shows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is right for random inputs and wrong for the data; the call leaves the NPU."""
    from tosaic.sim.ethosu.simulation import Simulation

    data = images(2, 1, 3, 8, 8)
    art = compiled(layer(), data)
    piece = next(p for p in art.partition.pieces if p.graph is not None)
    seen = art.trace(*data[0])[piece.inputs[0]].numpy()
    order = piece.input_orders[0]
    seen = seen if order is None else seen.transpose(order)
    plain = Simulation.run

    def run(self: Simulation, *arrays: Any) -> list[Any]:
        found = plain(self, *arrays)
        if np.array_equal(arrays[0], seen):
            found[0].reshape(-1)[0] ^= 1
        return found

    monkeypatch.setattr(Simulation, "run", run)
    with pytest.raises(tosaic.TosaicError, match=r"1 of \d+ elements of the result 'conv2d'"):
        compiled(layer(), data)

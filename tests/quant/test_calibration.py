"""Calibration: what it takes, what it says of data that looks wrong, and when it is quiet."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tosaic.errors import InvalidInput
from tosaic.quant import quantize
from tosaic.quant.inputs import Arguments, InputWatch
from tosaic.runtime.progress import shown


class Two(nn.Module):
    """Two arguments, one of them a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, more: dict[str, Tensor]) -> Tensor:
        return torch.relu(self.layer(x) + more["y"]) * more["z"]


def data(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 8), nn.ReLU())


def complaints(calibration: Any, example: Tensor | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = data(4, 16) if example is None else example
        quantize(layer(), (given,), calibration=calibration)
    return [str(w.message) for w in caught if w.category is UserWarning]


ORDINARY = {
    "noise": [data(4, 16, seed=s) for s in range(8)],
    "pictures from 0 to 1": [torch.rand(4, 16) for _ in range(8)],
    "one input": [data(4, 16, seed=3)],
    "few inputs": [data(4, 16, seed=3), data(4, 16, seed=4)],
    "some of them alike": [data(4, 16, seed=s % 5) for s in range(8)],
    "silence among speech": [data(4, 16, seed=s) * (s % 3) for s in range(8)],
    "mostly zeros": [data(4, 16, seed=s) * (data(4, 16, seed=s) > 1.5) for s in range(8)],
    "heavy tails": [data(4, 16, seed=s) ** 3 for s in range(8)],
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_raises_no_alarm(name: str) -> None:
    assert complaints(ORDINARY[name]) == []


@pytest.mark.parametrize("placeholder", [torch.zeros(4, 16), torch.ones(4, 16)])
def test_a_placeholder_as_an_example_is_compared_with_nothing(placeholder: Tensor) -> None:
    assert complaints([data(4, 16, seed=s) * 100 for s in range(4)], placeholder) == []


@pytest.mark.parametrize(
    ("calibration", "sentence"),
    [
        ([torch.zeros(4, 16)] * 2 + [torch.zeros(2, 16)], "input input is 0 everywhere in all 3"),
        ([torch.full((4, 16), 5.0), torch.full((2, 16), 5.0)], "input input is 5 everywhere"),
        ([data(4, 16)] * 6, "only 1 of 6 calibration inputs is distinct"),
        ([data(4, 16, seed=s % 3) for s in range(6)], "only 3 of 6 calibration inputs"),
        (
            [torch.rand(4, 16) * 255 for _ in range(4)],
            "in the example (root mean square): one of them is not like what will come",
        ),
        ([data(4, 16, seed=s) * 1e-3 for s in range(4)], "input input is 0.00"),
    ],
)
def test_data_that_looks_wrong_is_named_with_figures(calibration: Any, sentence: str) -> None:
    found = complaints(calibration)
    assert any(sentence in line for line in found), found


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[0, 0].expand(1, 1),  # strides of 0, which count as contiguous
        lambda x: x[:, :1].T.contiguous().as_strided((4, 1), (1, 4)),
        lambda x: x.T,
        lambda x: x[0, 0],
        lambda x: x[:0],
        torch._neg_view,
    ],
)
def test_inputs_are_told_apart_whatever_their_strides(view: Callable[[Tensor], Tensor]) -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    module = torch.export.export(Scaled(), (data(4, 4),)).module()
    watch = InputWatch(Arguments(module, (data(4, 4),)))
    views = [view(data(4, 4, seed=s)) for s in (0, 1)]
    for each in (*views, views[0].clone()):
        watch.see([each])
    assert len(watch.seen) == (2 if views[0].numel() else 1)


def test_a_layer_that_gives_nan_is_named() -> None:
    class Roots(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sqrt(x).transpose(0, 1)

    with pytest.warns(UserWarning, match="^sqrt gives NaN for some of the calibration data: leave"):
        quantize(Roots(), (data(4, 16),), calibration=[data(4, 16, seed=s) for s in range(3)])


def test_nan_in_the_data_is_an_error_that_names_the_place() -> None:
    bad = data(4, 16, seed=1)
    bad[2, 3] = torch.nan
    with pytest.raises(InvalidInput, match="calibration input 2 has NaN in input"):
        quantize(layer(), (data(4, 16),), calibration=[data(4, 16), bad])


def test_other_batch_sizes_and_generators_do() -> None:
    def some() -> Iterator[Tensor]:
        for size in (1, 7, 32):
            yield data(size, 16, seed=size)

    batch = torch.cat(list(some()))
    one, other = (quantize(layer(), (data(4, 16),), calibration=c) for c in (some(), [batch]))
    assert torch.allclose(one(data(4, 16)), other(data(4, 16)), atol=0.05)


@pytest.mark.parametrize("form", ["tuple", "list", "names"])
def test_arguments_come_in_order_or_by_name_with_their_structure(form: str) -> None:
    torch.manual_seed(0)
    net = Two()

    def given(seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        x, y, z = (data(8, 4, seed=3 * seed + i) for i in range(3))
        return x, {"y": y, "z": z}

    items: dict[str, Any] = {
        "tuple": [given(s) for s in range(16)],
        "list": [list(given(s)) for s in range(16)],
        "names": [dict(zip(("more", "x"), given(s)[::-1])) for s in range(16)],
    }
    program = quantize(net, given(20), calibration=items[form])
    with torch.no_grad():
        want, got = net(*given(5)), program(*given(5))
    assert float((want - got).abs().max()) < 0.06 * float(want.abs().max())
    assert len(got.unique()) > 8


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("sized", "text"), [(True, "input 3 of 6"), (False, "input 3")])
def test_progress_shows_after_two_seconds_on_a_terminal(sized: bool, text: str) -> None:
    out, now = Terminal(), iter([0.0, *(1.0 * i for i in range(1, 7))])
    items: Any = list(range(6)) if sized else iter(range(6))
    assert list(shown(items, "input", out, lambda: next(now))) == list(range(6))
    lines = out.getvalue().split("\r")
    assert next(line.strip() for line in lines if line.strip()) == text
    assert len(lines) == 1 + 4 + 2
    assert lines[-1] == ""


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_progress_is_silent_on_a_short_run_and_off_a_terminal(stream: io.StringIO) -> None:
    pace = 10.0 if not stream.isatty() else 0.1
    now = iter(pace * i for i in range(20))
    assert list(shown(range(6), "input", stream, lambda: next(now))) == list(range(6))
    assert stream.getvalue() == ""

"""Recurrences over a free length: a WHILE_LOOP has the bits of all steps written out."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import tosaic
from judges.cells import Cells
from judges.reference import run_reference
from tosaic.files import flatbuffer
from tosaic.ir.specialize import specialize
from tosaic.passes.importer import import_model
from tosaic.pipeline.dynamic import DynamicArtifact, with_loops
from tosaic.pipeline.sized import artifact_at, calibration_for
from tosaic.pipeline.sizes import sizes_of
from tosaic.quant.flow import float_module
from tosaic.quant.quantizer import TosaicQuantizer
from tosaic.quant.value_names import name_of, parts_of
from tosaic.targets.catalog import target_of

LENGTH = Dim("length", min=2, max=16)
SIZES = [(7,), (4,), (6,), (11,), (16,)]


class Layers(nn.Module):
    """A layer of PyTorch's own, and what it knows after the last step."""

    def __init__(self, kind: Any, **how: Any) -> None:
        super().__init__()
        self.layers = kind(6, 5, **how)
        self.head = nn.Linear(10 if how.get("bidirectional") else 5, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        seen, last = self.layers(x)
        return self.head(seen), last[0] if isinstance(last, tuple) else last


class Backwards(nn.Module):
    """From the last step to the first, without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.given = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        state, seen = torch.zeros(6), []
        given = self.given(x)
        for i in reversed(range(len(x))):
            state = torch.tanh(self.own(state) + given[i])
            seen.append(state)
        return torch.stack(seen[::-1], 0)


NETS: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "gru": (lambda: Layers(nn.GRU, bidirectional=True), (7, 2, 6), 0),
    "lstm": (lambda: Layers(nn.LSTM, num_layers=2, batch_first=True), (2, 7, 6), 1),
    "rnn": (lambda: Layers(nn.RNN, batch_first=True, bidirectional=True), (1, 7, 6), 1),
    "without a batch": (lambda: Layers(nn.GRU), (7, 6), 0),
    "cells": (partial(Cells, 6, 5), (2, 7, 6), 1),
    "backwards": (Backwards, (7, 6), 0),
}


@pytest.mark.parametrize("profile", ["FP", "INT"])
@pytest.mark.parametrize("name", NETS)
def test_a_free_length_is_a_loop_with_the_bits_of_its_steps(name: str, profile: str) -> None:
    torch.manual_seed(0)
    make, shape, axis = NETS[name]
    net, example, shapes = make().eval(), (torch.randn(shape),), ({axis: LENGTH},)
    target, scheme = f"TOSA-1.1+{profile}+shape", "int8" if profile == "INT" else None
    free = sizes_of(net, example, shapes)
    assert free is not None
    looped = with_loops(target_of(f"{target}+cf"), free, SIZES[:2])
    written = replace(target_of(target), traits=looped.traits)  # without WHILE_LOOP
    stored = calibration_for(free, SIZES, looped, scheme, [example]) if scheme else None
    made = tosaic.compile(
        net, example, target=f"{target}+cf", scheme=scheme, dynamic_shapes=shapes,
        calibration=stored,
    )  # fmt: skip
    assert isinstance(made, DynamicArtifact)
    assert not made.report.refused
    assert any(op.name == "WHILE_LOOP" for op in made.graph.ops)
    loaded: Any = tosaic.load(made.bytes)
    for number, size in enumerate(SIZES):
        x = free.examples_at(size)
        alone = artifact_at(free, size, written, scheme, stored, None, {})
        assert all(op.name != "WHILE_LOOP" for op in alone.graph.ops)
        got, wanted, real = (_listed(each(*x)) for each in (made.run, alone.run, net))
        for a, b, c in zip(got, wanted, real, strict=True):
            if scheme is None:
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(a, c, rtol=1e-5, atol=1e-5)
            else:
                assert torch.equal(a, b)
        if number < 2:
            port = made.graph.inputs[0]
            given = x[0].numpy()
            if scheme is not None:
                low, high = port.dtype.range
                given = torch.randint(low, high + 1, x[0].shape).numpy().astype(port.dtype.array)
            at = flatbuffer.write(specialize(made.graph, [given.shape]))
            for a, b in zip(loaded.run(given), run_reference(at, [given]), strict=True):
                torch.testing.assert_close(torch.tensor(a), torch.tensor(b))


def test_a_free_length_needs_control_flow_in_the_target() -> None:
    with pytest.raises(tosaic.InvalidInput, match=r"a WHILE_LOOP does: add \+cf to the target"):
        tosaic.compile(
            nn.GRU(4, 5, batch_first=True).eval(), (torch.randn(1, 6, 4),),
            target="TOSA-1.1+FP+shape", dynamic_shapes=({1: LENGTH},),
        )  # fmt: skip


def test_a_free_batch_needs_no_loop() -> None:
    net = nn.GRU(4, 5, batch_first=True).eval()
    made = tosaic.compile(
        net, (torch.randn(2, 6, 4),), target="TOSA-1.1+FP+shape", dynamic_shapes=({0: LENGTH},)
    )
    assert all(op.name != "WHILE_LOOP" for op in made.graph.ops)
    x = torch.randn(11, 6, 4)
    torch.testing.assert_close(made.run(x), net(x))


def test_a_length_that_no_example_had_is_run_too() -> None:
    """Nothing in the file is as long as the longest sequence that it was made from."""
    net = nn.LSTM(4, 5, batch_first=True).eval()
    made = tosaic.compile(
        net, (torch.randn(1, 6, 4),), target="TOSA-1.1+FP+shape+cf",
        dynamic_shapes=({1: Dim("steps", min=1)},),
    )  # fmt: skip
    for length in (1, 2, 300):
        x = torch.randn(1, length, 4)
        torch.testing.assert_close(made.run(x)[0], net(x)[0])


def _listed(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]


def test_automatic_sizes_are_free_though_an_export_fixes_the_steps() -> None:
    net, free = Layers(nn.GRU).eval(), {0: Dim.AUTO}
    made = tosaic.compile(
        net, (torch.randn(7, 6),), target="TOSA-1.1+FP+shape+cf", dynamic_shapes=(free,)
    )
    x = torch.randn(12, 6)
    for a, b in zip(made.run(x), net(x), strict=True):
        torch.testing.assert_close(a, b)


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.view(3, 4) + 1


def test_an_automatic_size_that_is_none_is_told() -> None:
    with pytest.warns(UserWarning, match=r"x.shape\[0\] is always 12: .* run with 13"):
        tosaic.compile(
            Fixed(), (torch.randn(12),), target="TOSA-1.1+FP+shape",
            dynamic_shapes=({0: Dim.AUTO},),
        )  # fmt: skip


def test_each_value_of_each_loop_has_a_name_of_its_own() -> None:
    """Layers of one call are loops of their own, of which calibration keeps what it saw."""
    net = nn.GRU(6, 5, num_layers=2, bidirectional=True).eval()
    target = target_of("TOSA-1.1+INT+cf")
    looped = replace(target, traits=replace(target.traits, longest_unrolled=1))
    source = import_model(net, (torch.randn(7, 1, 6),))
    module = float_module(source, TosaicQuantizer("int8", target=looped))
    names = [
        name_of(node) for path, part in parts_of(module) if path
        for node in part.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)
    ]  # fmt: skip
    assert len(names) == len(set(names)) == 8

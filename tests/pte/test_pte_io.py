"""Files whose inputs and outputs are integers: no operator of the CPU stands between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.edgenets import Island, Plain, pictures, seeded
from judges.etorch import deserialized, executorch_or_skip
from tosaic.executorch.api import quiet
from tosaic.executorch.executors import physical
from tosaic.pipeline.artifact import Artifact

executorch_or_skip()

TYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 6: torch.float32}  # ExecuTorch's numbers


def compiled(net: nn.Module, target: str, io: Any) -> Artifact:
    data = pictures(4)
    return tosaic.compile(seeded(net), data[0], calibration=data, target=target, io=io)


def plan_of(file: Path) -> Any:
    return deserialized(file.read_bytes()).program.execution_plan[0]


def ends(plan: Any) -> list[torch.dtype]:
    places = [*plan.inputs, *plan.outputs]
    return [TYPES[int(plan.values[index].val.scalar_type)] for index in places]


def bytes_like(art: Artifact, seed: int) -> Tensor:
    (port,) = art.boundary.inputs
    limits = torch.iinfo(getattr(torch, port.dtype))
    generator = torch.Generator().manual_seed(seed)
    found = torch.randint(limits.min, limits.max + 1, port.shape, generator=generator)
    return found.to(getattr(torch, port.dtype))


@pytest.mark.parametrize(
    ("io", "target"),
    [
        ("uint8", "TOSA-1.0+INT"), ("uint8", "ethos-u55-128"), ("uint8", "ethos-u85-256"),
        ("int8", "ethos-u55-128"), ("int16", "ethos-u55-128"),
    ],
)  # fmt: skip
def test_a_file_takes_and_gives_integers_with_nothing_on_the_cpu(
    io: str, target: str, tmp_path: Path
) -> None:
    art = compiled(Plain(), target, io)
    file = tmp_path / "net.pte"
    art.save(file)
    plan = plan_of(file)
    assert not plan.operators
    assert len(plan.delegates) == 1
    assert ends(plan) == [getattr(torch, io)] * (len(plan.inputs) + len(plan.outputs))
    loaded = tosaic.load(file)
    for seed in range(3):
        given = bytes_like(art, seed)
        got, expected = loaded.run(given), art.run(given)
        assert got.dtype is expected.dtype is getattr(torch, io)
        assert torch.equal(got, expected)
    assert len(got.unique()) > 3


def test_floats_are_quantized_on_the_cpu_where_they_are_asked_for(tmp_path: Path) -> None:
    art = compiled(Plain(), "ethos-u55-128", ("float", "uint8"))
    art.save(tmp_path / "net.pte")
    plan = plan_of(tmp_path / "net.pte")
    assert [(op.name, op.overload) for op in plan.operators] == [
        ("quantized_decomposed::quantize_per_tensor", "out")
    ]
    assert ends(plan) == [torch.float32, torch.uint8]
    (x,) = pictures(1)[0]
    assert torch.equal(tosaic.load(tmp_path / "net.pte").run(x), art.run(x))


def test_an_operator_in_the_middle_does_not_reach_the_boundary(tmp_path: Path) -> None:
    art = compiled(Island(), "TOSA-1.0+INT", "uint8")
    assert len(art.partition.graphs) == 2
    art.save(tmp_path / "net.pte")
    plan = plan_of(tmp_path / "net.pte")
    assert set(ends(plan)) == {torch.uint8}
    given = bytes_like(art, 1)
    got, expected = tosaic.load(tmp_path / "net.pte").run(given), art.run(given)
    assert torch.equal(got["scores"], expected["scores"])
    assert torch.equal(got["maps"][0], expected["maps"][0])
    assert len(got["maps"][0].unique()) > 30


def test_bytes_lie_channels_last_in_a_file_too(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    data = [(torch.rand(1, 3, 12, 12).to(memory_format=torch.channels_last),) for _ in range(3)]
    art = tosaic.compile(net, data[0], calibration=data, target="ethos-u55-128", io="uint8")
    art.save(tmp_path / "net.pte")
    plan = plan_of(tmp_path / "net.pte")
    assert not plan.operators
    assert [list(plan.values[i].val.dim_order) for i in plan.inputs] == [[0, 2, 3, 1]]
    given = bytes_like(art, 2).to(memory_format=torch.channels_last)
    assert torch.equal(tosaic.load(tmp_path / "net.pte").run(given), art.run(given))


class Turned(nn.Module):
    """Bytes that are computed with, and turned, before TOSA has a type for them."""

    def forward(self, picture: Tensor) -> Tensor:
        return ((picture + 1).permute(0, 3, 1, 2).float() - 127.5).clamp(min=-100.0)


@pytest.mark.filterwarnings("ignore")
def test_a_delegate_gets_what_a_view_on_the_cpu_gives_in_the_order_that_it_takes(
    tmp_path: Path,
) -> None:
    """ExecuTorch makes a copy of a view, which lies otherwise in memory."""
    picture = torch.arange(60, dtype=torch.uint8).reshape(1, 4, 5, 3)
    art = tosaic.compile(Turned(), (picture,), target="TOSA-1.0+FP")
    assert art.report.refused
    assert any(
        piece.graph is not None and any(piece.input_orders) for piece in art.partition.pieces
    )
    art.save(tmp_path / "turned.pte")
    assert tosaic.load(tmp_path / "turned.pte").run(picture).equal(Turned()(picture))


def test_a_bundle_carries_what_the_file_takes(tmp_path: Path) -> None:
    art = compiled(Plain(), "ethos-u55-128", "uint8")
    (x,) = pictures(1)[0]
    art.save(tmp_path / "net.bpte", test_inputs=[(x,), (bytes_like(art, 4),)])
    with quiet():
        from executorch.devtools.bundled_program.serialize import (
            deserialize_from_flatbuffer_to_bundled_program,
        )

        found = deserialize_from_flatbuffer_to_bundled_program((tmp_path / "net.bpte").read_bytes())
    (suite,) = found.method_test_suites
    kinds = {int(value.val.scalar_type) for case in suite.test_cases
             for value in (*case.inputs, *case.expected_outputs)}  # fmt: skip
    assert {TYPES[kind] for kind in kinds} == {torch.uint8}


@pytest.mark.parametrize("in_turn", [False, True], ids=["first", "in turn"])
def test_a_partitioner_takes_bytes_of_a_program_as_they_are(in_turn: bool) -> None:
    """The program comes from torchao's flow, with uint8 next to floats at its ends."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    from tosaic.quant import TosaicQuantizer
    from tosaic.quant.boundary import Bytes

    class Quantizer(TosaicQuantizer):
        def annotate(self, model: Any) -> Any:
            super().annotate(model)
            Bytes().annotate(model.graph, self)
            return model

    data = pictures(3)
    prepared = prepare_pt2e(torch.export.export(seeded(Plain()), data[0]).module(), Quantizer())
    for given in data:
        prepared(*given)
    program = torch.export.export(convert_pt2e(prepared), data[0])
    with quiet():
        from executorch.exir import to_edge_transform_and_lower

        from tosaic.executorch import EthosUCompileSpec, EthosUPartitioner

        partitioner = EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"), in_turn=in_turn)
        lowered = to_edge_transform_and_lower(program, partitioner=[partitioner])
        file = lowered.to_executorch().buffer
    plan = deserialized(bytes(file)).program.execution_plan[0]
    assert not partitioner.refused
    assert len(plan.delegates) == 1
    assert {op.name for op in plan.operators} == {
        "quantized_decomposed::quantize_per_tensor", "quantized_decomposed::dequantize_per_tensor"
    }  # fmt: skip
    call = next(i.instr_args for i in plan.chains[0].instructions
                if hasattr(i.instr_args, "delegate_index"))  # fmt: skip
    kinds = {TYPES[int(plan.values[index].val.scalar_type)] for index in call.args}
    assert kinds == {torch.uint8}
    (x,) = data[1]
    got = tosaic.load(bytes(file)).run(x)
    expected = program.module()(x)
    got, expected = (v[0] if isinstance(v, (list, tuple)) else v for v in (got, expected))
    assert (got - expected).abs().max() < 0.05
    assert len(got.unique()) > 3


def test_floats_go_into_a_delegate_that_has_them(tmp_path: Path) -> None:
    data = pictures(4)
    program = tosaic.quantize(seeded(Plain()), data[0], calibration=data)
    (x,) = data[1]
    results = []
    for preserve, operators in ((False, 0), (True, 2)):
        art = tosaic.compile(
            program, data[0], target="TOSA-1.0+INT+FP", preserve_io_quantization=preserve
        )
        art.save(tmp_path / "net.pte")
        plan = plan_of(tmp_path / "net.pte")
        assert len(plan.operators) == operators
        assert ends(plan) == [torch.float32] * 2
        results += [art.run(x), tosaic.load(tmp_path / "net.pte").run(x)]
    assert all(torch.equal(result, results[0]) for result in results)
    assert len(results[0].unique()) > 3


def test_bytes_of_expanded_values_are_theirs() -> None:
    one = torch.tensor(3.5).expand(1)  # with a stride of 0, which counts as contiguous
    assert physical(one, [0]).numpy().tobytes() == one.numpy().tobytes()
    assert physical(torch.zeros(0, 3), [0, 1]).shape == (0,)

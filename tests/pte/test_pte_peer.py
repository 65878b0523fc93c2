"""What users of ExecuTorch's Arm backend write runs with the import line changed."""

from __future__ import annotations

import inspect
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import tosaic
from judges.etorch import executorch_or_skip
from tosaic.errors import InvalidInput, Unsupported
from tosaic.executorch.api import quiet

executorch_or_skip()

with quiet():
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig
    from executorch.exir import to_edge_transform_and_lower as lower

    import tosaic.executorch as et

U55 = "ethos-u55-128"


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor, *, more: Tensor | None = None) -> Tensor:
        made = self.second(torch.relu(self.first(x)))
        return made if more is None else made + more


def converted(
    net: nn.Module, args: tuple[Any, ...], quantizer: Any, kwargs: dict[str, Any] | None = None
) -> Any:
    with quiet():  # torch warns of the weights of its own recurrent layers
        exported = torch.export.export(net.eval(), args, kwargs).module()
    prepared = prepare_pt2e(exported, quantizer)
    for _ in range(2):
        prepared(*args, **(kwargs or {}))
    return convert_pt2e(prepared)


def quantizer(spec: Any = None) -> Any:
    made = et.create_quantizer(spec or et.EthosUCompileSpec(U55))
    return made.set_global(et.get_symmetric_quantization_config())


def file_of(model: Any, args: tuple[Any, ...], partitioner: Any, passes: Sequence[Any] = ()) -> Any:
    with quiet():
        exported = torch.export.export(model, args)
        edge = lower(
            exported,
            partitioner=[partitioner],
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )
        return edge.to_executorch(
            config=ExecutorchBackendConfig(extract_delegate_segments=False, passes=list(passes))
        )


# Names, and parameters with their defaults, of the backend of executorch 1.5.
SIGNATURES = {
    "EthosUCompileSpec": "target, system_config=None, memory_mode=None, extra_flags=None, "
    "config_ini='Arm/vela.ini', external_block_placements=None",
    "TosaCompileSpec": "tosa_spec",
    "VgfCompileSpec": "tosa_spec=None, compiler_flags=None",
    "VelaExternalBlockPlacements": "cmd_data=None, weight_data=None",
    "EthosUPartitioner": "compile_spec, additional_checks=None",
    "EthosUQuantizer": "compile_spec, use_composable_quantizer=True",
    "TOSAQuantizer": "compile_spec_or_tosa_spec, use_composable_quantizer=True",
    "ArmCompileSpec.dump_intermediate_artifacts_to": "self, output_path",
    "ArmCompileSpec.dump_debug_info": "self, debug_mode",
    "ArmCompileSpec.set_pass_pipeline_config": "self, config",
    "TosaSpecification.create_from_string": "repr",
    "EthosUQuantizer.set_node_finder": "self, quantization_config, node_finder",
    "EthosUQuantizer.set_module_name": "self, module_name, quantization_config",
    "EthosUQuantizer.set_module_type": "self, module_type, quantization_config",
    "EthosUQuantizer.set_node_name": "self, node_name, quantization_config",
    "EthosUQuantizer.add_quantizer": "self, quantizer",
    "get_symmetric_quantization_config": "is_per_channel=True, is_qat=False, is_dynamic=False, "
    "act_qmin=-128, act_qmax=127, weight_qmin=-127, weight_qmax=127, eps=1.52587890625e-05",
    "get_symmetric_a8w4_quantization_config": "is_per_channel=True, is_qat=True, is_dynamic=False",
    "get_uint8_io_quantization_config": "is_qat=False, is_dynamic=False, eps=1.52587890625e-05",
    "get_vgf_snorm_quantization_config": "is_per_channel=True, is_qat=False, weight_qmin=-127, "
    "weight_qmax=127, eps=1.52587890625e-05",
    "create_partitioner": "compile_spec, additional_checks=None",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_names_take_what_the_backend_takes(name: str) -> None:
    found = et
    for part in name.split("."):
        found = getattr(found, part)
    parameters = inspect.signature(found).parameters.values()  # type: ignore[arg-type]
    given = [
        p.name if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    assert ", ".join(given) == SIGNATURES[name]


def test_a_specification_tells_what_it_has() -> None:
    spec = et.TosaSpecification.create_from_string("TOSA-1.0+INT+int16+u55")
    assert spec.support_integer()
    assert not spec.support_float()
    assert spec.support_extension("int16")
    assert not spec.support_extension("int4")
    assert et.TosaCompileSpec(spec).tosa_spec == spec
    assert et.EthosUCompileSpec("ethos-u65-256").tosa_spec.is_U55_subset
    assert not et.EthosUCompileSpec("ethos-u85-256").tosa_spec.is_U55_subset
    assert str(et.VgfCompileSpec().tosa_spec) == "TOSA-1.0+INT+FP+int16+int4"
    assert et.ArmCompileSpec.DebugMode["JSON"] is not et.ArmCompileSpec.DebugMode.TOSA


def test_flags_that_only_print_are_taken_and_others_are_not() -> None:
    flags = ["--verbose-operators", "--verbose-cycle-estimate", "--output-format=raw", "--timing"]
    assert et.EthosUCompileSpec(U55, extra_flags=flags).device.name == U55
    with pytest.raises(InvalidInput, match="--output-format has no meaning here"):
        et.EthosUCompileSpec(U55, extra_flags=["--output-format=tflite"])
    with pytest.raises(InvalidInput, match="puts the arena into OffChipFlash"):
        et.EthosUCompileSpec(U55, memory_mode="Dedicated_Sram")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_is_one_delegate(kind: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(4, 6, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]

    torch.manual_seed(0)
    net, x = Net(), torch.randn(1, 3, 4)
    model = converted(net, (x,), quantizer())
    partitioner = et.EthosUPartitioner(et.EthosUCompileSpec(U55))
    loaded = tosaic.load(bytes(file_of(model, (x,), partitioner).buffer))
    assert len(loaded.delegates) == 1
    assert {name.rpartition("::")[0] for name in loaded.operators} == {"quantized_decomposed"}
    assert partitioner.refused == []
    assert (tree_leaves(loaded.run(x))[0] - net(x)).abs().max() < 0.03


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(1, 3, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.copy_(torch.cat([self.seen[:, 1:], self.layer(x)], 1))
        return self.seen * 2


def test_a_model_keeps_its_state_from_run_to_run() -> None:
    from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass

    torch.manual_seed(0)
    x = torch.randn(1, 1, 4)
    model = converted(Stateful(), (x,), quantizer())
    assert model.seen.count_nonzero()  # calibration has changed it
    partitioner = et.EthosUPartitioner(et.EthosUCompileSpec(U55))
    passes = [InitializedMutableBufferPass(["seen"])]
    loaded = tosaic.load(bytes(file_of(model, (x,), partitioner, passes).buffer))
    found = []
    for _ in range(4):
        given = torch.randn(1, 1, 4)
        expected = model(given)
        found.append(tree_leaves(loaded.run(given))[0])
        assert torch.equal(found[-1], expected)
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("target", ["TOSA-1.0+FP", U55])
def test_a_file_begins_with_the_state_that_the_model_has(target: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = Stateful().eval(), (torch.randn(1, 1, 4),)
    net.seen.copy_(torch.arange(12.0).reshape(1, 3, 4) / 6)
    art = tosaic.compile(net, x, target=target, calibration=[x])
    art.save(tmp_path / "net.pte")
    got = tree_leaves(tosaic.load(tmp_path / "net.pte").run(*x))[0]
    assert torch.equal(got, art.run(*x))
    assert (got - net(*x)).abs().max() < 0.05


class Named:
    def __init__(self, name: str) -> None:
        self.name = name

    def find_nodes(self, model: fx.GraphModule) -> Any:
        return (node for node in model.graph.nodes if node.name == self.name)


INT8, FLOAT = et.get_symmetric_quantization_config(), None


@pytest.mark.parametrize(
    ("settings", "quantized"),
    [
        (lambda q: q.set_module_name("first", FLOAT), {"linear_1"}),
        (lambda q: q.set_module_name("first", FLOAT).set_module_type(nn.Linear, INT8),
         {"linear", "linear_1"}),
        (lambda q: q.set_module_type(nn.Linear, INT8).set_module_name("first", FLOAT),
         {"linear_1"}),
        (lambda q: q.set_node_name(["linear", "linear_1"], FLOAT), set()),
        (lambda q: q.set_node_target([torch.ops.aten.linear.default], FLOAT), set()),
        (lambda q: q.set_node_finder(FLOAT, Named("linear_1")), {"linear"}),
    ],
)  # fmt: skip
def test_of_several_configs_the_last_one_set_counts(settings: Any, quantized: set[str]) -> None:
    made = quantizer()
    settings(made)
    model = torch.export.export(Layers().eval(), (torch.randn(1, 4),)).module()
    prepare_pt2e(model, made)
    named = {n for n, choice in made.choices.items() if choice.scheme is not None}
    assert named & {"linear", "linear_1"} == quantized


def test_another_quantizer_comes_first() -> None:
    class Other:
        def transform_for_annotation(self, model: Any) -> Any:
            return model

        def annotate(self, model: fx.GraphModule) -> None:
            other = quantizer().set_node_name("linear_1", FLOAT)
            other.annotate(model)

    made = quantizer().set_global(FLOAT).add_quantizer(Other())
    x = torch.randn(1, 4)
    prepared = prepare_pt2e(torch.export.export(Layers().eval(), (x,)).module(), made)
    prepared(x)
    names = [str(n.target) for n in convert_pt2e(prepared).graph.nodes]
    assert sum("dequantize_per_channel" in name for name in names) >= 1
    assert sum("dequantize_per_channel" in name for name in names) <= 2


@pytest.mark.parametrize("in_turn", [False, True])
def test_commands_and_weights_go_where_they_are_placed(in_turn: bool, tmp_path: Path) -> None:
    places = et.VelaExternalBlockPlacements(cmd_data="commands", weight_data="weights")
    spec = et.EthosUCompileSpec(U55, external_block_placements=places)
    x = torch.randn(1, 4)
    model = converted(Layers(), (x,), quantizer())
    made = file_of(model, (x,), et.EthosUPartitioner(spec, in_turn=in_turn))
    made.write_tensor_data_to_file(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["commands.ptd", "weights.ptd"]
    data, files = bytes(made.buffer), [tmp_path / "commands.ptd", tmp_path / "weights.ptd"]
    assert b"COP1" not in data
    loaded = tosaic.load(data, external_weights=files)
    assert torch.equal(tree_leaves(loaded.run(x))[0], model(x))
    with pytest.raises(InvalidInput, match=r"lie in another file: name its \.ptd"):
        tosaic.load(data, external_weights=files[0])
    with pytest.raises(InvalidInput, match="no name of a file"):
        et.VelaExternalBlockPlacements(cmd_data="")


def test_methods_and_arguments_by_name_run() -> None:
    x, more = torch.randn(1, 4), torch.randn(1, 4)
    net = converted(Layers(), (x,), quantizer(), {"more": more})
    other = converted(Layers(), (x,), quantizer())
    spec = et.EthosUCompileSpec(U55)
    with quiet():
        programs = {
            "forward": torch.export.export(net, (x,), {"more": more}),
            "encode": torch.export.export(other, (x,)),
        }
        edge = lower(programs, partitioner=[et.EthosUPartitioner(spec)])
        loaded = tosaic.load(bytes(edge.to_executorch().buffer))
    assert sorted(loaded.methods) == ["encode", "forward"]
    assert torch.equal(tree_leaves(loaded.run(x, more=more))[0], net(x, more=more))
    assert torch.equal(tree_leaves(loaded.method("encode").run(x))[0], other(x))
    with pytest.raises(InvalidInput, match="by the names more, not less"):
        loaded.run(x, less=more)
    with pytest.raises(InvalidInput, match="no method 'decode', only"):
        loaded.method("decode")


def test_a_model_of_floats_stays_with_reasons() -> None:
    x = torch.randn(1, 4)
    partitioner = et.EthosUPartitioner(et.EthosUCompileSpec(U55))
    loaded = tosaic.load(bytes(file_of(Layers().eval(), (x,), partitioner).buffer))
    assert loaded.delegates == []
    assert "needs the FP profile" in str(partitioner.refused[0])
    with pytest.raises(Unsupported, match="has no rule"):
        partitioner.register_custom_partition_op(torch.ops.aten.relu.default)


def damaged(data: bytes) -> list[bytes]:
    """Cut, and with impossible numbers in each of its first words."""
    huge = struct.pack("<I", 0x7FFFFFFF)
    cuts = [data[:end] for end in range(0, len(data), max(len(data) // 40, 1))]
    return cuts + [data[:i] + huge + data[i + 4 :] for i in range(8, min(len(data), 400), 4)]


def test_damaged_files_of_weights_and_tests_get_a_sentence(tmp_path: Path) -> None:
    from tosaic.executorch.datafiles import bundled_program, named_data
    from tosaic.executorch.package import save

    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), (torch.randn(1, 4),)
    art = tosaic.compile(net.eval(), x, target=U55, calibration=[x])
    save(art, tmp_path / "net.pte", external_weights=tmp_path / "net.ptd")
    save(art, tmp_path / "net.bpte", test_inputs=[x])
    assert torch.equal(tosaic.load(tmp_path / "net.bpte").run(*x), art.run(*x))
    weights, bundle = ((tmp_path / f"net.{s}").read_bytes() for s in ("ptd", "bpte"))
    assert [len(v) for v in named_data(weights).values()] == [len(art.delegates[0].result.weights)]
    sentences = []
    for read, data in ((named_data, weights), (bundled_program, bundle)):
        for each in damaged(data):
            try:
                read(each)
            except InvalidInput as problem:
                sentences.append(str(problem))
    assert len(sentences) > 80
    assert not any("\n" in sentence for sentence in sentences)
    with pytest.raises(InvalidInput, match="this file holds weights alone"):
        tosaic.load(tmp_path / "net.ptd")

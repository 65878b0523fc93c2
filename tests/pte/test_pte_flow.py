"""ExecuTorch's own flow with Tosaic's names: the quickstart, other partitioners, configs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx.passes.operator_support import OperatorSupportBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import tosaic
from judges.edgenets import Island, Plain, pictures, seeded
from judges.etorch import blobs, deserialized, executorch_or_skip
from judges.velablob import parse
from judges.vulkan import needs_converter
from tosaic.errors import InvalidInput
from tosaic.executorch.api import quiet

executorch_or_skip()

with quiet():
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge, to_edge_transform_and_lower

    from tosaic.executorch import (
        EthosUCompileSpec,
        EthosUPartitioner,
        EthosUQuantizer,
        TosaCompileSpec,
        TOSAPartitioner,
        TOSAQuantizer,
        VgfCompileSpec,
        VgfPartitioner,
        VgfQuantizer,
        create_partitioner,
        create_quantizer,
        get_symmetric_a16w8_quantization_config,
        get_symmetric_quantization_config,
    )

SPEC = "TOSA-1.0+INT"


def quantized(net: nn.Module, quantizer: Any) -> tuple[Any, ExportedProgram]:
    """The flow of PT2E: the converted module, and it exported again."""
    example = pictures(1)[0]
    prepared = prepare_pt2e(torch.export.export(net, example).module(), quantizer)
    for given in pictures(4):
        prepared(*given)
    converted = convert_pt2e(prepared)
    return converted, torch.export.export(converted, example)


@cache
def island() -> tuple[Any, ExportedProgram]:
    quantizer = TOSAQuantizer(TosaCompileSpec(SPEC))
    quantizer.set_global(get_symmetric_quantization_config())
    return quantized(seeded(Island()), quantizer)


def lowered(program: ExportedProgram, *partitioners: Any) -> bytes:
    with quiet():
        edge = to_edge_transform_and_lower(program, partitioner=list(partitioners))
        return bytes(edge.to_executorch().buffer)


def backends(data: bytes) -> list[str]:
    return [backend for backend, _ in blobs(data)]


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u65-256", "ethos-u85-256"])
def test_the_quickstart_runs_with_one_import_line_changed(target: str, tmp_path: Path) -> None:
    compile_spec = EthosUCompileSpec(target)
    quantizer = EthosUQuantizer(compile_spec)
    quantizer.set_global(get_symmetric_quantization_config())
    _, exported = quantized(seeded(Plain()), quantizer)
    with quiet():
        edge = to_edge_transform_and_lower(exported, partitioner=[EthosUPartitioner(compile_spec)])
        executorch_program = edge.to_executorch()
        executorch_program.save(str(tmp_path / "model.pte"))
    data = (tmp_path / "model.pte").read_bytes()
    ((backend, blob),) = blobs(data)
    assert backend == "EthosUBackend"
    parsed = parse(blob)
    assert [t.size for t in parsed.inputs] == [3 * 8 * 8]
    assert [t.size for t in parsed.outputs] == [6]
    assert parsed.scratch_size >= 3 * 8 * 8
    names = {op.name for op in deserialized(data).program.execution_plan[0].operators}
    assert names == {f"quantized_decomposed::{n}quantize_per_tensor" for n in ("", "de")}


def test_a_partitioner_gives_the_same_results_first_and_in_turn() -> None:
    converted, exported = island()
    first, turn = (TOSAPartitioner(TosaCompileSpec(SPEC), in_turn=i) for i in (False, True))
    files = [lowered(exported, partitioner) for partitioner in (first, turn)]
    assert [backends(f) for f in files] == [["TOSABackend"] * 2] * 2
    art = tosaic.compile(converted, pictures(1)[0])
    for given in pictures(3, seed=8):
        wanted = art.run(*given)
        for file in files:
            got = tosaic.load(file).run(*given)
            assert torch.equal(got["scores"], wanted["scores"])
            assert torch.equal(got["maps"][0], wanted["maps"][0])
    assert {r.op for r in first.refused} == {r.op for r in turn.refused}
    assert "aten.sort.default" in {r.op for r in turn.refused}


def test_to_backend_takes_a_partitioner_too() -> None:
    _, exported = island()
    with quiet():
        edge = to_edge(exported).to_backend(TOSAPartitioner(TosaCompileSpec(SPEC)))
        data = bytes(edge.to_executorch().buffer)
    assert backends(data) == ["TOSABackend"] * 2


def test_what_is_not_to_be_decomposed_is_what_is_delegated() -> None:
    """In the program as exported, the tags cover each such call, and the check says so."""
    _, exported = island()
    with quiet():
        program = exported.run_decompositions({})
    partitioner = TOSAPartitioner(TosaCompileSpec(SPEC), in_turn=True)
    operators, check = partitioner.ops_to_not_decompose(program)
    assert torch.ops.aten.conv2d.default in operators
    assert torch.ops.aten.linear.default in operators
    assert torch.ops.aten.sort.default not in operators
    partitioner.partition(program)
    for node in program.graph.nodes:
        if node.target in operators and (check is None or check(node)):
            assert "delegation_tag" in node.meta, node


class NoLinear(OperatorSupportBase):
    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return "linear" not in str(node.target) and "addmm" not in str(node.target)


def test_additional_checks_keep_calls() -> None:
    converted, exported = island()
    partitioner = TOSAPartitioner(TosaCompileSpec(SPEC), [NoLinear()])
    data = lowered(exported, partitioner)
    assert any(r.reason == "NoLinear keeps it" for r in partitioner.refused)
    names = {op.name for op in deserialized(data).program.execution_plan[0].operators}
    assert names & {"aten::linear", "aten::addmm"}
    given = pictures(1, seed=8)[0]
    got = tosaic.load(data).run(*given)["scores"]
    torch.testing.assert_close(got, converted(*given)["scores"], rtol=0, atol=0.05)


class Halves(nn.Module):
    """An int8 part for the NPU, and a float part for the CPU that it feeds."""

    def __init__(self) -> None:
        super().__init__()
        self.npu = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.host = nn.Sequential(nn.Conv2d(8, 4, 3), nn.Sigmoid(), nn.Conv2d(4, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.host(self.npu(x))


def test_xnnpack_takes_the_rest_and_the_stock_runtime_runs_it() -> None:
    """The delegate is cut out of the file; the stock runtime runs all that stands round it."""
    from judges.hostpart import run_in_stock_runtime

    spec = TosaCompileSpec(SPEC)
    config = get_symmetric_quantization_config()
    quantizer = TOSAQuantizer(spec).set_global(config).set_module_name("host", None)
    converted, exported = quantized(seeded(Halves()), quantizer)
    data = lowered(exported, TOSAPartitioner(spec), XnnpackPartitioner())
    assert backends(data).count("TOSABackend") == 1
    assert "XnnpackBackend" in backends(data)
    for given in pictures(3, seed=8):
        (got,) = run_in_stock_runtime(data, given, "TOSABackend")
        torch.testing.assert_close(got, converted(*given), rtol=1e-4, atol=1e-4)
        assert len(got.unique()) > 100


def test_a_float_model_stays_with_xnnpack_and_runs_in_the_stock_runtime() -> None:
    from judges.hostpart import stock_runtime

    net, given = seeded(Halves()), pictures(1)[0]
    partitioner = EthosUPartitioner(EthosUCompileSpec("ethos-u55-128"))
    data = lowered(torch.export.export(net, given), partitioner, XnnpackPartitioner())
    assert set(backends(data)) == {"XnnpackBackend"}
    (got,) = stock_runtime(data, given)
    torch.testing.assert_close(got, net(*given).detach(), rtol=1e-4, atol=1e-4)


def kinds(module: Any) -> list[str]:
    """The types of integers that follow each operator, in order; '' for a float result."""
    found = []
    for node in module.graph.nodes:
        if node.op == "call_function" and "quantize" not in str(node.target):
            users = [u for u in node.users if ".quantize_per" in str(u.target)]
            found.append(str(users[0].args[-1]).removeprefix("torch.") if users else "")
    return found


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1))
        self.last = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sigmoid(self.second(self.first(x))).flatten(2))


NAMES = ["conv", "conv", "conv", "sigmoid", "flatten", "linear"]
WIDE = get_symmetric_a16w8_quantization_config()


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (lambda q: q, ["int8"] * 6),
        (lambda q: q.set_module_name("second", None), ["int8", "", "int8", *["int8"] * 3]),
        (lambda q: q.set_module_name("second.1", WIDE), ["int8", "int8", "int16", *["int8"] * 3]),
        (lambda q: q.set_module_type(nn.Linear, None), [*["int8"] * 5, ""]),
        (lambda q: q.set_node_target(torch.ops.aten.sigmoid.default, WIDE),
         [*["int8"] * 3, "int16", "int8", "int8"]),
        (lambda q: q.set_node_name("conv2d", None), ["int8", *["int8"] * 5]),
        (lambda q: q.set_global(None), [""] * 6),
        (lambda q: q.set_global(WIDE), ["int16"] * 6),
        (lambda q: q.set_global(None).set_io(get_symmetric_quantization_config()),
         [*[""] * 5, "int8"]),
    ],
)  # fmt: skip
def test_configs_choose_what_is_quantized_and_how(choose: Any, expected: list[str]) -> None:
    quantizer = create_quantizer(EthosUCompileSpec("ethos-u55-128"))
    quantizer.set_global(get_symmetric_quantization_config())
    converted, _ = quantized(seeded(Layers()), choose(quantizer))
    assert kinds(converted) == expected


def test_mixed_integers_lower_and_agree_with_the_quantized_module() -> None:
    spec = TosaCompileSpec("TOSA-1.0+INT+int16")
    quantizer = TOSAQuantizer(spec).set_global(get_symmetric_quantization_config())
    converted, exported = quantized(seeded(Layers()), quantizer.set_module_name("second", WIDE))
    data = lowered(exported, TOSAPartitioner(spec))
    assert backends(data) == ["TOSABackend"]
    given = pictures(1, seed=8)[0]
    got, wanted = tosaic.load(data).run(*given), converted(*given)
    assert (got - wanted).abs().max() < 0.02 * wanted.abs().max()


def test_specs_compare_print_and_carry_no_path() -> None:
    spec = EthosUCompileSpec(
        "ethos-u55-128", memory_mode="Sram_Only", extra_flags=["--optimise=Size"]
    )
    same = EthosUCompileSpec(
        "ethos-u55-128", memory_mode="Sram_Only", extra_flags=["--optimise=Size"]
    )
    assert spec == same
    assert hash(spec) == hash(same)
    assert spec != EthosUCompileSpec("ethos-u55-128")
    assert spec != TosaCompileSpec(SPEC)
    assert "Sram_Only" in repr(spec)
    assert spec.dump_debug_info(None) is spec
    assert spec.dump_intermediate_artifacts_to("somewhere/secret") is spec
    assert all(b"secret" not in bytes(entry.value) for entry in spec.to_list())
    assert TosaCompileSpec("TOSA-1.0+FP").target == "TOSA-1.0+FP"


def test_intermediate_artifacts_are_dumped_and_not_in_the_file(tmp_path: Path) -> None:
    _, exported = island()
    spec = TosaCompileSpec(SPEC).dump_intermediate_artifacts_to(tmp_path / "dumped")
    data = lowered(exported, TOSAPartitioner(spec, in_turn=True))
    assert len(list((tmp_path / "dumped").glob("*.tosa"))) == 2
    assert b"dumped" not in data
    lowered(exported, TOSAPartitioner(spec))
    assert len(list((tmp_path / "dumped").glob("*.tosa"))) == 4


def test_factories_give_the_class_of_the_spec() -> None:
    for spec, partitioner, quantizer in (
        (EthosUCompileSpec("ethos-u85-256"), EthosUPartitioner, EthosUQuantizer),
        (TosaCompileSpec(SPEC), TOSAPartitioner, TOSAQuantizer),
        (VgfCompileSpec(), VgfPartitioner, VgfQuantizer),
    ):
        assert type(create_partitioner(spec)) is partitioner
        assert type(create_quantizer(spec)) is quantizer


def test_what_is_not_there_yet_gets_a_sentence() -> None:
    for sentence, call in (
        (r"give EthosUPartitioner\(EthosUCompileSpec\(", lambda: EthosUPartitioner(
            TosaCompileSpec(SPEC))),
        ("there is no accelerator 'ethos-u99'", lambda: EthosUCompileSpec("ethos-u99")),
        ("a quantization config is None or made by", lambda: TOSAQuantizer(
            TosaCompileSpec(SPEC)).set_global("int8")),
        ("is no TOSA specification", lambda: TosaCompileSpec("TOSA-9")),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=sentence):
            call()


@needs_converter
def test_a_vgf_delegate_is_the_file_and_runs_here() -> None:
    _, exported = island()
    data = lowered(exported, VgfPartitioner(VgfCompileSpec(SPEC)))
    assert set(backends(data)) == {"VgfBackend"}
    assert all(blob.startswith(b"VGF1") for _, blob in blobs(data))
    plain = lowered(exported, TOSAPartitioner(TosaCompileSpec(SPEC)))
    (x,) = pictures(1)[0]
    ours, theirs = tosaic.load(data).run(x), tosaic.load(plain).run(x)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    spec = VgfCompileSpec()
    spec.validate_environment()
    with pytest.raises(InvalidInput, match="EXECUTORCH_BUILD_VGF"):
        spec.validate_environment(require_runtime_build=True)


def test_a_backend_of_the_same_name_does_not_get_our_delegates() -> None:
    from executorch.exir.backend.backend_details import BackendDetails

    def preprocess(program: Any, specs: Any) -> Any:
        raise RuntimeError("another backend's")

    other = type("TOSABackend", (BackendDetails,), {"preprocess": staticmethod(preprocess)})
    _, exported = island()
    with quiet():
        partitioner = TOSAPartitioner(TosaCompileSpec(SPEC), in_turn=True)
        edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        assert backends(bytes(edge.to_executorch().buffer)) == ["TOSABackend"] * 2
        last = [c for c in BackendDetails.__subclasses__() if c.__name__ == "TOSABackend"][-1]
        assert last is not other
        with pytest.raises(RuntimeError, match="another backend's"):
            last.preprocess(exported, [])


def test_an_output_in_float_leaves_a_delegate_as_real_numbers() -> None:
    """The layer behind it is left in float, so PyTorch goes on with what the integers mean."""
    quantizer = EthosUQuantizer(EthosUCompileSpec("ethos-u55-128"))
    quantizer.set_node_target(torch.ops.aten.conv2d.default, get_symmetric_quantization_config())
    converted, exported = quantized(seeded(Plain()), quantizer)
    data = lowered(exported, EthosUPartitioner(EthosUCompileSpec("ethos-u55-128")))
    assert backends(data)
    for given in pictures(2, seed=8):
        got, wanted = tosaic.load(data).run(*given), converted(*given)
        assert (got - wanted).abs().max() < 0.05 * wanted.abs().max()

"""Files that need no compiler of ExecuTorch's hold the program that it would have made."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tosaic
from judges.edgenets import Island, Plain, pictures, seeded
from judges.etorch import deserialized, executorch_or_skip
from tosaic.executorch.package import executorch_program, plain_file
from tosaic.executorch.programfile import Call, Method, Numbers, TensorValue, write_program
from tosaic.executorch.specs import LinuxOptions
from tosaic.pipeline.artifact import Artifact

executorch_or_skip()

LINUX = LinuxOptions(device="/dev/npu", timeout_ns=5_000_000_000)


class Several(nn.Module):
    """Inputs in both orders of memory, results in a structure."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 8, 3), nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        a, b = torch.relu(self.one(x)), self.two(y)
        return {"sum": a + b, "mean": (a * b).mean([2, 3])}


class Words(nn.Module):
    """Indices of 64 bits come in, and go out."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(20, 8), nn.Linear(8, 16)

    def forward(self, words: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        made = self.layer(self.table(words) + self.table(more))
        return made, made.argmax(-1)


def words(target: str) -> Artifact:
    data = [tuple(torch.randint(0, 20, (1, 6)) for _ in range(2)) for _ in range(4)]
    return tosaic.compile(seeded(Words()), data[0], target=target, calibration=data)


def several(target: str) -> Artifact:
    data = [
        (torch.randn(1, 3, 9, 9), torch.randn(1, 3, 9, 9).to(memory_format=torch.channels_last))
        for _ in range(4)
    ]
    return tosaic.compile(seeded(Several()), data[0], target=target, calibration=data)


def plain(target: str) -> Artifact:
    return tosaic.compile(seeded(Plain()), pictures(1)[0], target=target, calibration=pictures(4))


def content(file: Any) -> dict[str, Any]:
    """All of a program but the addresses of its tensors."""
    (plan,) = file.program.execution_plan
    values = [dataclasses.asdict(value.val) | {"kind": type(value.val)} for value in plan.values]
    for value in values:
        value.pop("allocation_info", None)
    kept = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    for name in ("values", "non_const_buffer_sizes"):
        kept.pop(name)
    kept["blobs"] = [bytes(d.data) for d in file.program.backend_delegate_data]
    return kept | {"values": values, "version": file.program.version}


@pytest.mark.parametrize("target", ["ethos-u55-128", "TOSA-1.0+INT"])
@pytest.mark.parametrize("made", [plain, several, words])
def test_the_file_holds_the_program_that_executorch_makes(made: Any, target: str) -> None:
    art = made(target)
    data = plain_file(art, LINUX)
    assert data is not None
    mine = deserialized(data)
    theirs = deserialized(bytes(executorch_program(art, "", LINUX, False).buffer))
    assert content(mine) == content(theirs)
    size = mine.program.execution_plan[0].non_const_buffer_sizes[1]
    assert size <= theirs.program.execution_plan[0].non_const_buffer_sizes[1]


@pytest.mark.parametrize("made", [plain, several, words])
def test_files_of_both_ways_run_alike_and_as_the_artifact(made: Any, tmp_path: Path) -> None:
    art = made("ethos-u55-128")
    data = plain_file(art, LinuxOptions())
    assert data is not None
    other = bytes(executorch_program(art, "", LinuxOptions(), False).buffer)
    torch.manual_seed(5)
    inputs = [_like(node.meta["val"]) for node in art.program.arguments]
    found = [tosaic.load(file).run(*inputs) for file in (data, other)]
    expected = art.run(*inputs)
    for got in found:
        pairs = zip(*(torch.utils._pytree.tree_leaves(v) for v in (got, expected)), strict=True)
        for one, other_one in pairs:
            assert torch.equal(one, other_one)
            assert len(one.unique()) > 2


def _like(example: Tensor) -> Tensor:
    if example.dtype is torch.int64:
        return torch.randint(0, 20, example.shape)
    form = torch.contiguous_format if example.is_contiguous() else torch.channels_last
    return torch.randn(example.shape).to(memory_format=form)


def test_the_stock_runtime_verifies_a_file_and_runs_its_kernels() -> None:
    runtime = pytest.importorskip("executorch.runtime")
    import executorch.kernels.quantized  # noqa: F401

    code = {torch.float32: 6, torch.int8: 1}
    real, levels = (TensorValue(code[t], t.itemsize, (2, 3), (0, 1)) for t in code)
    meaning = [0.25, 3, -128, 127, 1]
    values = [real, *meaning, levels, real, None]
    calls = [Call("out", 0, (0, 1, 2, 3, 4, 5, 6, 6)), Call("out", 1, (6, 1, 2, 3, 4, 5, 8, 7, 7))]
    names = [(f"quantized_decomposed::{n}quantize_per_tensor", "out") for n in ("", "de")]
    leaf = '[1, {"type": null, "context": null, "children_spec": []}]'
    data = write_program(Method(values, [0], [7], calls, names, [], leaf, leaf))
    program = runtime.Runtime.get().load_program(
        data, verification=runtime.Verification.InternalConsistency
    )
    x = torch.tensor([[0.1, -0.4, 100.0], [-0.13, 7.9, -60.0]])
    (got,) = program.load_method("forward").execute([x])
    operators = torch.ops.quantized_decomposed
    expected = operators.dequantize_per_tensor(
        operators.quantize_per_tensor(x, 0.25, 3, -128, 127, torch.int8),
        0.25,
        3,
        -128,
        127,
        torch.int8,
    )
    assert torch.equal(got, expected)


def test_the_stock_runtime_converts_types() -> None:
    runtime = pytest.importorskip("executorch.runtime")
    wide, narrow = TensorValue(4, 8, (2, 3), (0, 1)), TensorValue(3, 4, (2, 3), (0, 1))
    values = [wide, narrow, False, 0, 1, Numbers((3, 4)), wide]
    calls = [Call("out", 0, (0, 2, 5, 1, 1)), Call("out", 0, (1, 2, 5, 6, 6))]
    leaf = '[1, {"type": null, "context": null, "children_spec": []}]'
    names = [("dim_order_ops::_to_dim_order_copy", "out")]
    data = write_program(Method(values, [0], [6], calls, names, [], leaf, leaf))
    program = runtime.Runtime.get().load_program(
        data, verification=runtime.Verification.InternalConsistency
    )
    x = torch.tensor([[1, -2, 3], [2**33 + 5, -7, 2**31 - 1]])
    (got,) = program.load_method("forward").execute([x])
    assert torch.equal(got, x.to(torch.int32).to(torch.int64))


def test_the_stock_runtime_verifies_a_file_with_a_delegate() -> None:
    runtime = pytest.importorskip("executorch.runtime")
    data = plain_file(plain("ethos-u55-128"), LINUX)
    program = runtime.Runtime.get().load_program(
        data, verification=runtime.Verification.InternalConsistency
    )
    assert program.method_names == {"forward"}


def test_what_executorch_must_compile_goes_its_way() -> None:
    art = tosaic.compile(seeded(Island()), pictures(1)[0], calibration=pictures(4))
    assert plain_file(art, LinuxOptions()) is None


def test_a_plain_file_is_written_without_loading_executorch(tmp_path: Path) -> None:
    script = f"""
import sys, torch, tosaic
net = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 8), torch.nn.ReLU())
x = (torch.randint(0, 9, (1, 5)),)
tosaic.compile(net, x, target="ethos-u85-256", calibration=[x]).save({str(tmp_path / "net.pte")!r})
print(sorted({{"executorch.exir", "torch._dynamo", "torchao"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["[]"]


def test_a_file_is_read_without_executorch(tmp_path: Path) -> None:
    """Neither its compiler nor torch's is loaded, and it is not needed at all."""
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    data = [(torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(n)),) for n in (0, 1)]
    art = tosaic.compile(net, data[0], target="ethos-u55-128", calibration=data)
    art.save(tmp_path / "net.pte")
    torch.save((data[0][0], art.run(*data[0])), tmp_path / "run.pt")
    told = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path)], capture_output=True, text=True
    )
    assert told.stdout.strip() == "equal []", told.stderr


_READ = """
import sys
sys.modules["executorch"] = None
import tosaic
file = tosaic.load(sys.argv[1] + "/net.pte")
import torch
given, made = torch.load(sys.argv[1] + "/run.pt")
print("equal" if torch.equal(file.run(given), made) else "different",
      [name for name in ("torch._dynamo", "torch._inductor", "sympy", "torchao") if name in sys.modules])
"""  # noqa: E501

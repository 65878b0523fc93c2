"""The ``.pte`` of an artifact: what is in it, what is not, and that it runs as it should."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import tosaic
from judges import edgenets, programs
from judges.edgenets import Indices, Island, Plain, Several, pictures, seeded
from judges.etorch import deserialized, executorch_or_skip
from tosaic.errors import InvalidInput, Unsupported
from tosaic.executorch.api import quiet
from tosaic.executorch.specs import LinuxOptions
from tosaic.pipeline.artifact import Artifact

executorch_or_skip()

INTEGERS, FLOATS = "TOSA-1.0+INT", "TOSA-1.0+FP"


@cache
def island() -> Artifact:
    return tosaic.compile(seeded(Island()), pictures(1)[0], calibration=pictures(8))


def saved(art: Artifact, folder: Path, **options: Any) -> bytes:
    art.save(folder / "net.pte", **options)
    return (folder / "net.pte").read_bytes()


def assert_same(got: Any, expected: Any) -> None:
    """The same structure, types and bits: what integers compute is equal on every processor."""
    mine, theirs = tree_leaves(got), tree_leaves(expected)
    assert len(mine) == len(theirs) > 0
    for one, other in zip(mine, theirs):
        assert one.dtype is other.dtype
        assert torch.equal(one, other)


def test_an_operator_in_the_middle_runs_end_to_end(tmp_path: Path) -> None:
    art = island()
    assert len(art.partition.graphs) == 2
    saved(art, tmp_path)
    loaded = tosaic.load(tmp_path / "net.pte")
    for (x,) in pictures(4, seed=9):
        got = loaded.run(x)
        assert set(got) == {"scores", "maps"}
        assert_same(got, art.run(x))
        assert len(got["scores"].unique()) > 3
        assert len(got["maps"][0].unique()) > 60


def test_executorchs_reader_sees_remainder_and_delegates(tmp_path: Path) -> None:
    plan = deserialized(saved(island(), tmp_path)).program.execution_plan[0]
    assert plan.name == "forward"
    assert [(op.name, op.overload) for op in plan.operators] == [
        ("quantized_decomposed::quantize_per_tensor", "out"),
        ("quantized_decomposed::dequantize_per_tensor", "out"),
        ("aten::sort", "values"),
    ]
    assert [d.id for d in plan.delegates] == ["TOSABackend", "TOSABackend"]
    kinds = [type(i.instr_args).__name__ for i in plan.chains[0].instructions]
    assert kinds == ["KernelCall", "DelegateCall", *["KernelCall"] * 4, "DelegateCall",
                     "KernelCall"]  # fmt: skip
    assert all(chain.stacktrace is None for chain in plan.chains)


def test_the_file_names_no_place_on_this_machine(tmp_path: Path) -> None:
    data = saved(island(), tmp_path)
    here = [os.getcwd(), str(Path.home()), str(tmp_path), sys.prefix, __file__, edgenets.__file__]
    for text in (*here, "edgenets", ".py", "site-packages", "conv.weight", os.environ.get("USER")):
        assert not text or text.encode() not in data, text


SAVE = """
import sys, torch, tosaic
from judges.edgenets import Island, pictures, seeded
art = tosaic.compile(seeded(Island()), pictures(1)[0], calibration=pictures(8))
art.save(sys.argv[1])
"""


def test_the_same_model_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    first = saved(island(), tmp_path)
    assert saved(island(), tmp_path) == first
    other = tmp_path / "other.pte"
    search = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": search}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SAVE, str(other)],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert other.read_bytes() == first


_LOADED = """
import sys, tosaic
made = tosaic.load(sys.argv[1])
print(*made.inputs, *made.outputs, *made.methods, "torch" in sys.modules)
"""


@pytest.mark.parametrize("target", ["TOSA-1.0+INT", "ethos-u55-128"])
def test_a_file_is_loaded_without_pytorch(target: str, tmp_path: Path) -> None:
    art = tosaic.compile(Plain(), pictures(1)[0], target=target, calibration=pictures(2))
    art.save(tmp_path / "net.pte")
    told = subprocess.run(
        [sys.executable, "-c", _LOADED, str(tmp_path / "net.pte")], capture_output=True, text=True
    )
    given, got = pictures(1)[0][0], art.run(*pictures(1)[0])
    shapes = [f"float32[{','.join(map(str, t.shape))}]" for t in (given, got)]
    assert told.stdout.split() == [*shapes, "forward", "False"], told.stderr


def examples(kind: str) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    torch.manual_seed(3)
    x = torch.randn(1, 3, 8, 8)
    last = x.to(memory_format=torch.channels_last)
    wide = tuple(torch.randn(2, 3, 4, 5) for _ in range(3))
    return {
        "plain": (Plain(), (x,)),
        "channels_last": (Plain(), (last,)),
        "channels_last island": (Island(), (last,)),
        "several": (Several(), wide),
        "indices": (Indices(), (x, torch.rand(1, 8, 6, 6) > 0.5)),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "target"),
    [("plain", INTEGERS), ("channels_last island", INTEGERS), ("several", INTEGERS),
     ("indices", INTEGERS), ("channels_last", FLOATS), ("indices", FLOATS)],
)  # fmt: skip
def test_a_file_runs_as_its_artifact_does(kind: str, target: str, tmp_path: Path) -> None:
    net, example = examples(kind)
    more = {"calibration": [example]} if target == INTEGERS else {}
    art = tosaic.compile(seeded(net), example, target=target, **more)
    saved(art, tmp_path)
    loaded = tosaic.load(tmp_path / "net.pte")
    same = assert_same if target == INTEGERS else programs.assert_same  # sums have no one order
    same(loaded.run(*example), art.run(*example))
    flat = [e for e in tree_leaves(example) if isinstance(e, Tensor)]
    assert [i.shape for i in loaded.inputs] == [tuple(e.shape) for e in flat]
    assert [list(i.strides) for i in loaded.inputs] == [list(e.stride()) for e in flat]


def test_weights_go_to_a_file_of_their_own(tmp_path: Path) -> None:
    """Constants that PyTorch keeps: a delegate of TOSA holds its own."""
    art = tosaic.compile(seeded(Lookup()), (torch.arange(6).view(1, 6),), target=FLOATS)
    inside = saved(art, tmp_path)
    outside = saved(art, tmp_path, external_weights=tmp_path / "net.ptd")
    assert len(outside) < len(inside) - 4000
    loaded = tosaic.load(tmp_path / "net.pte", external_weights=tmp_path / "net.ptd")
    given = torch.tensor([[3, 1, 4, 1, 5, 9]])
    assert_same(loaded.run(given), art.run(given))
    with pytest.raises(InvalidInput, match="lie in another file"):
        tosaic.load(tmp_path / "net.pte")
    (tmp_path / "net.ptd").write_bytes((tmp_path / "net.ptd").read_bytes()[:100])
    with pytest.raises(InvalidInput, match="file of weights is damaged"):
        tosaic.load(tmp_path / "net.pte", external_weights=tmp_path / "net.ptd")


class Lookup(torch.nn.Module):
    """A sum that stays on the CPU, over a table of numbers that TOSA's integers cannot hold."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(1200) << 40)

    def forward(self, index: Tensor) -> Tensor:
        return (self.table + index[0, :1])[index[0]]


def test_a_bundled_program_carries_inputs_and_what_they_must_give(tmp_path: Path) -> None:
    from executorch.devtools.bundled_program.serialize import (
        deserialize_from_flatbuffer_to_bundled_program as read,
    )

    art, cases = island(), pictures(2, seed=4)
    art.save(tmp_path / "net.bpte", test_inputs=cases)
    with quiet():
        bundled = read((tmp_path / "net.bpte").read_bytes())
    (suite,) = bundled.method_test_suites
    assert len(suite.test_cases) == 2
    for case, given in zip(suite.test_cases, cases):
        wanted = tree_leaves(art.run(*given))
        stored = [torch.frombuffer(bytearray(o.val.data), dtype=torch.float32)
                  for o in case.expected_outputs]  # fmt: skip
        for mine, other in zip(stored, wanted, strict=True):
            assert torch.equal(mine.view(other.shape), other)
    assert bundled.program == saved(art, tmp_path)
    with pytest.raises(InvalidInput, match="a .bpte needs them"):
        art.save(tmp_path / "other.bpte")
    with pytest.raises(InvalidInput, match="test_inputs is empty"):
        art.save(tmp_path / "other.bpte", test_inputs=[])
    assert not (tmp_path / "other.bpte").exists()


def test_developer_tools_get_a_record(tmp_path: Path) -> None:
    from executorch.devtools.etrecord import parse_etrecord

    saved(island(), tmp_path, etrecord=tmp_path / "net.etrecord")
    record = parse_etrecord(str(tmp_path / "net.etrecord"))
    assert {d["name"] for d in record._delegate_map["forward"].values()} == {"TOSABackend"}


def test_the_runtime_on_linux_gets_its_options(tmp_path: Path) -> None:
    options = LinuxOptions("/dev/ethosu1", 5_000_000_000, True, (17, 2**32 - 1))
    plan = deserialized(saved(island(), tmp_path, linux=options)).program.execution_plan[0]
    for delegate in plan.delegates:
        assert {spec.key: bytes(spec.value) for spec in delegate.compile_specs} == {
            "target": INTEGERS.encode(),
            "ethosu.device": b"/dev/ethosu1",
            "ethosu.timeout_ns": (5_000_000_000).to_bytes(8, "little"),
            "ethosu.enable_cycle_counter": b"\1",
            "ethosu.pmu_event0": b"\x11\0\0\0",
            "ethosu.pmu_event1": b"\xff\xff\xff\xff",
        }
    with pytest.raises(InvalidInput, match="a PMU event does not fit"):
        saved(island(), tmp_path, linux=LinuxOptions(pmu_events=(-1,)))


class Bessel(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.special.bessel_j0(torch.relu(x)))


def test_wrong_uses_get_a_sentence_and_leave_no_file(tmp_path: Path) -> None:
    art = tosaic.compile(Bessel(), (torch.randn(2, 3),), target=FLOATS)
    with pytest.raises(Unsupported, match=r"aten.special_bessel_j0.default stays on the CPU, and "
                       "ExecuTorch's runtime has no kernel"):  # fmt: skip
        art.save(tmp_path / "net.pte")
    with pytest.raises(InvalidInput, match="external weights go to a .ptd file"):
        island().save(tmp_path / "net.pte", external_weights="weights.bin")
    with pytest.raises(InvalidInput, match="cannot write"):
        island().save(tmp_path / "nowhere" / "net.pte")
    with pytest.raises(InvalidInput, match="test_inputs"):
        island().save(tmp_path / "net.pte", test_inputs=pictures(1))
    with pytest.raises(InvalidInput, match="a .tosa file has no option 'linux'"):
        island().save(tmp_path / "net.tosa", linux=None)
    assert list(tmp_path.iterdir()) == []

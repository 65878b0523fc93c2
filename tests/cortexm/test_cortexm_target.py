"""The Cortex-M targets as a user meets them: files, runs, memory, limits, warnings, the report."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tosaic
from cortexm.build import STRICT, has_compiler
from tosaic.errors import InvalidInput, ToolFailed, ToolMissing
from tosaic.sim.cortexm import qemu
from tosaic.targets.cortexm.cores import CORES
from tosaic.targets.cortexm.host import Host
from tosaic.targets.cortexm.program import Chain

needs_gcc = pytest.mark.skipif(not has_compiler(), reason="gcc is not installed")
needs_qemu = pytest.mark.skipif(qemu.missing() is not None, reason=qemu.missing() or "")


class Residual(nn.Module):
    """What small networks for pictures are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.expand = nn.Conv2d(8, 24, 1)
        self.depth = nn.Conv2d(24, 24, 3, 1, 1, groups=24)
        self.project = nn.Conv2d(24, 8, 1)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        y = nn.functional.hardswish(self.depth(nn.functional.relu6(self.expand(x))))
        x = nn.functional.max_pool2d(x + self.project(y), 2)
        return torch.softmax(self.head(x.mean((2, 3))), -1)


KEPT: dict[str, tuple[Any, Tensor]] = {}


def compiled(target: str = "cortex-m4", **options: Any) -> tuple[Any, Tensor]:
    """The network, compiled once for each target and options."""
    key = f"{target} {options}"
    if key not in KEPT:
        KEPT[key] = fresh(target, **options)
    return KEPT[key]


def fresh(target: str = "cortex-m4", **options: Any) -> tuple[Any, Tensor]:
    torch.manual_seed(3)
    net, data = Residual().eval(), [(torch.randn(1, 3, 16, 16),) for _ in range(4)]
    return tosaic.compile(net, data[0], target=target, calibration=data, **options), data[1][0]


@needs_gcc
@pytest.mark.parametrize("target", CORES)
def test_the_c_equals_the_interpreter_on_the_host(target: str) -> None:
    art, x = compiled(target)
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))
    assert len(torch.unique(art.run(x))) > 3


@needs_gcc
@pytest.mark.parametrize("target", ["c", "cortex-m4", "cortex-m55"])
def test_no_layer_is_dropped_by_a_compiler_that_optimizes(target: str) -> None:
    """GCC 12 took a function that reads weights by a known address for one without effect."""
    torch.manual_seed(1)
    data = [(torch.randn(1, 16),) for _ in range(4)]
    art = tosaic.compile(nn.Linear(16, 7).eval(), data[0], target=target, calibration=data)
    assert torch.equal(art.run(*data[1]), art.run(*data[1], engine="tosa"))


@needs_qemu
@pytest.mark.parametrize(
    "target", ["cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55"]
)
def test_the_c_equals_the_interpreter_on_the_emulated_core(target: str) -> None:
    art, x = compiled(target)
    assert torch.equal(art.run(x, engine="qemu"), art.run(x, engine="tosa"))


@pytest.mark.parametrize("command", ["gcc -std=c99", "clang -std=c99", "g++ -x c++ -std=c++17",
                                     "clang++ -x c++ -std=c++17"])  # fmt: skip
@pytest.mark.parametrize("memory", ["fast", "small"])
def test_the_c_compiles_without_a_warning(command: str, memory: str, tmp_path: Path) -> None:
    if not shutil.which(command.split()[0]):
        pytest.skip(f"{command.split()[0]} is not installed")
    for target in ("c", "cortex-m4", "cortex-m55"):
        compiled(target, memory=memory)[0].save(tmp_path / target)
        flags = [flag for flag in STRICT if not flag.startswith("-std")]
        done = subprocess.run(
            [*command.split(), *flags, "-c", "net.c", "-o", "net.o"], cwd=tmp_path / target,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stderr[:2000]


def test_the_folder_is_the_same_each_time_and_names_no_place(tmp_path: Path) -> None:
    for number in (1, 2):
        fresh()[0].save(tmp_path / str(number))
    files = sorted(p.relative_to(tmp_path / "1") for p in (tmp_path / "1").rglob("*.*"))
    assert {"net.h", "net.c", "net_weights.bin", "net_weights.S", "CMakeLists.txt"} <= {
        str(f) for f in files
    }
    for file in files:
        data = (tmp_path / "1" / file).read_bytes()
        assert data == (tmp_path / "2" / file).read_bytes()
        if file.suffix != ".bin":
            assert not re.search(rb"/(root|home|tmp|work|usr)/", data)


@pytest.mark.parametrize("memory", ["fast", "small"])
def test_the_c_says_which_module_a_call_is_of(memory: str, tmp_path: Path) -> None:
    compiled("cortex-m4", memory=memory)[0].save(tmp_path)
    text = (tmp_path / "net.c").read_text()
    for name, operator in (("stem", "CONV2D"), ("depth", "DEPTHWISE_CONV2D"), ("head", "CONV2D")):
        assert re.search(rf"/\* {name}: {operator} \*/\n +net_\w+\(", text)


def test_c_needs_nothing_but_memcpy_and_memset(tmp_path: Path) -> None:
    if not shutil.which("gcc") or not shutil.which("nm"):
        pytest.skip("gcc is not installed")
    compiled("c")[0].save(tmp_path)
    subprocess.run(["gcc", "-O2", "-c", "net.c"], cwd=tmp_path, check=True)
    told = subprocess.run(["nm", "-u", "net.o"], cwd=tmp_path, check=True, capture_output=True)
    wanted = set(told.stdout.decode().split()) - {"U", "_GLOBAL_OFFSET_TABLE_"}
    assert wanted <= {"memcpy", "memset", "net_weights"}


def test_the_arena_is_as_large_as_what_lives_at_one_time() -> None:
    plan = compiled("c")[0].delegates[0].plan
    moments = [
        sum(s.size for s in plan.storages if s.start <= time <= s.end)
        for time in range(max(s.end for s in plan.storages) + 1)
    ]
    assert plan.size == max(moments)


def test_tensors_that_live_together_lie_apart() -> None:
    for options in ({}, {"memory": "small"}, {"memories": {"fast": 1600, "slow": 9000}}):
        plan = compiled("c", **options)[0].delegates[0].plan
        for a in plan.storages:
            for b in plan.storages:
                if a is not b and a.memory == b.memory and a.start <= b.end and b.start <= a.end:
                    assert a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


@needs_gcc
def test_streamed_rows_need_less_memory_and_give_the_same() -> None:
    art, x = compiled("c", memory="small")
    assert any(isinstance(item, Chain) for item in art.delegates[0].program.items)
    assert art.delegates[0].plan.size < 0.6 * compiled("c")[0].delegates[0].plan.size
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))


def test_rows_are_streamed_no_more_than_a_limit_asks_for() -> None:
    def streamed(**options: Any) -> tuple[int, int]:
        made = compiled("c", memory="small", **options)[0].delegates[0]
        chains = [item for item in made.program.items if isinstance(item, Chain)]
        return made.plan.size, sum(len(chain.stages) for chain in chains)

    small, whole = streamed(), compiled("c")[0].delegates[0].plan.size
    between = streamed(max_arena_bytes=whole - 4)
    assert small[0] < between[0] <= whole - 4
    assert 0 < between[1] <= small[1]
    assert streamed(max_arena_bytes=whole) == (whole, 0)


@needs_gcc
def test_weights_that_are_read_most_often_lie_in_memories_of_their_own(tmp_path: Path) -> None:
    art, x = compiled("cortex-m4", weights={"dtcm": 700, "sram": 500})
    network = art.delegates[0]
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))
    (first, end), (second, after) = network.parts
    assert (first, second) == ("dtcm", "sram")
    assert 0 < end <= 700
    assert 0 < after - end <= 500
    assert b"tk_opaque(net_weights_dtcm) + 0" in network.files["net.c"]
    assert b"#define NET_WEIGHTS_DTCM_SECTION .rodata.dtcm" in network.files["net_weights.S"]
    assert sum(network.estimate.flash_parts.values()) == network.flash


def test_options_may_be_text_as_on_the_command_line() -> None:
    art, _ = compiled("c", memories="dtcm:1600,sram=9000", max_arena_bytes="64K")
    assert [name for name, _ in art.delegates[0].plan.memories] == ["dtcm", "sram"]
    with pytest.raises(InvalidInput, match="max_arena_bytes limits it"):
        compiled(max_scratch_bytes=100)


@needs_qemu
def test_several_memories_on_the_emulated_core() -> None:
    art, x = compiled("cortex-m4", memories={"dtcm": 1600, "sram": 9000})
    assert torch.equal(art.run(x, engine="qemu"), art.run(x, engine="tosa"))


@needs_gcc
def test_several_memories_give_the_same_and_the_first_holds_what_is_hot() -> None:
    art, x = compiled("c", memories={"dtcm": 1600, "sram": 9000})
    (_, first), (_, second) = art.delegates[0].plan.memories
    assert 0 < first <= 1600
    assert 0 < second <= 9000
    assert torch.equal(art.run(x), art.run(x, engine="tosa"))


@needs_gcc
@pytest.mark.parametrize("scheme", ["int8", "a16w8"])
def test_a_transposed_convolution_is_plain_ones_without_wide_sums(scheme: str) -> None:
    torch.manual_seed(2)
    data = [(torch.randn(1, 8, 6, 5),) for _ in range(4)]
    net = nn.ConvTranspose2d(8, 6, 4, 2, 1).eval()
    art = tosaic.compile(net, data[0], target="cortex-m4", scheme=scheme, calibration=data)
    (network,) = art.delegates
    assert {op.name for op in network.graph.ops}.isdisjoint({"TRANSPOSE_CONV2D"})
    assert all(buffer.ctype in ("int8_t", "int16_t") for step in network.program.steps()
               for buffer in step.writes)  # fmt: skip
    assert torch.equal(art.run(*data[1]), art.run(*data[1], engine="tosa"))


def test_limits_say_where_the_memory_goes() -> None:
    with pytest.raises(InvalidInput, match=r"arena needs .* bytes, and 100 are allowed; .*depth"):
        compiled(max_arena_bytes=100)
    with pytest.raises(InvalidInput, match="flash, and 100 are allowed"):
        compiled(max_flash_bytes=100)


@pytest.mark.parametrize(
    "options", [{"memory": "tiny"}, {"name": "1net"}, {"memories": {"a": -1}}, {"flash": 3},
                {"max_arena_bytes": "much"},
                {"memories": "dtcm"}],
)  # fmt: skip
def test_odd_options_are_refused_with_a_sentence(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        compiled(**options)


def test_the_report_has_memory_and_macs() -> None:
    text = str(compiled()[0].report)
    assert "flash" in text
    assert "arena" in text


@needs_gcc
def test_an_artifact_that_ran_is_pickled() -> None:
    art, x = compiled()
    wanted = art.run(x)
    assert torch.equal(pickle.loads(pickle.dumps(art)).run(x), wanted)


@needs_gcc
@pytest.mark.parametrize(
    ("body", "why"),
    [("*(volatile char *)0 = 1;", "ended with signal SIG"), ("exit(7);", "ended with status 7"),
     ("for (;;) { *(volatile int *)arena = 1; }", "did not end within 1 s")],
)  # fmt: skip
def test_a_fault_of_the_c_ends_no_process_but_its_own(body: str, why: str) -> None:
    graph = compiled("c")[0].delegates[0].graph
    files = {
        "net.h": b"#include <stddef.h>\n#include <stdint.h>\nstruct net_io { const void *inputs[1];"
        b" void *outputs[1]; };\nvoid net_run(const struct net_io *io, void *arena);\n",
        "net.c": b'#include <stdlib.h>\n#include "net.h"\nvoid net_run(const struct net_io *io,'
        b" void *arena) { (void)io; (void)arena; " + body.encode() + b" }\n",
    }
    seconds = 1.0 if "for" in body else 60.0
    host = Host(files, "net", [16], graph.inputs, graph.outputs, seconds)
    given = [np.zeros(v.shape, v.dtype.array) for v in graph.inputs]
    with pytest.raises(ToolFailed, match=why):
        host.run(*given)


def test_a_c_compiler_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    art, x = fresh("c")
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(ToolMissing, match="no C compiler .*no-such-compiler.*install gcc"):
        art.run(x)


class Counter(nn.Module):
    """A state that lasts."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, 4, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x)
        return self.count * 2


def test_state_lies_in_a_struct_of_the_caller(tmp_path: Path) -> None:
    x = (torch.ones(1, 4, dtype=torch.int32),)
    art = tosaic.compile(Counter(), x, target="c", calibration=[x])
    art.save(tmp_path)
    header = (tmp_path / "net.h").read_text()
    assert "int32_t count[4];" in header
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    (tmp_path / "main.c").write_text(
        '#include "net.h"\nint main(void)\n{\n    struct net_state s;\n    struct net_io io;\n'
        "    int32_t x[4] = { 1, 2, 3, 4 }, y[4];\n    static int32_t arena[NET_ARENA_SIZE];\n"
        "    io.inputs[0] = x;\n    io.outputs[0] = y;\n    io.state = &s;\n"
        "    net_state_init(&s);\n    net_run(&io, arena);\n    net_run(&io, arena);\n"
        "    return y[3] == 16 && s.count[3] == 8 ? 0 : 1;\n}\n"
    )
    command = ["gcc", "-std=c99", "-I.", "main.c", "net.c", "net_weights.S", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0

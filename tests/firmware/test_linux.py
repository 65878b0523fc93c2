"""Linux: the same sources as a shared library and a program, for this processor and aarch64."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tosaic
from firmware.images import Recurrent, check, needs
from firmware.test_faults import replaced
from tosaic import firmware
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput, ToolFailed
from tosaic.firmware import emulation
from tosaic.firmware.toolchain import build
from tosaic.pipeline.artifact import Artifact

pytestmark = needs("linux")
AARCH64, SANITIZERS = {"TOOLCHAIN": "aarch64"}, {"SANITIZERS": "ON"}


@pytest.fixture(scope="module", params=["c", "ethos-u55-128"])
def art(request: pytest.FixtureRequest) -> Artifact:
    net, x, data = example("cnn")
    return tosaic.compile(net, x, target=request.param, calibration=data)


@pytest.mark.parametrize(
    "options",
    [pytest.param(AARCH64, marks=needs("linux", **AARCH64)), SANITIZERS,
     {"UNDEFINED_TRAPS": "ON", "STACK_PROTECTOR": "ON", "OPTIMIZE": "size"}],
    ids=["aarch64", "sanitizers", "traps"],
)  # fmt: skip
def test_a_program_gives_what_the_artifact_gives(art: Artifact, options: dict[str, str]) -> None:
    ran = check({"net": art}, {"net": example("cnn")[2][:2]}, "linux", options=options)
    assert 0 < ran.figures[""]["stack"] < 16384
    assert ran.figures["net"]["arena"] == ran.figures["net"]["of"]


def test_two_networks_and_a_state_beside_the_npu() -> None:
    torch.manual_seed(0)
    data = [(torch.randn(1, 8),) for _ in range(4)]
    kept = tosaic.compile(Recurrent().eval(), data[0], target="ethos-u65-256+c", calibration=data)
    net, x, more = example("keywords")
    other = tosaic.compile(net, x, target="ethos-u65-256+c", calibration=more)
    check({"kept": kept, "main": other}, {"kept": data, "main": more[:1]}, "linux")


class Network(ctypes.Structure):
    """struct fw_network of firmware.h."""

    _fields_ = [
        ("name", ctypes.c_char_p), ("inputs", ctypes.c_uint32), ("outputs", ctypes.c_uint32),
        ("arena", ctypes.c_uint32), ("ports", ctypes.c_void_p), ("init", ctypes.CFUNCTYPE(None)),
        ("run", ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_uint32)),
    ]  # fmt: skip


def test_another_program_loads_the_library(tmp_path: Path) -> None:
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target="c", calibration=data, io=("float", "int8"))
    firmware.project({"net": art}, "linux", inputs={"net": data[:1]}).save(tmp_path / "fw")
    build(tmp_path / "fw", tmp_path / "build", system="linux")
    library = ctypes.CDLL(str(tmp_path / "build" / "libnetworks.so"))
    library.fw_arena.restype = ctypes.c_void_p
    table = (ctypes.POINTER(Network) * 1).in_dll(library, "fw_networks")
    given = np.fromfile(tmp_path / "fw" / "inputs" / "net.in0", np.int8)
    made = np.zeros(10, np.int8)
    ins, outs = (ctypes.c_void_p * 1)(given.ctypes.data), (ctypes.c_void_p * 1)(made.ctypes.data)
    found = table[0].contents
    found.init()
    assert found.run(ins, outs, library.fw_arena(), found.arena) == 0
    assert torch.equal(torch.from_numpy(made), art.run(*data[0]).flatten())


@pytest.mark.parametrize(
    ("code", "options", "reason"),
    [
        ("volatile uint8_t deep[1 << 20]; for (int i = (1 << 20) - 1; i >= 0; i -= 64) deep[i] = 1;"
         " if (deep[63] > 1) return FW_FAULT;", {}, "the stack overflowed"),
        ("*(volatile int *)(uintptr_t)size = 1;", {}, "the processor met a fault"),
        ("volatile int32_t far = 2147483647; far = far + 1;", {"UNDEFINED_TRAPS": "ON"},
         "the program trapped"),
    ],
    ids=["stack", "address", "trap"],
)  # fmt: skip
def test_faults_are_sentences(
    tmp_path: Path, code: str, options: dict[str, str], reason: str
) -> None:
    ran = _broken(tmp_path, code, options)
    assert ran.reason.startswith(reason)
    assert ran.status >= 16


def test_a_finding_of_the_sanitizers_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="insufficient space|AddressSanitizer"):
        _broken(tmp_path, "uint8_t few[4]; volatile uint32_t far = 4; ((volatile uint8_t *)few)"
                          "[far] = 1;", SANITIZERS)  # fmt: skip


def _broken(folder: Path, code: str, options: dict[str, str]) -> Any:
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target="c", calibration=data)
    firmware.project({"net": art}, "linux", inputs={"net": data[:1]}).save(folder)
    replaced("networks/net.c", "    if (size <", f"    {code}\n    if (size <")(folder)
    return emulation.run(folder, options=options, timeout=60)


def test_no_npu_beside_the_program_is_told(art: Artifact, tmp_path: Path) -> None:
    firmware.project({"net": art}, "linux", inputs={"net": example("cnn")[2][:1]}).save(tmp_path)
    manifest = json.loads((tmp_path / "firmware.json").read_text())
    if "npu" not in manifest:
        return
    del manifest["npu"]
    (tmp_path / "firmware.json").write_text(json.dumps(manifest))
    assert emulation.run(tmp_path).reason.startswith("no NPU answers")


def test_what_linux_has_not_is_refused(art: Artifact) -> None:
    with pytest.raises(InvalidInput, match="one memory for all parts"):
        firmware.project({"net": art}, "linux", {"arena": "ddr"})
    with pytest.raises(InvalidInput, match="gcc, clang or aarch64, not 'icc'"):
        check({"net": art}, {"net": example("cnn")[2][:1]}, "linux", options={"TOOLCHAIN": "icc"})

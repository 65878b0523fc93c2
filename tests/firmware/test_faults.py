"""Each fault of an image is told in its own sentence, with a failing exit code, and none hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tosaic
from firmware.images import needs_qemu
from tosaic import firmware
from tosaic.cli.examples import example
from tosaic.errors import ToolFailed, ToolMissing
from tosaic.firmware import emulation
from tosaic.firmware.boards import HERE, parse
from tosaic.firmware.emulation import Ran
from tosaic.firmware.toolchain import build

pytestmark = needs_qemu
QUICK = "BOARD_NPU_TIMEOUT=50u"


@pytest.fixture(scope="module")
def image() -> firmware.Project:
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target="ethos-u55-128", calibration=data)
    return firmware.project({"net": art}, "corstone-300")


def failed(image: firmware.Project, folder: Path, **options: Any) -> Ran:
    (port,) = image.networks[0].inputs.values()
    given = {"net": [[np.zeros(port.shape, port.dtype)]]}
    image.save(folder)
    for change in options.pop("changes", ()):
        change(folder)
    ran = emulation.run(folder, given, **{"timeout": 60, **options})
    assert ran.status >= 16
    assert not ran.outputs
    return ran


def damaged(name: str, at: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "networks" / name
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    return change


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def test_a_damaged_stream(image: firmware.Project, tmp_path: Path) -> None:
    ran = failed(image, tmp_path, changes=[damaged("net_0_stream.bin", 33)])
    assert ran.reason.startswith("the NPU cannot read the command stream")
    assert ran.findings


def test_a_stream_without_its_header(image: firmware.Project, tmp_path: Path) -> None:
    ran = failed(image, tmp_path, changes=[damaged("net_0_stream.bin", 0)])
    assert ran.reason.startswith("the command stream is damaged")


def test_another_npu_than_the_streams(image: firmware.Project, tmp_path: Path) -> None:
    ran = failed(image, tmp_path, config=0x00001808)  # an Ethos-U55 of 256
    assert ran.reason.startswith("the command stream was compiled for another NPU")


def test_no_npu_at_all(image: firmware.Project, tmp_path: Path) -> None:
    away = replaced("board.h", "BOARD_NPU_BASE 0x60000000u", "BOARD_NPU_BASE 0x60008000u")
    ran = failed(image, tmp_path, changes=[away])
    assert ran.reason.startswith("no NPU answers")


def test_a_missing_interrupt(image: firmware.Project, tmp_path: Path) -> None:
    ran = failed(image, tmp_path, interrupts=False, options={"DEFINITIONS": QUICK})
    assert ran.reason.startswith("the NPU ended, and its interrupt did not come")


def test_an_arena_one_byte_too_small(image: firmware.Project, tmp_path: Path) -> None:
    size = json.loads(image.files["firmware.json"])["networks"][0]["arena"] - 1
    ran = failed(image, tmp_path, options={"DEFINITIONS": f"NETWORKS_ARENA_SIZE={size}"})
    assert ran.reason == "the arena is smaller than the network needs"


def test_misaligned_weights(image: firmware.Project, tmp_path: Path) -> None:
    moved = replaced("networks/net_data.S", "net_0_weights:", "    .byte 0\nnet_0_weights:")
    ran = failed(image, tmp_path, changes=[moved])
    assert ran.reason.startswith("the stream, the weights or the arena are not aligned")


def test_a_read_of_memory_that_nobody_wrote(image: firmware.Project, tmp_path: Path) -> None:
    forgotten = replaced("networks/net.c", "memcpy(at + 0, inputs[0], 3072u);", "")
    ran = failed(image, tmp_path, changes=[forgotten])
    assert ran.reason.startswith("the NPU met a bus fault")
    assert "nothing has written" in ran.findings[0]
    assert "region 1 is at 0x6001" in ran.findings[0]


@pytest.mark.parametrize(
    ("target", "board"),
    [("ethos-u55-128", "corstone-300"), ("cortex-m4", "mps2-an386"), ("cortex-m3", "mps2-an385")],
)
def test_a_stack_that_overflows(target: str, board: str, tmp_path: Path) -> None:
    text = (HERE / f"{board}.toml").read_text().replace('stack = "16K"', "stack = 256")
    net, x, data = example("cnn")
    art = tosaic.compile(net, x, target=target, calibration=data)
    deep = replaced(
        "networks/net.c", "    if (size <",
        "    volatile uint8_t deep[4096];\n    for (int i = 4095; i >= 0; i -= 64)\n"
        "        deep[i] = 1;\n    if (deep[63] > 1)\n        return FW_FAULT;\n    if (size <",
    )  # fmt: skip
    ran = failed(
        firmware.project({"net": art}, parse(text, f"{board}.toml")), tmp_path, changes=[deep]
    )
    assert ran.reason.startswith("the stack overflowed")


def test_undefined_behaviour_is_a_trap(image: firmware.Project, tmp_path: Path) -> None:
    shifted = replaced(
        "networks/net.c", "    if (size <",
        "    volatile int32_t far = 2147483647;\n    far = far + 1;\n    if (size <",
    )  # fmt: skip
    ran = failed(image, tmp_path, changes=[shifted], options={"UNDEFINED_TRAPS": "ON"})
    assert ran.reason.startswith("the program trapped")


def test_a_guest_that_does_not_end_is_told(image: firmware.Project, tmp_path: Path) -> None:
    endless = replaced("networks/net.c", "    if (size <", "    for (;;) {\n    }\n    if (size <")
    with pytest.raises(ToolFailed, match="the image did not end within 2 s under qemu"):
        failed(image, tmp_path, changes=[endless], timeout=2)


def test_a_guest_that_calls_nowhere_is_told(image: firmware.Project, tmp_path: Path) -> None:
    wild = "    ((void (*)(void))(uintptr_t)(size | 0xF0000001u))();\n    if (size <"
    ran = failed(image, tmp_path, changes=[replaced("networks/net.c", "    if (size <", wild)])
    assert ran.reason.startswith("the processor met a fault")


@pytest.mark.parametrize(
    ("system", "options", "reason"),
    [("none", {}, "arm-none-eabi-gcc and qemu-system-arm and cmake not found: install the"),
     ("linux", {"TOOLCHAIN": "aarch64"}, "aarch64-linux-gnu-gcc and qemu-aarch64 and cmake"),
     ("linux", {}, "gcc and cmake not found: install the packages gcc ")],
)  # fmt: skip
def test_missing_tools_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, options: dict[str, str],
    reason: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(ToolMissing, match=reason):
        build(tmp_path, tmp_path / "build", options, system)

"""Projects: boards as data with refusals by line, placement, files that are the same each time."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tosaic
from firmware.images import check, needs_qemu
from tosaic import firmware
from tosaic.cli import main
from tosaic.cli.examples import example
from tosaic.errors import InvalidInput
from tosaic.firmware import toolchain
from tosaic.firmware.boards import HERE, parse
from tosaic.pipeline.artifact import Artifact

GOOD = (HERE / "corstone-300.toml").read_text()


@pytest.fixture(scope="module")
def art() -> Artifact:
    net, x, data = example("cnn")
    return tosaic.compile(net, x, target="ethos-u55-128", calibration=data)


def line_of(text: str, part: str, nth: int = 1) -> int:
    lines = [number for number, line in enumerate(text.splitlines(), 1) if part in line]
    return lines[nth - 1]


@pytest.mark.parametrize("name", firmware.names())
def test_every_board_that_comes_with_tosaic_is_read(name: str) -> None:
    board = firmware.board_of(name)
    assert board.name == name
    assert board.is_linux or board.boot.boots


@pytest.mark.parametrize(
    ("old", "new", "at", "reason"),
    [
        ("address = 0x21000000", "address = 0x20040000", "address = 0x20040000", "overlaps dtcm"),
        ('core = "cortex-m55"', 'core = "cortex-m99"', "core = ", "no core that is known"),
        ('size = "4M"', 'size = "4X"', 'size = "4X"', "no size such as"),
        ("interrupt = 56", "interrupt = 5600", "interrupt", "no number from 0 to 479"),
        ("interrupt = 56", "irq = 56", "irq", "'irq' is not known here"),
        ("clock = 32_000_000", "clock = fast", "clock", "no number, text in quotes"),
        ("base = 0x48102000", "base = 0x48102004", "base", "no multiple of 4096"),
        ('kinds = ["ethos-u55", "ethos-u65"]', "kinds = []", "kinds", "kinds are a list"),
        ("boots = true", "", "about", "one memory has 'boots = true'"),
        ('name = "ddr"', 'name = "sram"', 'name = "sram"', "two memories"),
        ("rank = 1", "rank = true", "rank = true", "no number"),
        ("[npu]", "[gpu]", "[gpu]", "no table 'gpu'"),
        ("cache = true", "cache = true\nnonsense", "nonsense", "no 'key = value'"),
        ("shared = 0x60000000", "shared = 0x60000001", "shared", "no 2147483648 bytes can be"),
        ('name = "dtcm"', 'name = "ORIGIN"', "ORIGIN", "a word in small letters"),
        ('core = "cortex-m55"', 'system = "dos"', "system", "a system is 'linux'"),
        ('core = "cortex-m55"', 'system = "linux"', "[[memory]]", "one memory for all"),
        ('size = "2G"', 'size = "-1"', 'size = "-1"', "no size"),
    ],
)
def test_a_wrong_board_is_refused_with_its_line(old: str, new: str, at: str, reason: str) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    with pytest.raises(InvalidInput, match=re.escape(reason)) as told:
        parse(text, "my.toml")
    place = re.match(r"my\.toml:(\d+): ", str(told.value))
    assert place is not None
    nth = 2 if new == 'name = "sram"' else 1
    wanted = 1 if at == "about" else line_of(text, at, nth)
    assert int(place[1]) == wanted


def test_a_board_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidInput, match="there are corstone-300"):
        firmware.board_of("corstone-3000")
    with pytest.raises(InvalidInput, match="cannot be read"):
        firmware.board_of("nowhere.toml")


def test_a_network_for_another_npu_than_the_boards_is_refused(art: Artifact) -> None:
    with pytest.raises(InvalidInput, match="corstone-320 has ethos-u85"):
        firmware.project({"net": art}, "corstone-320")
    with pytest.raises(InvalidInput, match="has no NPU"):
        firmware.project({"net": art}, "mps2-an386")


def test_what_fits_no_memory_is_refused_with_the_sizes(art: Artifact) -> None:
    tight = parse(GOOD.replace('size = "4M"', 'size = "4K"').replace('"256M"', '"16K"'), "my.toml")
    with pytest.raises(InvalidInput, match=r"the arena of the image needs [\d,]+ bytes"):
        firmware.project({"net": art}, tight)


def test_parts_lie_where_the_user_puts_them(art: Artifact) -> None:
    made = firmware.project({"net": art}, "corstone-300", {"arena": "ddr"})
    assert b".arena (NOLOAD) : ALIGN(16) { *(.arena*) } > ddr" in made.files["board.ld"]
    with pytest.raises(InvalidInput, match="places nothing"):
        firmware.project({"net": art}, "corstone-300", {"arena": "moon"})


def test_an_emulator_that_shares_too_little_is_refused(art: Artifact) -> None:
    small = parse(GOOD.replace('size = "2G"', 'size = "1M"'), "my.toml")
    with pytest.raises(InvalidInput, match="no room for ddr"):
        firmware.project({"net": art}, small)


def test_a_network_may_have_any_word_of_c_as_its_name(art: Artifact) -> None:
    made = firmware.project({"double": art, "main": art}, "corstone-300")
    assert b"&network_double, &network_main" in made.files["networks/networks.c"]
    for name in ("networks", "inputs", "A", "a-b"):
        with pytest.raises(InvalidInput, match="name"):
            firmware.project({name: art}, "corstone-300")


def test_a_project_takes_the_place_of_another_and_of_nothing_else(
    art: Artifact, tmp_path: Path
) -> None:
    firmware.project({"one": art}, "corstone-300").save(tmp_path)
    (tmp_path / "networks" / "mine.c").touch()
    made = firmware.project({"two": art}, "linux")
    made.save(tmp_path)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert left == set(made.files) | {"networks/mine.c"}


def test_the_core_of_a_board_is_beside_its_npu_unless_told_otherwise() -> None:
    board = firmware.board_of("corstone-300")
    assert firmware.usual_target(board) == "ethos-u55-128+cortex-m55"
    assert firmware.usual_target(board, "ethos-u65-256") == "ethos-u65-256+cortex-m55"
    assert firmware.usual_target(board, "ethos-u55-64+c") == "ethos-u55-64+c"
    assert firmware.usual_target(firmware.board_of("mps2-an386")) == "cortex-m4"
    assert firmware.usual_target(firmware.board_of("linux")) == "c"
    assert firmware.board_for("ethos-u85-256+c").name == "linux"
    assert firmware.board_for("ethos-u85-256").name == "corstone-320"


def test_what_stays_in_pytorch_is_refused_with_the_way_out() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.relu(x)
            return torch.cond(y.sum() > 1, lambda v: v * 2, lambda v: v - 1, (y,))

    data = [(torch.randn(1, 16),) for _ in range(2)]
    made = tosaic.compile(Branch(), data[0], target="ethos-u55-128", calibration=data)
    with pytest.raises(InvalidInput, match=re.escape("ethos-u55-128+cortex-m55")):
        firmware.project({"net": made}, "corstone-300")


def test_projects_are_the_same_each_time_and_name_no_path(art: Artifact, tmp_path: Path) -> None:
    one, other = (firmware.project({"net": art}, "corstone-300").files for _ in range(2))
    assert one == other
    for name, data in one.items():
        assert str(Path.cwd()).encode() not in data, name
        assert os.fsencode(tmp_path) not in data, name


@needs_qemu
def test_the_command_makes_and_runs_an_image(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "fw"
    with pytest.raises(SystemExit) as stop:
        main(["firmware", "cnn", "-t", "ethos-u55-128", "-o", str(folder), "--run"])
    assert stop.value.code in (0, None)
    assert "equal to art.run in every bit" in capsys.readouterr().out
    assert (folder / "CMakeLists.txt").is_file()
    with pytest.raises(SystemExit) as stop:
        main(["run", str(folder), "--build", "INPUTS=image", "-o", str(tmp_path / "out")])
    assert stop.value.code in (0, None)
    said = capsys.readouterr().out
    assert "cnn: runs=3" in said
    printed = bytes.fromhex(re.findall("cnn.out0=(.*)", said)[2])
    assert np.load(tmp_path / "out" / "output_2.npy").tobytes() == printed


def test_a_folder_that_is_no_project_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["run", str(tmp_path)])
    assert stop.value.code == 2
    assert "is no firmware project" in capsys.readouterr().err


@needs_qemu
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
def test_clang_builds_the_same_project(art: Artifact) -> None:
    check({"net": art}, {"net": example("cnn")[2][:1]}, options={"TOOLCHAIN": "clang"})


@needs_qemu
@pytest.mark.parametrize(
    "options",
    [{"OPTIMIZE": "size", "STACK_PROTECTOR": "ON"}, {"UNDEFINED_TRAPS": "ON"}],
    ids=["small", "traps"],
)
def test_an_image_of_other_options_gives_the_same(art: Artifact, options: dict[str, str]) -> None:
    check({"net": art}, {"net": example("cnn")[2][:1]}, options=options)


@needs_qemu
def test_the_image_for_the_board_itself_links(art: Artifact, tmp_path: Path) -> None:
    firmware.project({"net": art}, "corstone-300").save(tmp_path / "fw")
    elf = toolchain.build(tmp_path / "fw", tmp_path / "build", {"EMULATED": "OFF"})
    symbols = (elf.parent / "firmware.map").read_text()
    assert "malloc" not in symbols
    assert "_sbrk" not in symbols

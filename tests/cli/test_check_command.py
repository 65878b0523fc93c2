"""``tosaic check``: a .tosa file compiled as it stands, compared with its stream, and reduced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tosaic
from npu.maker import Maker
from tosaic.cli import main
from tosaic.errors import InvalidInput
from tosaic.files import flatbuffer
from tosaic.files.parse import parse
from tosaic.ir.build import Builder
from tosaic.spec.dtypes import I8, I32


def written(path: Path, *, is_wrong: bool) -> Path:
    """Scales by channel behind a CONCAT, which Vela counts anew in each part, among others."""
    m = Maker((7,), u85=False)
    x = m.b.TABLE(m.input(I8, (1, 4, 5, 3)), m.const(I8, (256,)))
    if is_wrong:
        x = m.b.CONCAT(x, m.b.CLAMP(x, min_val=-99, max_val=99), axis=3)
        x = m.rescale(x, m.scales(np.linspace(0.4, 0.9, 6), True), I8, (0, 0))
    x = m.b.ABS(m.rescale(m.b.TABLE(x, m.const(I8, (256,))), (1 << 30, 30), I32))
    path.write_bytes(flatbuffer.write(m.finish(x)))
    return path


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check", *map(str, words)])
    return int(ended.value.code or 0)


def test_a_right_file_is_told_what_was_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "net.tosa", is_wrong=False)
    assert run(file, "--target", "ethos-u85-256") == 0
    told = capsys.readouterr().out
    assert "net.tosa on ethos-u85-256: right" in told
    assert "arithmetic: the stream equals its TOSA graph bit by bit" in told


def test_a_wrong_file_is_reduced_and_the_reduced_file_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "net.tosa", is_wrong=True)
    assert run(file, "--reduce") == 1
    told = capsys.readouterr().out
    assert "Vela compiles the graph wrongly" in told
    assert "with Tosaic's workarounds the stream is right" in told
    assert "reduced to 2 of 7 operators: CONCAT, RESCALE" in told
    small = tmp_path / "net.reduced.tosa"
    assert f"to repeat it: tosaic check {small} --target ethos-u55-128" in told
    names = [op.name for op in parse((tmp_path / "net.reduced.mlir").read_text()).ops]
    assert names == ["CONCAT", "RESCALE"]
    assert run(small) == 1


def test_it_is_a_function_as_well(tmp_path: Path) -> None:
    file = written(tmp_path / "net.tosa", is_wrong=True)
    found = tosaic.check(file, "ethos-u65-256", reduce=True)
    assert found.failure is not None
    assert found.reduced is not None
    assert [op.name for op in found.reduced.graph.ops] == ["CONCAT", "RESCALE"]
    right = tosaic.check(written(tmp_path / "right.tosa", is_wrong=False))
    assert right.failure is None
    with pytest.raises(InvalidInput, match="no reduced graph"):
        right.save(tmp_path / "none")


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_inputs_that_nothing_reads_make_no_file_wrong(tmp_path: Path, target: str) -> None:
    """Vela leaves them out of its stream."""
    b = Builder("TOSA-1.0+INT")
    x, _, z = (b.input("i8", (4, 4), name) for name in "xyz")
    b.output(b.CLAMP(x, min_val=-5, max_val=9), b.CLAMP(z, min_val=-50, max_val=90))
    file = tmp_path / "net.tosa"
    file.write_bytes(flatbuffer.write(b.graph))
    found = tosaic.check(file, target)
    assert found.failure is None
    assert any("bit by bit" in told for told in found.told)
    arrays = [np.full((4, 4), n, np.int8) for n in (1, 2, 3)]
    assert tosaic.check(file, target, arrays).failure is None


def test_wrong_uses_are_sentences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "net.tosa", is_wrong=False)
    real = tmp_path / "real.tosa"
    b = Builder("TOSA-1.0+FP")
    b.output(b.EXP(b.input("f32", (3,), "x")))
    real.write_bytes(flatbuffer.write(b.graph))
    broken = tmp_path / "broken.tosa"
    broken.write_bytes(b"no graph")
    for words, sentence in (
        ((tmp_path / "none.tosa",), "none.tosa"),
        ((broken,), "error:"),
        (
            (file, "--target", "TOSA-1.0+INT"),
            "has no compiler to check: name a device",
        ),
        ((real,), "f32"),
        ((file, "--input", tmp_path / "none.npy"), "none.npy"),
    ):
        assert run(*words) == 2, words
        told = capsys.readouterr().err
        assert sentence in " ".join(told.split())
        assert "Tosaic itself failed" not in told

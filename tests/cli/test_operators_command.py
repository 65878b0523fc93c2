"""`tosaic ops` answers from what the package has stored, without PyTorch or a compiler."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tosaic.cli import main
from tosaic.pipeline.composites import COMPOSITES
from tosaic.pipeline.op_support import composite_support
from tosaic.pipeline.op_support_answers import Column, as_text, columns_for, known


def _ops(*arguments: str) -> tuple[dict[str, dict[str, str]], set[str]]:
    """What the command answers as JSON, and the packages that it imported."""
    code = (
        "import sys\nfrom tosaic.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "ops", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), set(done.stderr.split())


@pytest.mark.parametrize("arguments", [(), ("conv",), ("-t", "ETHOS_U85-256")])
def test_stored_answers_load_neither_pytorch_nor_a_compiler(arguments: tuple[str, ...]) -> None:
    rows, loaded = _ops(*arguments)
    assert rows
    assert not loaded & {"torch", "ethosu", "executorch", "torchao"}


@pytest.mark.parametrize("pattern", ["lstm", "gru", "stft", "rfft", "einsum"])
def test_operators_that_compile_by_their_parts_are_found(pattern: str) -> None:
    rows = known(columns_for("TOSA-1.0+INT"), lambda op: pattern in op)
    assert rows
    wanted = {name for name in COMPOSITES if pattern in name}
    assert wanted <= {row.op for row in rows}
    assert all(
        str(row.answers[0]) == "yes" for row in rows if row.op in wanted - {"aten.istft.default"}
    )


def test_an_answer_by_parts_is_what_compiling_says() -> None:
    columns = (*columns_for("TOSA-1.0+FP"), *columns_for("ethos-u55-128"))
    found = composite_support(columns, "aten.einsum.default".__eq__)
    assert [str(answer) for answer in found[0].answers] == ["yes", "yes", "yes"]
    assert found == known(columns, "aten.einsum.default".__eq__)


def test_columns_that_are_stored_are_those_of_the_targets() -> None:
    assert columns_for(None) == columns_for(None, anew=True)
    assert columns_for("ethos-u85-256") == columns_for("ethos-u85-256", anew=True)


def test_a_target_that_nothing_is_stored_for_has_no_stored_answers() -> None:
    assert known((Column("mine int8", "mine", None),), lambda _: True) is None


def test_rows_as_text_are_json() -> None:
    columns = columns_for("TOSA-1.0+INT")
    rows = known(columns, lambda op: "fft" in op)
    assert rows
    stored = json.loads(as_text(columns, rows))
    assert list(stored["rows"]) == [row.op for row in rows]
    assert stored["columns"] == [column.key for column in columns]


def test_names_of_operators_are_not_folded(capsys):
    with pytest.raises(SystemExit):
        main(["ops", "conv_transpose2d"])
    assert "aten.conv_transpose2d.input " in capsys.readouterr().out


def test_a_row_has_an_answer_for_each_kind_of_target(capsys):
    with pytest.raises(SystemExit):
        main(["ops", "conv_transpose2d"])
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if "aten.conv_transpose2d.input" in line]
    assert row == ["aten.conv_transpose2d.input", *["yes"] * 5]
    titles = [column.title for column in columns_for(None)]
    here, wide = titles.index("U55 and U65 int8"), titles.index("U55 and U65 int16")
    rows = known(columns_for(None), lambda _: True)
    apart = [r.op for r in rows if list(map(str, r.answers))[here : wide + 1] == ["yes", "no"]]
    with pytest.raises(SystemExit):
        main(["ops", apart[0]])
    assert " int16 no " in capsys.readouterr().out

"""`tosaic diff`: two reports side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tosaic.cli import main


def code_of(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("reports"), {}
    for target in ("ethos-u55-128", "ethos-u85-256"):
        with pytest.MonkeyPatch.context() as patch:
            lines: list[str] = []
            patch.setattr("typer.echo", lambda text="", told=lines, **_: told.append(text))
            assert code_of("compile", "cnn", "-t", target, "--json") == 0
        made[target] = folder / f"{target}.json"
        made[target].write_text(lines[-1])
    return made


def test_two_targets_have_both_figures_and_both_of_each_module(reports, capsys):
    a, b = reports.values()
    assert code_of("diff", str(a), str(b), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    one, other = json.loads(a.read_text()), json.loads(b.read_text())
    assert told["settings"]["target"] == {"a": "ethos-u55-128", "b": "ethos-u85-256"}
    assert told["figures"]["cycles"] == {"a": one["cycles"], "b": other["cycles"]}
    assert told["figures"]["flash in bytes"] == {"a": one["flash"], "b": other["flash"]}
    modules = one["delegates"][0]["estimate"]["modules"]
    assert {m["module"]: m["cycles"] for m in modules}.items() <= {
        name: pair["a"] for name, pair in told["modules"].items()
    }.items()


def test_a_table_tells_how_much_changed(reports, tmp_path, capsys):
    a = reports["ethos-u55-128"]
    report = json.loads(a.read_text())
    twice = tmp_path / "twice.json"
    refused = [{"op": "aten.svd", "reason": "no rule [/red]"}] * 2
    twice.write_text(json.dumps({**report, "cycles": 2 * report["cycles"], "refused": refused}))
    assert code_of("diff", str(a), str(twice)) == 0
    out = capsys.readouterr().out
    assert "+100.0%" in out
    assert "aten.svd: no rule [/red]" in out
    assert "cycles of a module" not in out  # they are equal


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"delegates": 1}', "[" * 100_000, "\0"])
def test_what_is_no_report_gets_a_sentence(text, reports, tmp_path, capsys):
    wrong = tmp_path / "wrong.json"
    wrong.write_text(text)
    assert code_of("diff", str(reports["ethos-u55-128"]), str(wrong)) == 2
    assert "is no report" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("part", [None, 3, [], [None], [{"estimate": {"modules": [1]}}], {"a": {}}])
def test_parts_of_other_types_are_left_out(part, tmp_path, capsys):
    odd = tmp_path / "odd.json"
    keys = ("refused", "settings", "versions", "cycles", "macs")
    delegates = part if isinstance(part, list) else []
    odd.write_text(json.dumps({"delegates": delegates, **dict.fromkeys(keys, part)}))
    assert code_of("diff", str(odd), str(odd), "--json") == 0
    assert json.loads(capsys.readouterr().out)["modules"] == {}


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert code_of("diff", str(tmp_path / "no.json"), str(tmp_path)) == 2
    assert "cannot be read" in " ".join(capsys.readouterr().err.split())


def test_two_compiled_files_are_compared_and_become_a_page(tmp_path, capsys):
    files = []
    for target in ("ethos-u55-128", "ethos-u85-256"):
        files.append(tmp_path / f"<{target}>.pte")
        assert code_of("compile", "cnn", "-q", "-t", target, "-o", str(files[-1])) == 0
    capsys.readouterr()
    page = tmp_path / "both.html"
    assert code_of("diff", *map(str, files), "--json", "--report", str(page)) == 0
    told = json.loads(capsys.readouterr().out)["figures"]
    assert told["file in bytes"] == dict(zip("ab", (f.stat().st_size for f in files)))
    assert told["delegate 0: scratch in bytes"]["a"] > 0
    text = page.read_text()
    assert "&lt;ethos-u55-128&gt;.pte" in text
    assert "<ethos" not in text
    assert f"{told['file in bytes']['a']:,}" in text
    assert code_of("diff", *map(str, files), "--report", str(tmp_path / "both.txt")) == 2

"""What the pages show runs as it is written: Python in order, commands of the command line.

A fence ``python title="net.py"`` is a file that the page goes on with. A fence behind
``<!-- shown only: reason -->`` is not run.
"""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from pathlib import Path

import pytest

from tosaic.cli import main
from tosaic.errors import ToolMissing

ROOT = Path(__file__).parents[2]
FENCE = re.compile(
    r"(?P<shown><!-- shown only: .+? -->\n+)?^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.M | re.S
)
RUN = ("python", "sh")


def pages() -> list[Path]:
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if _fences(page)]


def _fences(page: Path) -> list[tuple[str, str]]:
    found = FENCE.finditer(page.read_text())
    return [
        (m["info"].strip(), m["body"])
        for m in found
        if not m["shown"] and m["info"].split(" ")[0] in RUN
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_what_a_page_shows_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before, names = set(sys.modules), {"__name__": "page"}
    try:
        for info, body in _fences(page):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _run(info, body, names)
    except ToolMissing as missing:  # of a target that is optional
        pytest.skip(str(missing))
    finally:
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def _run(info: str, body: str, names: dict[str, object]) -> None:
    title = re.search(r'title="(.+?)"', info)
    if title:
        Path(title[1]).write_text(body)
    elif info == "python":
        exec(compile(body, "page", "exec"), names)
    else:
        for line in body.replace("\\\n", " ").splitlines():
            if line.startswith("tosaic "):
                _command(shlex.split(line, comments=True)[1:])


def _command(arguments: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["tosaic", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code in (0, None), arguments


def test_the_files_that_the_architecture_names_are_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = 0
    for title, body in re.findall(r"^### (.*?)\n(.*?)(?=^##)", page, re.M | re.S):
        folders = [ROOT / "src" / "tosaic" / n for n in re.findall(r"`(\w+)`", title.split(":")[0])]
        for files in re.findall(r"^\| (`.*?) \|", body, re.M):
            for name in re.findall(r"`(\w+)`", files):
                assert any((f / f"{name}.py").exists() or (f / name).is_dir() for f in folders), (
                    name
                )
                named += 1
    assert named > 200


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "examples" / "digits.ipynb").read_text())["cells"]
    code = [c for c in cells if c["cell_type"] == "code"]
    assert len(code) >= 5
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in code:
        exec(compile("".join(cell["source"]), "notebook", "exec"), names)

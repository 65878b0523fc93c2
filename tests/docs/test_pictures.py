"""Pictures in the documents are there, and the terminal of README shows what is printed now."""

from __future__ import annotations

import html
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = [
    (page, name)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
]


def words(svg: str) -> list[str]:
    """The text of a picture, without how it is drawn.

    Scales are left out: their last digits are the processor's, whose sums calibration sees.
    """
    text = " ".join(html.unescape(t) for t in re.findall(r">([^<]+)</text>", svg))
    return re.sub(r"scale\s+[\d.e-]+", "scale", text).split()


def test_readme_shows_a_terminal_and_a_report() -> None:
    shown = {Path(name).name for page, name in SHOWN if page.name == "README.md"}
    assert shown >= {"terminal.svg", "report.png"}


@pytest.mark.parametrize(("page", "name"), SHOWN, ids=lambda part: Path(part).name)
def test_a_picture_of_a_document_is_there(page: Path, name: str) -> None:
    assert (page.parent / name).stat().st_size > 2000


def test_the_terminal_of_readme_shows_what_is_printed_now() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "terminal.py"))
    now, shown = words(tool["drawn"]()), words(tool["PICTURE"].read_text(encoding="utf-8"))
    assert {"cycles", "SRAM", "flash", "multiply-accumulates,"} <= set(now)
    assert shown == now, "python tools/terminal.py draws it again"

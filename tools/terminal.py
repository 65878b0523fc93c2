"""Draws docs/images/terminal.svg: a compilation as a terminal shows it.

python tools/terminal.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import tosaic
from tosaic.cli.examples import example

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "terminal.svg"


def drawn() -> str:
    """The picture, of what is compiled now."""
    model, inputs, data = example("cnn")
    art = tosaic.compile(model, inputs, target="ethos-u55-128", calibration=data)
    console = Console(record=True, width=100, file=io.StringIO(), highlight=False)
    console.print("$ tosaic compile cnn --target ethos-u55-128", style="bold")
    console.print(*art.report.parts())
    text = console.export_svg(title="tosaic", theme=MONOKAI)
    # A picture asks nothing of a network: the reader's own fixed-width font does.
    text = re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    return text.replace("Fira Code, monospace", "monospace")


def main() -> None:
    PICTURE.write_text(drawn(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The command line: ``tosaic compile``, ``run``, ``explain``, ``compare`` and their kin.

Exit codes: 0 fine, 1 finished with refusals under ``--strict`` or with a difference, 2 wrong
input, 3 a tool failed.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from tosaic.cli import commands
from tosaic.errors import ToolFailed, TosaicError

app = typer.Typer(
    name="tosaic", help="Takes PyTorch models to Arm edge devices.", no_args_is_help=True,
    pretty_exceptions_enable=False, add_completion=True,
)  # fmt: skip
for _command in commands.ALL:
    app.command()(_command)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong is a sentence and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in words
    warnings.showwarning = _warn
    try:
        app([w for w in words if w != "--debug"], standalone_mode=True)
    except TosaicError as problem:
        if debug:
            raise
        _complain(str(problem))
        sys.exit(3 if isinstance(problem, ToolFailed) else 2)
    except OSError as problem:
        if debug:
            raise
        _complain(f"{problem.strerror or problem}: '{problem.filename}'")
        sys.exit(2)


def _complain(sentence: str) -> None:
    _say("error:", "bold red", sentence)


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence, without the place in the library that gave it."""
    _say("warning:", "yellow", str(message))


def _say(word: str, style: str, sentence: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    console.print(word, style=style, end=" ")
    console.print(sentence, markup=False, highlight=False, emoji=False)

"""The command line: ``tosaic compile``, ``run``, ``explain``, ``compare`` and their kin.

Exit codes: 0 fine, 1 finished with refusals under ``--strict`` or with a difference, 2 wrong
input, 3 a tool failed, 130 interrupted.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from tosaic import __version__
from tosaic.cli import about, commands, differences, files, firmware, search
from tosaic.errors import ToolFailed, TosaicError
from tosaic.runtime.gc import rarely


class Interrupted(Exception):
    """Ctrl-C in a command."""


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
        except KeyboardInterrupt as stop:
            raise Interrupted from stop

    return run


app = typer.Typer(
    name="tosaic", no_args_is_help=True, pretty_exceptions_enable=False, add_completion=True,
    help="Takes PyTorch models to Arm edge devices.",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tosaic {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="print it and exit"),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="show the trace of an error; may stand anywhere")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="log each phase with its time")
    ] = False,
) -> None:
    """Options of all commands; ``main`` has taken ``--debug`` out before."""
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)7d ms  %(message)s")


for _command in (
    *commands.ALL,
    *firmware.ALL,
    *search.ALL,
    *files.ALL,
    *differences.ALL,
    *about.ALL,
):
    app.command()(_guarded(_command))


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong is a sentence and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    before, warnings.showwarning = warnings.showwarning, _warn
    try:
        with rarely():
            app([w for w in words if w != "--debug"], standalone_mode=True)
    except Exception as problem:  # noqa: BLE001  (told as a sentence, whatever it is)
        sentence, code = _told(problem)
        if "--debug" in words:
            traceback.print_exception(problem)
        if "--json" in words:
            typer.echo(json.dumps({"error": _as_data(problem, sentence, code)}, indent=2))
        _say("error:", "bold red", sentence)
        sys.exit(code)
    finally:
        warnings.showwarning = before


def _told(problem: Exception) -> tuple[str, int]:
    """What a user reads of a problem, and the exit code."""
    if isinstance(problem, Interrupted):
        return "interrupted; nothing is left half-written", 130
    if isinstance(problem, TosaicError):
        return str(problem), 3 if isinstance(problem, ToolFailed) else 2
    if isinstance(problem, OSError):
        named = f": '{problem.filename}'" if problem.filename else ""
        return f"{problem.strerror or problem}{named}", 2
    lines = str(problem).strip().splitlines() or ["no reason given"]
    what = f"{type(problem).__name__}: {lines[0]}"
    return f"Tosaic itself failed, which it should not ({what}); --debug shows where", 3


def _as_data(problem: Exception, sentence: str, code: int) -> dict[str, Any]:
    """An error for machines."""
    where = getattr(problem, "where", None)
    return {
        "kind": type(problem).__name__, "message": sentence, "exit_code": code,
        "reason": getattr(problem, "reason", sentence), "where": str(where) if where else None,
    }  # fmt: skip


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence, without the place in the library that gave it."""
    _say("warning:", "yellow", str(message))


def _say(word: str, style: str, sentence: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    console.print(word, style=style, end=" ")
    console.print(sentence, markup=False, highlight=False, emoji=False)

"""The command line: ``tosaic compile``, ``run``, ``explain``, ``compare`` and other commands."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from tosaic import __version__
from tosaic.cli import about, commands, differences, files, firmware, search
from tosaic.cli.problems import Interrupted, as_data, say, told
from tosaic.cli.show import show_data
from tosaic.errors import InvalidInput
from tosaic.runtime.gc import rarely


def _guarded(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(**options: Any) -> None:
        try:
            command(**options)
        except KeyboardInterrupt as stop:
            raise Interrupted from stop

    return run


class _Command(TyperCommand):
    """A command that refuses an option given twice, of which the last alone would count."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.params:
            is_one = isinstance(option, TyperOption) and not option.multiple and not option.is_flag
            names = [word.partition("=")[0] for word in args]
            if is_one and sum(name in option.opts for name in names) > 1:
                raise InvalidInput(f"{option.opts[0]} is given twice: give it once")
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="tosaic", pretty_exceptions_enable=False, add_completion=True,
    help="Takes PyTorch models to Arm edge devices.",
    context_settings={"help_option_names": ["-h", "--help"]},
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
    app.command(cls=_Command)(_guarded(_command))


def main(arguments: list[str] | None = None) -> None:
    """Run a command; what goes wrong is a sentence and an exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):  # an encoding without × has ? instead
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    before, warnings.showwarning = warnings.showwarning, _warn
    try:
        with rarely():
            given = [w for w in words if w != "--debug"] or ["--help"]
            sys.exit(app(given, standalone_mode=False) or 0)
    except Exception as problem:  # noqa: BLE001  (told as a sentence, whatever it is)
        if "--debug" in words:
            traceback.print_exception(problem)
        if "--json" in words:
            show_data({"error": as_data(problem)})
        sentence, code = told(problem)
        say("error:", "bold red", sentence)
        sys.exit(code)
    finally:
        warnings.showwarning = before


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as a sentence, without the place in the library that gave it."""
    say("warning:", "yellow", str(message))

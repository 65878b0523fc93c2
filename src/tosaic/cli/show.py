"""Printing: tables, data and progress of commands."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from tosaic.runtime.progress import listening

if TYPE_CHECKING:
    from tosaic.runtime.printed import Printed

_PATIENCE = 2.0  # seconds before a line says what goes on
_NAME = 44  # letters of the first column that are not folded


def console(stderr: bool = False) -> Any:
    """Rich's console: colours on a terminal only, whole lines elsewhere."""
    from rich.console import Console

    return Console(stderr=stderr, width=None if _is_terminal(stderr) else 120)


def _is_terminal(stderr: bool) -> bool:
    """Whether somebody may look at it; a process can have been started without any output."""
    stream = sys.stderr if stderr else sys.stdout
    return stream is not None and stream.isatty()


def show(told: Printed, as_json: bool, quiet: bool = False) -> None:
    """Print a result as a table, or as data."""
    if as_json:
        show_data(told.data())
    elif not quiet:
        console().print(told)


def show_data(data: Any) -> None:
    typer.echo(json.dumps(data, indent=1))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from tosaic.runtime.printed import grid

    table = grid(*columns)
    for row in rows:
        table.add_row(*row)
    # A name that is folded cannot be read; the columns beside it can be narrower.
    table.columns[0].no_wrap = max((len(row[0]) for row in rows), default=0) <= _NAME
    console().print(table)


@contextmanager
def busy(words: str, quiet: bool = False) -> Iterator[None]:
    """A line on the terminal while this takes longer than two seconds; it says what goes on."""
    if quiet or not _is_terminal(True):
        yield
        return
    status = console(stderr=True).status(words)
    timer = threading.Timer(_PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        with listening(lambda said: status.update(f"{said} …")):
            yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


@contextmanager
def bar(words: str, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """A count on the terminal; what it gives is called after each step with a word on it."""
    if quiet or not _is_terminal(True):
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed} {task.description}"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console(stderr=True), transient=True
    ) as progress:
        task = progress.add_task(words, total=None)
        yield lambda said: progress.update(task, advance=1, description=f"{words} · {said}")

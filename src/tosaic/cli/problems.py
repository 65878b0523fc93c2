"""Errors and warnings of commands: a sentence on standard error, an object in JSON, an exit code.

Exit codes: 0 fine, 1 finished with refusals under ``--strict`` or with a difference, 2 wrong
input, 3 a tool failed, 130 interrupted.
"""

from __future__ import annotations

from typing import Any

from tosaic.errors import ToolFailed, TosaicError


class Interrupted(Exception):
    """Ctrl-C in a command."""


def told(problem: Exception) -> tuple[str, int]:
    """What a user reads of a problem, and the exit code."""
    if isinstance(problem, Interrupted):
        return "interrupted; nothing is left half-written", 130
    if isinstance(problem, TosaicError):
        return str(problem), 3 if isinstance(problem, ToolFailed) else 2
    if isinstance(problem, OSError):
        named = f": '{problem.filename}'" if problem.filename else ""
        return f"{problem.strerror or problem}{named}", 2
    if hasattr(problem, "format_message"):  # a usage error: click's, or typer's copy of it
        return _misused(problem), 2
    lines = str(problem).strip().splitlines() or ["no reason given"]
    what = f"{type(problem).__name__}: {lines[0]}"
    return f"Tosaic itself failed, which it should not ({what}); --debug shows where", 3


def _misused(problem: Any) -> str:
    """What the command line did not understand, and the command that lists what it does."""
    sentence = " ".join(problem.format_message().split()).rstrip(".")
    command = getattr(problem.ctx, "command_path", "tosaic")
    joint = "" if sentence.endswith("?") else ";"
    return f"{sentence[:1].lower()}{sentence[1:]}{joint} `{command} --help` lists what there is"


def as_data(problem: Exception) -> dict[str, Any]:
    """An error for machines."""
    sentence, code = told(problem)
    where = getattr(problem, "where", None)
    return {
        "kind": type(problem).__name__, "message": sentence, "exit_code": code,
        "reason": getattr(problem, "reason", sentence), "where": str(where) if where else None,
    }  # fmt: skip


def say(word: str, style: str, sentence: str) -> None:
    """A line on standard error, whatever its length."""
    from rich.console import Console

    console = Console(stderr=True, soft_wrap=True)
    console.print(word, style=style, end=" ")
    console.print(sentence, markup=False, highlight=False, emoji=False)

"""Reads TOML as board files have it: keys with values, tables and lists of tables, with lines.

Every value keeps its line, which the standard library's reader does not tell, so that a refusal
can name it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from tosaic.errors import InvalidInput

_TABLE = re.compile(r"(\[{1,2})\s*([A-Za-z]\w*)\s*(\]{1,2})")
_ENTRY = re.compile(r"([A-Za-z][\w-]*)\s*=\s*(.+)")
_NUMBER = re.compile(r"[+-]?(0x[0-9A-Fa-f_]+|\d[\d_]*(\.\d+)?)")


@dataclass(slots=True)
class Table:
    """Entries by name, each with its line; the line of the table itself, and where it is."""

    file: str
    line: int = 1
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    def refuse(self, reason: str, key: str = "") -> InvalidInput:
        """The error for a table or one of its entries, with the line."""
        return InvalidInput(f"{self.file}:{self.lines.get(key, self.line)}: {reason}")


def read(text: str, file: str) -> dict[str, list[Table]]:
    """Tables by name, those before the first under an empty one; InvalidInput names the line."""
    top = current = Table(file)
    found: dict[str, list[Table]] = {"": [top]}
    for number, whole in enumerate(text.splitlines(), 1):
        line = _without_comment(whole).strip()
        if not line:
            continue
        if table := _TABLE.fullmatch(line):
            opened, name, closed = table.groups()
            if len(opened) != len(closed) or (len(opened) == 1 and name in found):
                raise InvalidInput(f"{file}:{number}: the table '{name}' is there twice or open")
            current = Table(file, number)
            found.setdefault(name, []).append(current)
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise InvalidInput(f"{file}:{number}: '{line}' is no 'key = value' and no '[table]'")
        key, value = entry.groups()
        if key in current.values:
            raise InvalidInput(f"{file}:{number}: '{key}' is there twice")
        current.values[key], current.lines[key] = _value(value.strip(), file, number), number
    return found


def _without_comment(line: str) -> str:
    quoted = False
    for at, letter in enumerate(line):
        if letter == '"':
            quoted = not quoted
        elif letter == "#" and not quoted:
            return line[:at]
    return line


def _value(text: str, file: str, line: int) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        plain = text.replace("_", "")
        return float(plain) if "." in plain else int(plain, 0)
    if text[0] in '"[':
        try:
            made = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            made = None
        if isinstance(made, str) or (
            isinstance(made, list) and all(isinstance(each, (str, int)) for each in made)
        ):
            return made
    raise InvalidInput(f"{file}:{line}: '{text}' is no number, text in quotes, list or true, false")

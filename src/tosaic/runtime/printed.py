"""Results that print as tables; without torch, so that listing targets is quick."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_WIDTH = 100  # of a report that is not printed to a terminal


class Printed(ABC):
    """Something that ``print`` shows as plain text and Rich in colour."""

    @abstractmethod
    def parts(self) -> Iterable[Any]:
        """What Rich draws, one under the other."""

    def data(self) -> Any:
        """The same as plain data, for JSON."""
        return plain(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts()

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=_WIDTH, color_system=None, markup=False).print(
            *self.parts(), sep="\n"
        )
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def plain(value: Any) -> Any:
    """Dataclasses and their parts as dictionaries, lists and numbers that JSON has."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def grid(*columns: str, numbers: Iterable[str] = (), title: str = "") -> Any:
    """An empty table; columns of numbers are aligned to the right, and ``x[i]`` is no markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    class Grid(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:
            plain = (Text(cell) if isinstance(cell, str) else cell for cell in cells)
            super().add_row(*plain, **options)

    table = Grid(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return table

"""``tosaic diff``: two reports side by side, of two models, targets or versions.

A report is what ``tosaic compile --json`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tosaic.cli import options as o
from tosaic.cli.show import show_data, show_table
from tosaic.errors import InvalidInput

Number: TypeAlias = "int | float | None"
_FIGURES = {
    "milliseconds": "milliseconds", "cycles": "cycles", "SRAM in bytes": "sram",
    "flash in bytes": "flash", "MACs": "macs",
}  # fmt: skip
_File = Annotated[
    Path, typer.Argument(help="what `tosaic compile --json` printed", show_default=False)
]


def diff(a: _File, b: _File, as_json: o.Json = False) -> None:
    """Set two reports side by side: time, memory, refusals, and cycles module by module."""
    first, second = _report(a), _report(b)
    tables = {
        "figures": _pairs(_figures(first), _figures(second)),
        "modules": _pairs(_modules(first), _modules(second)),
        "refused": _pairs(_refused(first), _refused(second)),
    }
    words = _pairs(_settings(first), _settings(second))
    if as_json:
        rows = {n: {k: {"a": x, "b": y} for k, (x, y) in t.items()} for n, t in tables.items()}
        show_data({"settings": {k: {"a": x, "b": y} for k, (x, y) in words.items()}, **rows})
        return
    changed = [(k, x or "", y or "") for k, (x, y) in words.items() if x != y]
    if changed:
        show_table(("", str(a), str(b)), changed)
    for title, table in zip(("", "cycles of a module", "refused calls"), tables.values()):
        lines = [
            (k, *_cells(*pair)) for k, pair in table.items() if not title or pair[0] != pair[1]
        ]
        if lines:
            show_table((title, str(a), str(b), "change"), lines)


def _report(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidInput(f"'{path}' cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("delegates"), list):
        raise InvalidInput(f"'{path}' is no report; `tosaic compile MODEL --json` prints one")
    return found


def _figures(report: Mapping[str, Any]) -> dict[str, Number]:
    return {title: _number(report.get(key)) for title, key in _FIGURES.items()}


def _modules(report: Mapping[str, Any]) -> dict[str, Number]:
    """The cycles of each module, over all delegates."""
    total: dict[str, Number] = {}
    for delegate in _dicts(report.get("delegates")):
        estimate = delegate.get("estimate")
        for each in _dicts(estimate.get("modules") if isinstance(estimate, dict) else None):
            name = str(each.get("module", ""))
            total[name] = (total.get(name) or 0) + (_number(each.get("cycles")) or 0)
    return total


def _refused(report: Mapping[str, Any]) -> dict[str, Number]:
    """How many calls each reason refused."""
    counts: dict[str, Number] = {}
    for each in _dicts(report.get("refused")):
        name = f"{each.get('op', '')}: {each.get('reason', '')}"
        counts[name] = (counts.get(name) or 0) + 1
    return counts


def _settings(report: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {"target": str(report.get("target", ""))}
    for key in ("settings", "versions"):
        part = report.get(key)
        found |= {str(k): str(v) for k, v in part.items()} if isinstance(part, dict) else {}
    return found


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The values of both by name, in the first one's order."""
    return {name: (a.get(name), b.get(name)) for name in dict.fromkeys([*a, *b])}


def _dicts(found: Any) -> Iterator[dict[str, Any]]:
    yield from (each for each in found if isinstance(each, dict)) if isinstance(found, list) else ()


def _number(found: Any) -> Number:
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def _cells(a: Number, b: Number) -> tuple[str, str, str]:
    change = "" if a is None or b is None or a == b else "new" if not a else f"{b / a - 1:+.1%}"
    return _text(a), _text(b), change


def _text(value: Number) -> str:
    if value is None:
        return "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


ALL = (diff,)

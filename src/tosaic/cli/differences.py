"""``tosaic diff``: two reports or files side by side, of two models, targets or versions.

A report is what ``tosaic compile --json`` prints; a file is a ``.pte`` or a ``.tosa``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from tosaic import load
from tosaic.cli import options as o
from tosaic.cli.show import show_data, show_table
from tosaic.errors import InvalidInput
from tosaic.files.whole import write_whole

Number: TypeAlias = "int | float | None"
_FIGURES = {
    "milliseconds": "milliseconds", "cycles": "cycles", "SRAM in bytes": "sram",
    "flash in bytes": "flash", "MACs": "macs",
}  # fmt: skip
_File = Annotated[
    Path,
    typer.Argument(
        help="what `tosaic compile --json` printed, a .pte or a .tosa", show_default=False
    ),
]


_Page = Annotated[
    Path | None, typer.Option("--report", help="a page (.html) with the same tables to write")
]


def diff(a: _File, b: _File, as_json: o.Json = False, report: _Page = None) -> None:
    """Compare two reports: time, memory, refusals, and cycles module by module.

    Of compiled files, their sizes, operators and delegates.
    """
    if report is not None and report.suffix != ".html":
        raise InvalidInput(f"a page is an .html file, not '{report}'")
    first, second = _report(a), _report(b)
    tables = {
        "figures": _pairs(_figures(first), _figures(second)),
        "modules": _pairs(_modules(first), _modules(second)),
        "refused": _pairs(_refused(first), _refused(second)),
    }
    words = _pairs(_settings(first), _settings(second))
    changed = [(k, x or "", y or "") for k, (x, y) in words.items() if x != y]
    if report is not None:
        from tosaic.report.side_by_side import side_by_side

        rows = {t: [(k, *_cells(*pair)) for k, pair in tables[t].items()] for t in tables}
        names = (str(a), str(b))
        write_whole(report, side_by_side(names, {"settings": changed, **rows}).encode())
    if as_json:
        told = {n: {k: {"a": x, "b": y} for k, (x, y) in t.items()} for n, t in tables.items()}
        show_data({"settings": {k: {"a": x, "b": y} for k, (x, y) in words.items()}, **told})
        return
    if changed:
        show_table(("", str(a), str(b)), changed)
    for title, table in zip(("", "cycles of a module", "refused calls"), tables.values()):
        lines = [
            (k, *_cells(*pair)) for k, pair in table.items() if not title or pair[0] != pair[1]
        ]
        if lines:
            show_table((title, str(a), str(b), "change"), lines)


def _report(path: Path) -> Mapping[str, Any]:
    if path.suffix in (".pte", ".bpte", ".tosa"):
        return _of_file(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidInput(f"'{path}' cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("delegates"), list):
        raise InvalidInput(f"'{path}' is no report; `tosaic compile MODEL --json` prints one")
    return found


def _of_file(path: Path) -> Mapping[str, Any]:
    """What a compiled file tells of itself, as a report has it."""
    loaded: Any = load(path)
    graphs = [loaded.graph] if path.suffix == ".tosa" else []
    figures: dict[str, Number] = {"file in bytes": path.stat().st_size}
    for number, each in enumerate(getattr(loaded, "delegates", ())):
        if (stream := getattr(each, "stream", None)) is not None:
            figures[f"delegate {number}: scratch in bytes"] = stream.scratch_size
            figures[f"delegate {number}: weights in bytes"] = len(stream.weights)
            figures[f"delegate {number}: command stream in bytes"] = len(stream.command_stream)
        else:
            graphs.append(each.graph)
    for name in getattr(loaded, "operators", ()):
        figures[f"CPU operator {name}"] = (figures.get(f"CPU operator {name}") or 0) + 1
    for op in (op for graph in graphs for op in graph.ops):
        figures[f"TOSA operator {op.name}"] = (figures.get(f"TOSA operator {op.name}") or 0) + 1
    ports = {
        f"{way} {n}": str(info) for way in ("inputs", "outputs")
        for n, info in enumerate(getattr(loaded, way))
    }  # fmt: skip
    return {"target": path.suffix, "settings": ports, "figures": figures, "delegates": []}


def _figures(report: Mapping[str, Any]) -> dict[str, Number]:
    if isinstance(own := report.get("figures"), dict):
        return own
    return {title: _number(report.get(key)) for title, key in _FIGURES.items()}


def _modules(report: Mapping[str, Any]) -> dict[str, Number]:
    """The cycles of each module, over all delegates."""
    total: dict[str, Number] = {}
    for delegate in _dicts(report.get("delegates")):
        estimate = delegate.get("estimate")
        for each in _dicts(estimate.get("modules") if isinstance(estimate, dict) else None):
            name = str(each.get("module") or "(model)")
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

"""The report: one HTML file that opens offline, and the graph for Model Explorer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.files.whole import write_whole
from tosaic.pipeline.artifact import Artifact
from tosaic.pipeline.compare import compare_models
from tosaic.report.page import Page, page_of

_STYLES = ("style.css",)
_SCRIPTS = (
    "dom.js", "basics.js", "graph.js", "treemap.js", "layers.js", "arena.js", "accuracy.js",
    "details.js", "search.js", "tables.js", "main.js",
)  # fmt: skip


def write_report(
    artifact: Artifact,
    path: str | os.PathLike[str],
    *,
    model: Any = None,
    inputs: Iterable[Any] | None = None,
    title: str = "",
) -> None:
    """Write the page of an artifact.

    With ``model``, the original, and ``inputs``, sets of arguments for it, the page also shows how
    far each layer is from the original and what values it has.
    """
    if (model is None) is not (inputs is None):
        raise InvalidInput("a report compares on inputs with the original: give model and inputs")
    comparison = None
    if model is not None:
        comparison = compare_models(model, artifact, inputs, histograms=True)
    name = title or (type(model).__name__ if model is not None else "")
    write_whole(path, html(page_of(artifact, name, comparison)).encode())


def html(page: Page) -> str:
    """The page as one file: styles, scripts and data inside of it."""
    return composed("Tosaic report", "page.html", _STYLES, _SCRIPTS, page.data())


def composed(
    title: str, body: str, styles: Iterable[str], scripts: Iterable[str], data: Any
) -> str:
    """A page of assets with its data inside of it."""
    parts = {
        "TITLE": title,
        "STYLE": "\n".join(map(asset, styles)),
        "BODY": asset(body).rstrip("\n"),
        "DATA": _inert(json.dumps(data, separators=(",", ":"), allow_nan=False)),
        "SCRIPT": '"use strict";\n(() => {\n' + "\n".join(map(asset, scripts)) + "\n})();",
    }
    text = asset("frame.html")
    for name, part in parts.items():
        before, mark, after = text.partition(f"/*{name}*/")
        assert mark, name
        text = before + part + after
    return text


def _inert(data: str) -> str:
    """JSON in which nothing ends a script or begins a comment, whatever names a model has."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def asset(name: str) -> str:
    """The text of a style, a script or a page."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")

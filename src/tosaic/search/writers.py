"""Files of sweeps and evaluations: a page to look at, JSON, CSV, and the files of points."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from tosaic.errors import InvalidInput
from tosaic.files.whole import Content, write_folder
from tosaic.report import composed
from tosaic.runtime.printed import plain
from tosaic.search.evaluate import Evaluation
from tosaic.search.front import Row, option_words
from tosaic.search.store import Store
from tosaic.search.tune import Sweep

_PICTURES = 60  # of disagreements on a page
_COLUMNS = (
    "number", "is_on_front", "model", "size", "target", "options", "precision", "score", "low",
    "high", "original", "cycles", "unit", "milliseconds", "sram", "flash", "multipliers",
    "cpu_calls", "problem", "command",
)  # fmt: skip


def check_place(path: str | os.PathLike[str]) -> Path:
    """A path that can be written to, before anything is computed."""
    place = Path(path)
    if place.suffix not in (".html", ".json", ".csv"):
        raise InvalidInput(f"cannot write '{place}': the suffixes are .html, .json and .csv")
    if not place.parent.is_dir():
        raise InvalidInput(f"there is no folder '{place.parent}' to write to")
    if place.is_dir():
        raise InvalidInput(f"'{place}' is a folder")
    return place


def write(path: str | os.PathLike[str], made: Sweep | Evaluation, store: Store | None) -> None:
    """Write what was found, by suffix."""
    path = check_place(path)
    beside: dict[str, Content] = {}
    if path.suffix == ".json":
        text = json.dumps(made.data(), indent=1, allow_nan=False)
    elif path.suffix == ".csv":
        text = _csv(made)
    else:
        text = _page(path, made, store, beside)
    write_folder(path.parent, beside | {path.name: text.encode()})


def _csv(made: Sweep | Evaluation) -> str:
    to = io.StringIO()
    if isinstance(made, Sweep):
        rows: list[dict[str, Any]] = [plain(row) for row in made.rows]
        columns: tuple[str, ...] = _COLUMNS
    else:
        rows = [plain(score) for score in made.scores]
        columns = ("form", "score", "low", "high", "agreement", "problem")
    writer = csv.DictWriter(to, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        if isinstance(row.get("options"), dict):
            row["options"] = " ".join(f"{n}={v}" for n, v in row["options"].items())
        writer.writerow(row)
    return to.getvalue()


def _page(
    path: Path, made: Sweep | Evaluation, store: Store | None, beside: dict[str, Content]
) -> str:
    """The page; the files that it links to go ``beside``."""
    evaluations = made.evaluations if isinstance(made, Sweep) else (made,)
    data: dict[str, Any] = {
        "metric": made.metric, "isLowerBetter": made.is_lower_better, "rows": [],
        "evaluations": [_evaluation(each) for each in evaluations],
        "title": "Sweep" if isinstance(made, Sweep) else "Evaluation",
        "notes": made.notes if isinstance(made, Sweep) else (),
    }  # fmt: skip
    if isinstance(made, Sweep):
        titles = {row.key: f"{row.number}: {row.title}" for row in made.rows}
        for row in made.rows:
            told = plain(row)
            told["title"], told["words"], told["links"] = row.title, option_words(row.options), {}
            if store is not None and row.files:
                place = f"{path.stem}.files/{_folder(row)}"
                files = point_files(store, row, row.is_on_front)
                told["links"] = {name: f"{place}/{name}" for name in files}
                beside |= {f"{place}/{name}": content for name, content in files.items()}
            data["rows"].append(told)
        for each in data["evaluations"]:
            for score in (*each["scores"], *each["disagreements"]):
                score["form"] = titles.get(score["form"], score["form"])
    return composed(
        "Tosaic", "sweep.html", ("style.css", "sweep.css"), ("dom.js", "sweep.js"), data
    )


def _evaluation(made: Evaluation) -> dict[str, Any]:
    """Scores, and disagreements of which there is a picture first."""
    data: dict[str, Any] = plain(made)
    shown = sorted(data["disagreements"], key=lambda d: not d["picture"])
    data["disagreements"] = shown[:_PICTURES]
    return data


def _folder(row: Row) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", row.title.lower()).strip("-")
    return f"{row.number:03d}-{words[:60]}".rstrip("-")


def point_files(store: Store, row: Row, with_network: bool = True) -> dict[str, Content]:
    """The files of a point: report, scheme, and what a device loads."""
    files: dict[str, Content] = {}
    for name, key in row.files.items():
        if with_network or name == "report.html":
            if Path(name).name != name:
                raise InvalidInput(f"'{name}' of point {row.number} is no name of a file")
            files[name] = partial(_copy, store, key)
    if row.wide:
        chosen = {"global": "int8", "nodes": dict.fromkeys(row.wide, "a16w8")}
        files[f"{row.key[:12]}.json"] = json.dumps(chosen, indent=1).encode()
    return files


def _copy(store: Store, key: str, to: Path) -> None:
    to.write_bytes(store.blob(key))

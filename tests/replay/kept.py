"""The replay file, and how what is emitted now differs from it."""

from __future__ import annotations

import math
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from replay.rows import Row

FOLDER = Path(__file__).parent
ROWS, RANGES = FOLDER / "rows.csv", FOLDER / "ranges.txt"
HEADER = "case,target,scheme,hash,cycles,sram,flash,host"
WORST = 12  # cases of a group that are named
FIGURES = (
    ("cycles", "slower", "faster"),
    ("sram", "larger in SRAM", "smaller in SRAM"),
    ("flash", "larger in flash", "smaller in flash"),
    ("host", "more left to PyTorch", "less left to PyTorch"),
)
Rows = Mapping[str, Row]


def _versions() -> str:
    return f"# ethos-u-vela {version('ethos-u-vela')}"


def load_rows(commit: str = "") -> dict[str, Row]:
    """The rows of the file, as it is or as it was at a commit."""
    words = ["git", "show", f"{commit}:./{ROWS.name}"]
    text = ROWS.read_text() if ROWS.exists() else ""
    if commit:
        text = subprocess.run(words, cwd=FOLDER, capture_output=True, text=True, check=True).stdout
    lines = text.splitlines()
    parts = [line.split(",") for line in lines if line[0] != "#" and line != HEADER]
    return {
        f"{case},{target},{scheme}": Row(digest, *map(int, figures))
        for case, target, scheme, digest, *figures in parts
    }


def load_ranges() -> dict[str, str]:
    lines = RANGES.read_text().splitlines() if RANGES.exists() else []
    return {name: line for name, _, line in (line.partition(" ") for line in lines)}


def save(rows: Rows, ranges: Mapping[str, str]) -> None:
    lines = [
        f"{key},{','.join(map(str, row))}".removesuffix(",0,0,0,0") for key, row in rows.items()
    ]
    ROWS.write_text("\n".join([_versions(), HEADER, *sorted(lines, key=_place)]) + "\n")
    lines = [f"{name} {line}\n" for name, line in ranges.items()]
    RANGES.write_text("".join(sorted(lines, key=_place)))


def _place(line: str) -> list[object]:
    """By name, with the numbers in it as numbers."""
    name = line.partition(" ")[0]
    return [name.partition(",")[0].rstrip("0123456789"), _number(name), name]


def _number(name: str) -> int:
    tail = name.partition(",")[0].rpartition("/")[2]
    return int(tail) if tail.isdigit() else 0


def tool_differs() -> str:
    """A sentence where the figures are of another Vela."""
    kept = ROWS.read_text().partition("\n")[0] if ROWS.exists() else _versions()
    return "" if kept == _versions() else f"the file is of {kept[2:]}, here is {_versions()[2:]}"


def differences(old: Rows, new: Rows) -> dict[str, list[tuple[str, float, str]]]:
    """Cases by what became of them, with a ratio and a text each, the worst first."""
    groups = defaultdict[str, list[tuple[str, float, str]]](list)
    for key in new.keys() - old.keys():
        groups["new"].append((key, 1.0, ""))
    for key in old.keys() - new.keys():
        groups["gone"].append((key, 1.0, ""))
    for key in old.keys() & new.keys():
        before, after = old[key], new[key]
        if before.is_refused != after.is_refused:
            group = "does not compile any more" if after.is_refused else "compiles now"
            groups[group].append((key, 1.0, f"{before.hash} -> {after.hash}"))
            continue
        if before.hash != after.hash:
            groups["other bytes"].append((key, 1.0, f"{before.hash} -> {after.hash}"))
        for what, more, less in FIGURES:
            was, now = getattr(before, what), getattr(after, what)
            if was != now:
                ratio = now / was if was and now else math.inf if now else 0.0
                groups[more if now > was else less].append((key, ratio, f"{was:,} -> {now:,}"))
    return {k: sorted(v, key=lambda e: (-abs(_log(e[1])), e[0])) for k, v in groups.items()}


def _log(ratio: float) -> float:
    return math.log(ratio) if 0 < ratio < math.inf else 1e9


def told(old: Rows, new: Rows) -> Iterator[str]:
    """The differences as lines, and what all rows of a target became on average."""
    for group, entries in sorted(differences(old, new).items()):
        yield f"{group}: {len(entries)} of {len(new)}"
        for key, ratio, text in entries[:WORST]:
            yield f"  {key:45} {text}" + (f"  x{ratio:.4f}" if 0 < ratio != 1 else "")
        if len(entries) > WORST:
            yield f"  ... and {len(entries) - WORST} more"
    logs = defaultdict[str, list[float]](list)
    for key in old.keys() & new.keys():
        _, target, scheme = key.split(",")
        for what, *_ in FIGURES[:3]:
            was, now = getattr(old[key], what), getattr(new[key], what)
            if was and now:
                logs[f"{target} {scheme} {what}"].append(math.log(now / was))
    for what, values in sorted(logs.items()):
        if any(values):
            yield f"geometric mean of {what}: x{math.exp(sum(values) / len(values)):.5f}"

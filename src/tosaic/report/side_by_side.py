"""Two artifacts on one page: tables with a column for each, and how much changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tosaic.report import asset

Rows = Sequence[tuple[str, ...]]


def side_by_side(names: tuple[str, str], tables: Mapping[str, Rows]) -> str:
    """A page without scripts; rows are a name, the two values and, where it is known, a change."""
    shown = " and ".join(names)
    parts = [
        f"<section><div class='head'><h2>{escape(title)}</h2></div>{_table(names, rows)}</section>"
        for title, rows in tables.items() if rows
    ]  # fmt: skip
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' "
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(shown)}</title><style>{asset('style.css')}</style></head><body>"
        f"<header class='top'><div class='brand'><span class='mark'></span>{escape(shown)}</div>"
        f"</header><div class='page' style='display:block'><main>{''.join(parts)}</main></div>"
        "</body></html>"
    )


def _table(names: tuple[str, str], rows: Rows) -> str:
    heads = "".join(f"<th class='num'>{escape(text)}</th>" for text in (*names, "change"))
    body = "".join(
        f"<tr><td class='wrap'>{escape(row[0])}</td>"
        + "".join(f"<td class='num'>{escape(text)}</td>" for text in (*row[1:], "")[:3])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>"

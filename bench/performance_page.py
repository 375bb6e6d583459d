"""Write the tables of docs/performance.md from kept figures, between comments that name the figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MARKED = re.compile(r"(<!-- bench:(?P<key>\w+) (?P<columns>[^>]*?)-->\n).*?(<!-- /bench -->)", re.DOTALL)


def write_tables(figures: Mapping[str, Mapping[str, Any]], page: Path) -> None:
    """Replace each table whose figure was measured; `<!-- bench:KEY column=Title;... -->` says what is in it."""
    text = page.read_text(encoding="utf-8")
    page.write_text(_MARKED.sub(lambda found: _replaced(found, figures), text), encoding="utf-8")


def _replaced(found: re.Match[str], figures: Mapping[str, Mapping[str, Any]]) -> str:
    figure = figures.get(found["key"])
    if figure is None:
        return found[0]
    columns = [tuple(column.split("=", 1)) for column in found["columns"].strip().split(";")]
    lines = [
        "| " + " | ".join(title for _, title in columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(_cell(row.get(key)) for key, _ in columns) + " |" for row in figure["rows"]),
    ]
    return found[1] + "\n".join(lines) + f"\n\nMeasured {figure['at'][:10]}.\n" + found[4]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"

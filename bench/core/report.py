"""Figures as people and programs read them."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.core.figures import Column, Figure, Row, Target
from toolpost import __version__
from toolpost.cli.output import Output


def document(figures: Sequence[Figure], *, took_s: float) -> dict[str, Any]:
    """Everything that was measured and where, as one JSON document."""
    return {
        "toolpost": __version__,
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "took_s": round(took_s, 1),
        "machine": {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "load": list(os.getloadavg()) if sys.platform != "win32" else None,
        },
        "figures": [figure.to_dict() for figure in figures],
    }


def show(figure: Figure, output: Output) -> None:
    """One figure: its table, then each target as met or missed."""
    output.text(figure.title)
    titles = [column.title for column in figure.columns]
    output.table(titles, [[_cell(row, column) for column in figure.columns] for row in figure.rows])
    for target in figure.targets:
        output.text(_verdict(target))
    for note in figure.notes:
        output.text(f"        {note}")
    output.text("")


def _cell(row: Row, column: Column) -> str:
    value = row[column.key]
    return value if isinstance(value, str) else f"{value:,.{column.digits}f}"


def _verdict(target: Target) -> str:
    unit = f" {target.unit}" if target.unit else ""
    word = "met   " if target.met else "missed"
    return f"{word}  {target.name}: {_number(target.value)}{unit} ({target.sense} {_number(target.limit)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

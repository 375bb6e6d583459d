"""Write the tables of docs/performance.md from kept figures, between comments that name the figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MARKED = re.compile(r"(<!-- bench:(?P<key>\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
# The columns of each table by the key of its figure: the key of a value, and its title.
TABLES: dict[str, dict[str, str]] = {
    "native": {
        "name": "contender",
        "median_us": "median µs",
        "p99_us": "p99 µs",
        "sustained_us": "sustained µs",
        "cpu_us": "CPU µs",
        "of_floor": "x floor",
        "of_floor_cpu": "CPU x floor",
        "of_peer": "x peer",
    },
    "events": {
        "name": "contender",
        "per_second": "events/s",
        "median_us": "caller median µs",
        "cpu_us": "CPU µs an event",
        "of_bare": "x bare writer",
    },
    "hostile": {
        "name": "attack",
        "outcome": "ends as",
        "loop_ms": "longest work of the loop, ms",
        "stall_ms": "longest stall, ms",
        "share": "rate of a healthy tool",
    },
    "imports": {"name": "command", "cpu_ms": "CPU ms", "of_standard": "x asyncio, json, sqlite3"},
    "catalog": {
        "tools": "tools",
        "register_ms": "register ms",
        "register_us": "a tool µs",
        "list_ms": "list for a model ms",
    },
    "mcp_stdio": {
        "name": "client, stdio",
        "median_us": "median µs",
        "cpu_us": "CPU µs",
        "many_per_s": "calls/s, 50 at once",
        "of_floor": "CPU x floor",
    },
    "mcp_http": {
        "name": "client, streamable HTTP",
        "median_us": "median µs",
        "cpu_us": "CPU µs",
        "many_per_s": "calls/s, 50 at once",
        "of_floor": "CPU x floor",
    },
    "mcp_in_process": {
        "name": "client, server object",
        "cpu_us": "CPU µs",
        "of_call_tool": "CPU x call_tool",
        "many_of_call_tool": "50 at once",
    },
    "mcp_discovery": {
        "name": "client, first connection to 5,000 tools",
        "cpu_ms": "CPU ms",
        "held_mb": "held MB",
        "of_floor": "CPU x floor",
    },
    "http_calls": {
        "name": "client",
        "median_us": "median µs",
        "cpu_us": "CPU µs",
        "of_aiohttp": "median x aiohttp",
        "calls_of_aiohttp": "calls/s x aiohttp",
    },
}


def write_tables(figures: Mapping[str, Mapping[str, Any]], page: Path) -> None:
    """Replace each table whose figure was measured: what stands between `<!-- bench:KEY -->` and `<!-- /bench -->`."""
    text = page.read_text(encoding="utf-8")
    page.write_text(_MARKED.sub(lambda found: _replaced(found, figures), text), encoding="utf-8")


def _replaced(found: re.Match[str], figures: Mapping[str, Mapping[str, Any]]) -> str:
    figure = figures.get(found["key"])
    if figure is None:
        return found[0]
    columns = TABLES[found["key"]]
    lines = [
        "| " + " | ".join(columns.values()) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(_cell(row.get(key)) for key in columns) + " |" for row in figure["rows"]),
    ]
    return found[1] + "\n".join(lines) + f"\n\nMeasured {figure['at'][:10]}.\n" + found[3]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"

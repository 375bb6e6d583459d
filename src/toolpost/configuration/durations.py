"""Durations as people write them: a number with a unit, such as `500ms`, `30s` or `7d`."""

from __future__ import annotations

import math
import re
from typing import Any, Literal

PATTERN = r"^\s*\d+(\.\d+)?\s*(ms|s|m|h|d)?\s*$"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_WRITTEN = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>ms|s|m|h|d)?\s*")


def parse_duration(value: Any, *, bare: Literal["ms", "s"] = "s") -> float:
    """The duration in seconds; `bare` is the unit of a number that names none."""
    seconds = _number(value) * _SECONDS[_unit(value) or bare]
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError("must be a duration longer than nothing, such as 500ms, 30s, 10m, 12h or 7d")
    return seconds


def _number(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return float(_written(value)["number"])


def _unit(value: Any) -> str | None:
    return None if isinstance(value, int | float) else _written(value)["unit"]


def _written(value: Any) -> re.Match[str]:
    match = _WRITTEN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a number with a unit, such as 500ms, 30s, 10m, 12h or 7d")
    return match

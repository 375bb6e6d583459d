"""Filters of events and runs, in the SQL that SQLite and PostgreSQL share."""

from __future__ import annotations

import re
from typing import Any

from toolpost.contracts.events import EventFilter, RunFilter, StoredEvent

_WILDCARD = re.compile(r"[*?\[]")
_LIKE_WILDCARD, _ESCAPED = re.compile(r"[%_\\]"), r"\\\g<0>"
_WITH_PREFIX = " AND tool_name >= :prefix AND tool_name <= :prefix || :highest"  # read from the index
_TEXT_COLUMNS = ("run_id", "tool_name", '"user"')
_NOT_COMPLETED = " AND status <> 'completed'"  # the condition of the index


def matches(event: StoredEvent, only: EventFilter) -> bool:
    """Return whether an event of a segment that may match has a code and a time of the filter."""
    return (
        (not only.codes or event.code in only.codes)
        and (only.since is None or event.at >= only.since)
        and (only.until is None or event.at <= only.until)
    )


def is_pattern(tool: str) -> bool:
    """Return whether the name of a tool contains wildcards."""
    return _WILDCARD.search(tool) is not None


def run_conditions(only: RunFilter, *, like_tool: str, has_text: str) -> str:
    """Return the conditions of runs.

    `like_tool` compares a name with the pattern `:tool`. `has_text` finds the text `:q` in a column, by its name.
    """
    sql = ""
    if only.tool is not None:
        sql += f"{_WITH_PREFIX} AND tool_name {like_tool}" if is_pattern(only.tool) else " AND tool_name = :tool"
    sql += ' AND "user" = :user' if only.user is not None else ""
    sql += " AND started_at >= :since" if only.since is not None else ""
    sql += " AND started_at <= :until" if only.until is not None else ""
    sql += " AND tool_name >= :source || '.' AND tool_name < :source || '/'" if only.source is not None else ""
    if only.q is not None:
        found = " OR ".join(has_text.format(column) for column in _TEXT_COLUMNS)
        sql += f" AND ({found})"
    if only.status is not None and only.status != "completed":
        sql += _NOT_COMPLETED
    return sql + (" AND status = :status" if only.status is not None else "")


def run_values(only: RunFilter) -> dict[str, Any]:
    """Return the parameters of `run_conditions`."""
    values = {name: getattr(only, name) for name in ("tool", "user", "since", "until", "status", "source")}
    prefix = "" if only.tool is None else _WILDCARD.split(only.tool)[0]
    text = None if only.q is None else f"%{_LIKE_WILDCARD.sub(_ESCAPED, only.q)}%"
    return {**values, "prefix": prefix, "highest": "\U0010ffff", "q": text}

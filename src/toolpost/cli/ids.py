"""Ids by how they begin, looked up in the database alone: for the shell to complete, and for people who type."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.principal import Principal

if TYPE_CHECKING:
    from pathlib import Path

    from toolpost.toolbox.box import Toolbox

Kind = Literal["question", "open question", "run", "run or call", "artifact"]

_BUSY_S = 0.2
_MOST = 50
_SHORTEST = 5  # `ask_` alone is no way to say which
_FEW = 3

_TABLES: dict[Kind, str] = {
    "question": "SELECT id, tenant, created_at AS at FROM pending",
    "open question": "SELECT id, tenant, created_at AS at FROM pending WHERE status = 'open'",
    "run": "SELECT run_id AS id, tenant, started_at AS at FROM runs",
    "run or call": "SELECT run_id AS id, tenant, started_at AS at FROM runs"
    " UNION SELECT root_call, tenant, started_at FROM runs",
    "artifact": "SELECT id, tenant, created_at AS at FROM artifacts",
}


def ids_from(folder: Path, kind: Kind, start: str, *, tenant: str) -> list[str]:
    """The ids of a tenant that begin so, the newest first; none where there is no database, or it cannot be read."""
    from toolpost.stores.database import open_readable
    from toolpost.stores.sqlite import DATABASE

    path = folder / DATABASE
    if not path.exists():
        return []
    sql = f"SELECT id FROM ({_TABLES[kind]}) WHERE tenant = ? AND substr(id, 1, ?) = ? ORDER BY at DESC LIMIT ?"  # noqa: S608 - constants
    try:
        with closing(open_readable(path, busy_s=_BUSY_S)) as db:
            rows = db.execute(sql, (tenant, len(start), start, _MOST)).fetchall()
    except sqlite3.Error:
        return []
    return [row[0] for row in rows]


def whole_id(box: Toolbox, kind: Kind, written: str, *, user: str) -> str:
    """The one id that begins as written; what begins none is handed on, for the command to say so."""
    folder = box.settings.data_dir
    if folder is None or len(written) < _SHORTEST:
        return written
    found = ids_from(folder, kind, written, tenant=Principal.parse(user).tenant)
    if written in found or not found:
        return written
    if len(found) == 1:
        return found[0]
    more = " and others" if len(found) > _FEW else ""
    raise ToolError(
        f"{written!r} is how several ids begin: {', '.join(found[:_FEW])}{more}; write more of it",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="id_ambiguous",
    )

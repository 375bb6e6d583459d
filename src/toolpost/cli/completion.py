"""Complete names and ids in the shell, and resolve abbreviated ids; reads files only and starts no source."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from toolpost.configuration.defaults import DATA_FOLDER, FILE_NAME
from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.schema.json_values import as_object, is_array, is_object

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.local_tools import LocalCatalog


_BUSY_S = 0.2
_MAX_IDS = 50
_MIN_PREFIX = 5  # `ask_` alone is no way to say which
_SHOWN_IDS = 3
_TABLES: dict[Kind, str] = {
    "pending action": "SELECT id, tenant, created_at AS at FROM pending",
    "open pending action": "SELECT id, tenant, created_at AS at FROM pending WHERE status = 'open'",
    "run": "SELECT run_id AS id, tenant, started_at AS at FROM runs",
    "run or call": "SELECT run_id AS id, tenant, started_at AS at FROM runs"
    " UNION SELECT root_call, tenant, started_at FROM runs",
    "artifact": "SELECT id, tenant, created_at AS at FROM artifacts",
    "key": "SELECT id, tenant, created_at AS at FROM caller_keys",
}

NAMES_FILE = "tool_names.json"
_BUILT_IN = ""  # stands for the source of tools that have none


def tool_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of the tools that the last command with each source saw."""
    cached_names = _read_names(_data_dir(ctx))
    return sorted({name for names in cached_names.values() for name in names if name.startswith(incomplete)})


def tool_words(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a list of tools and collections with commas between them."""
    before, comma, last = incomplete.rpartition(",")
    words = [*tool_names(ctx, last), *(name for name in _collection_names(ctx) if name.startswith(last))]
    return [f"{before}{comma}{word}" for word in words]


def _collection_names(ctx: typer.Context) -> list[str]:
    from toolpost.builtin.specs import COLLECTIONS

    own: Any = _configuration(ctx).get("collections")
    return sorted({*COLLECTIONS, *(own if is_object(own) else ())})


def source_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the names of the sources in the configuration."""
    return [name for name in _source_names(_configuration(ctx)) if name.startswith(incomplete)]


def preset_names(incomplete: str) -> list[str]:
    """Complete the names of the presets of `tools connect`."""
    from toolpost.connecting.presets import PACKAGES

    return [name for name in PACKAGES if name.startswith(incomplete)]


def open_pending_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of the tenant's open pending actions, the newest first."""
    return _ids(ctx, "open pending action", incomplete)


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of the tenant's runs, the newest first."""
    return _ids(ctx, "run", incomplete)


def artifact_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of the tenant's artifacts, the newest first."""
    return _ids(ctx, "artifact", incomplete)


def key_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the ids of the keys of the tenant's callers, the newest first."""
    return _ids(ctx, "key", incomplete)


def cache_tool_names(catalog: Toolbox | LocalCatalog, folder: Path | None, sources: Collection[str]) -> None:
    """Write the names of the current tools to the data folder for completion; those of absent `sources` stay."""
    if folder is None or not folder.is_dir():
        return
    seen: dict[str, list[str]] = {_BUILT_IN: [], **{state.name: list[str]() for state in catalog.report if state.ok}}
    for spec in catalog.registry.specs():
        seen.setdefault(spec.source or _BUILT_IN, []).append(spec.name)
    before = _read_names(folder)
    after = {name: names for name, names in {**before, **seen}.items() if name in sources or name == _BUILT_IN}
    if after != before:
        with suppress(OSError):  # only the shell misses it
            draft = folder / f".{NAMES_FILE}.{os.getpid()}"
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(after), encoding="utf-8")
            draft.replace(folder / NAMES_FILE)


def _read_names(folder: Path) -> dict[str, list[str]]:
    try:
        document: Any = json.loads((folder / NAMES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: [str(one) for one in names] for name, names in as_object(document).items() if is_array(names)}


def _ids(ctx: typer.Context, kind: Kind, incomplete: str) -> list[str]:
    return find_ids(_data_dir(ctx), kind, incomplete, tenant=_tenant(ctx))


def _tenant(ctx: typer.Context) -> str:
    try:
        return Principal.parse(str(ctx.params.get("user") or "")).tenant
    except ValueError:
        return LOCAL_TENANT


def _config_file(ctx: typer.Context) -> Path:
    return Path(str(ctx.params.get("config") or FILE_NAME)).absolute()


def _data_dir(ctx: typer.Context) -> Path:
    folder = _configuration(ctx).get("data_dir")
    return _config_file(ctx).parent / os.path.expandvars(folder if isinstance(folder, str) else DATA_FOLDER)


def _configuration(ctx: typer.Context) -> dict[str, Any]:
    """Parse the configuration file without validation; an unreadable file is empty."""
    import yaml

    try:
        data: Any = yaml.safe_load(_config_file(ctx).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return as_object(data)


def _source_names(data: dict[str, Any]) -> list[str]:
    tools: Any = data.get("tools")
    servers: Any = tools.get("mcpServers", tools.get("mcp_servers")) if is_object(tools) else None
    entries = [entry for part in (data.get("sources"), servers) if is_array(part) for entry in part]
    return [str(entry["name"]) for entry in entries if is_object(entry) and entry.get("name")]


Kind = Literal["pending action", "open pending action", "run", "run or call", "artifact", "key"]


def find_ids(folder: Path, kind: Kind, start: str, *, tenant: str) -> list[str]:
    """Return the ids of a tenant with a prefix, the newest first; none where no database can be read."""
    import sqlite3

    from toolpost.stores.database import open_readable
    from toolpost.stores.sqlite import DATABASE

    path = folder / DATABASE
    if not path.exists():
        return []
    sql = f"SELECT id FROM ({_TABLES[kind]}) WHERE tenant = ? AND substr(id, 1, ?) = ? ORDER BY at DESC LIMIT ?"  # noqa: S608 - constants
    try:
        with closing(open_readable(path, busy_s=_BUSY_S)) as db:
            rows = db.execute(sql, (tenant, len(start), start, _MAX_IDS)).fetchall()
    except sqlite3.Error:
        return []
    return [row[0] for row in rows]


def resolve_id(box: Toolbox, kind: Kind, text: str, *, user: str) -> str:
    """Return the only id with this prefix; the prefix itself where none has it, an error where several have."""
    folder = box.settings.data_dir
    if folder is None or len(text) < _MIN_PREFIX:
        return text
    ids = find_ids(folder, kind, text, tenant=Principal.parse(user).tenant)
    if text in ids or not ids:
        return text
    if len(ids) == 1:
        return ids[0]
    more = " and others" if len(ids) > _SHOWN_IDS else ""
    raise ToolError(
        f"{text!r} is how several ids begin: {', '.join(ids[:_SHOWN_IDS])}{more}; write more of it",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="id_ambiguous",
    )

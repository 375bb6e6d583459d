"""Complete names and ids in the shell, and resolve abbreviated ids; reads files only and starts no source."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolpost.configuration.defaults import DATA_FOLDER, FILE_NAME
from toolpost.contracts.errors import ConfigError, ErrorCategory, ToolError
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.schema.json_values import as_object, is_array, is_object

if TYPE_CHECKING:
    from toolpost.contracts.storage import Cipher, IdKind
    from toolpost.toolbox.box import Toolbox
    from toolpost.toolbox.local_tools import LocalCatalog


_MAX_IDS = 50
_MIN_PREFIX = 5  # the prefix `ask_` alone does not identify an action
_SHOWN_IDS = 3

NAMES_FILE = "tool_names.json"
_BUILT_IN = ""  # key of tools without a source


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


def _no_cipher(_folder: Path) -> Cipher:
    """Return a cipher that fails: ids are not encrypted, so completion needs no key."""
    from toolpost.stores.encryption import NoCipher

    return NoCipher()


def _complete_ids(kind: IdKind) -> Callable[[typer.Context, str], list[str]]:
    """Return the completion of the tenant's IDs of one kind, newest first."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        from toolpost.stores.registry import StoreOptions, database_of, find_backend

        database, folder = _configuration(ctx).get("database"), _data_dir(ctx)
        named = database_of(database if isinstance(database, str) else None, folder)
        options = StoreOptions(named, folder, _no_cipher)
        try:
            return find_backend(named).find_ids(options, kind, incomplete, tenant=_tenant(ctx), limit=_MAX_IDS)
        except ConfigError:
            return []

    return complete


open_pending_ids = _complete_ids("open_pending")
run_ids = _complete_ids("run")
artifact_ids = _complete_ids("artifact")
key_ids = _complete_ids("caller_key")


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


async def resolve_id(box: Toolbox, kind: IdKind, text: str, *, user: str) -> str:
    """Return the only id with this prefix; the prefix itself where none has it, an error where several have."""
    if len(text) < _MIN_PREFIX:
        return text
    ids = await box.store.find_ids(kind, text, tenant=Principal.parse(user).tenant, limit=_MAX_IDS)
    if text in ids or not ids:
        return text
    if len(ids) == 1:
        return ids[0]
    more = " and others" if len(ids) > _SHOWN_IDS else ""
    raise ToolError(
        f"{text!r} is ambiguous: it matches {', '.join(ids[:_SHOWN_IDS])}{more}. Use a longer prefix",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code="id_ambiguous",
    )

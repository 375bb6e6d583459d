"""Shell completion of names and ids, read from files alone: no source is started for it, and nothing is made."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from toolpost.cli.ids import Kind, ids_from
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from toolpost.toolbox.box import Toolbox

NAMES_FILE = "tool_names.json"
_FILE_NAME = "toolpost.yaml"  # `configuration.loading` says so too, and takes longer to import than a shell should wait
_BUILT_IN = ""  # stands for the source of tools that have none


def tool_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tools that the last command with each source saw."""
    kept = _kept(_data_dir(ctx))
    return sorted({name for names in kept.values() for name in names if name.startswith(incomplete)})


def source_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """The sources of the configuration."""
    return [name for name in _names_of(_configuration(ctx)) if name.startswith(incomplete)]


def preset_names(incomplete: str) -> list[str]:
    """The presets that `tools connect` knows."""
    from toolpost.connecting.presets import PACKAGES

    return [name for name in PACKAGES if name.startswith(incomplete)]


def open_questions(ctx: typer.Context, incomplete: str) -> list[str]:
    """The questions of the tenant that wait for an answer, the newest first."""
    return _ids(ctx, "open question", incomplete)


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The runs of the tenant, the newest first."""
    return _ids(ctx, "run", incomplete)


def artifact_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """The artifacts of the tenant, the newest first."""
    return _ids(ctx, "artifact", incomplete)


def remember_names(box: Toolbox) -> None:
    """Keep the names of the tools that are there now, for the shell to complete; those of absent sources stay."""
    folder = box.settings.data_dir
    if folder is None:
        return
    seen: dict[str, list[str]] = {_BUILT_IN: [], **{state.name: list[str]() for state in box.report if state.ok}}
    for spec in box.registry.specs():
        seen.setdefault(spec.source or _BUILT_IN, []).append(spec.name)
    before, configured = _kept(folder), {source.name for source in box.settings.all_sources()}
    after = {name: names for name, names in {**before, **seen}.items() if name in configured or name == _BUILT_IN}
    if after != before:
        with suppress(OSError):  # only the shell misses it
            draft = folder / f".{NAMES_FILE}.{os.getpid()}"
            draft.write_text(json.dumps(after), encoding="utf-8")
            draft.replace(folder / NAMES_FILE)


def _kept(folder: Path) -> dict[str, list[str]]:
    try:
        kept: Any = json.loads((folder / NAMES_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    found: dict[str, Any] = kept if is_object(kept) else {}
    return {name: [str(one) for one in names] for name, names in found.items() if is_array(names)}


def _ids(ctx: typer.Context, kind: Kind, incomplete: str) -> list[str]:
    return ids_from(_data_dir(ctx), kind, incomplete, tenant=_tenant(ctx))


def _tenant(ctx: typer.Context) -> str:
    try:
        return Principal.parse(str(ctx.params.get("user") or "")).tenant
    except ValueError:
        return LOCAL_TENANT


def _file(ctx: typer.Context) -> Path:
    return Path(str(ctx.params.get("config") or _FILE_NAME)).absolute()


def _data_dir(ctx: typer.Context) -> Path:
    written = _configuration(ctx).get("data_dir")
    return _file(ctx).parent / os.path.expandvars(written if isinstance(written, str) else ".toolpost")


def _configuration(ctx: typer.Context) -> dict[str, Any]:
    """The file as it is written: what is wrong with it is for the command to say."""
    import yaml

    try:
        data: Any = yaml.safe_load(_file(ctx).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return data if is_object(data) else {}


def _names_of(data: dict[str, Any]) -> list[str]:
    tools: Any = data.get("tools")
    servers: Any = tools.get("mcpServers", tools.get("mcp_servers")) if is_object(tools) else None
    entries = [entry for part in (data.get("sources"), servers) if is_array(part) for entry in part]
    return [str(entry["name"]) for entry in entries if is_object(entry) and entry.get("name")]

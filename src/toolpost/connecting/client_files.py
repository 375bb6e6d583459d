"""MCP servers as the ecosystem's own files list them: `.mcp.json`, and those of desktop clients and editors.

Reading starts nothing and writes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from toolpost.configuration.secret_extraction import Concealer, Variable
from toolpost.connecting.lenient_json import read_lenient_json, unreadable
from toolpost.connecting.placeholders import Placeholders
from toolpost.connecting.server_entry import ServerEntry, UnfitServerError
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.schema.jsontypes import is_array, is_object

# Where servers are listed, by key; a file has one of them.
NO_SERVERS = "no_servers"
_TABLES = ("mcpServers", "servers", "context_servers")
# Folders that a program makes in a project for its own files.
_PROGRAM_FOLDERS = frozenset({".cursor", ".vscode", ".gemini", ".zed", ".roo", ".windsurf", ".claude"})
# Files that list servers and nothing else, so that any other key in them was meant for us too.
_LISTS_ALONE = frozenset({".mcp.json", "mcp.json", "mcp_config.json", "mcp-config.json"})
_IN_PROJECT = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", ".gemini/settings.json", ".zed/settings.json")
_IN_HOME = (
    ".claude.json",
    ".cursor/mcp.json",
    ".codeium/windsurf/mcp_config.json",
    ".gemini/settings.json",
    ".copilot/mcp-config.json",
    "Library/Application Support/Claude/claude_desktop_config.json",
    "Library/Application Support/Code/User/mcp.json",
)
_IN_CONFIG = ("Claude/claude_desktop_config.json", "Code/User/mcp.json", "zed/settings.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a file lists: sources that can be added, what to say about them, and the variables that they now need."""

    sources: tuple[ExternalToolConfig, ...]
    notes: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()


def _no_servers(message: str) -> ConfigError:
    """The error for a file that may be in order, but lists no servers."""
    return ConfigError(message, code=NO_SERVERS)


def read_servers(path: Path, *, environ: Mapping[str, str] | None = None) -> Imported:
    """Read the servers of a file; ConfigError says where it is broken or that it lists none."""
    document = read_lenient_json(path)
    if not is_object(document):
        raise _no_servers(f"{path} holds no MCP servers: it is not a JSON object")
    key, servers = _table(path, document)
    reader = _Reader(path.absolute(), document, os.environ if environ is None else environ)
    reader.look_around(key, document)
    sources = tuple(reader.sources(servers))
    return Imported(sources=sources, notes=tuple(reader.notes()), variables=tuple(reader.variables()))


def usual_places(folder: Path, *, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The files that programs keep their servers in, for a project's folder and for this person, if they exist."""
    known = os.environ if environ is None else environ
    home = Path(known.get("HOME") or known.get("USERPROFILE") or folder)
    settings = [Path(known.get("XDG_CONFIG_HOME") or home / ".config"), Path(known.get("APPDATA") or home / ".config")]
    candidates = [folder / name for name in _IN_PROJECT] + [home / name for name in _IN_HOME]
    candidates += [place / name for place in settings for name in _IN_CONFIG]
    return [path for path in dict.fromkeys(candidates) if path.is_file()]


def fit_name(name: str) -> str:
    """A name that a source can have, as close as possible to the given one."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")
    return fit or "server"


def _table(path: Path, document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    for key, holder in [*((key, document) for key in _TABLES), ("servers", document.get("mcp"))]:
        found = holder.get(key) if is_object(holder) else None
        if is_object(found):
            return key, found
        if found is not None:
            raise unreadable(f"{path}: {key!r} must map names to servers, as in {{{key!r}: {{'name': {{...}}}}}}")
    raise _no_servers(f"{path} holds no MCP servers: it has none of the keys {', '.join(_TABLES)}")


class _Reader:
    """Goes through the servers of one file."""

    def __init__(self, path: Path, document: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._path = path
        self._folder = _project_folder(path)
        self._placeholders = Placeholders(
            folder=self._folder,
            inputs=_inputs(document),
            environ=environ,
            bare=path.parent.name == ".gemini",  # the one program that also reads `$NAME`
        )
        self._concealer = Concealer(environ)
        self._notes: list[str] = []

    def look_around(self, table: str, document: Mapping[str, Any]) -> None:
        """Tell of what stands beside the servers."""
        beside = [key for key in document if key not in {table, "inputs", "$schema"}]
        if beside and self._path.name in _LISTS_ALONE:
            self._notes.append(f"{_listed(beside)} beside {table!r} left out: nothing here knows what it means")
        projects = document.get("projects")
        own = [name for name, about in projects.items() if _has_servers(about)] if is_object(projects) else []
        if own:
            self._notes.append(f"the servers that only {_listed(own)} has are left out")

    def sources(self, servers: Mapping[str, Any]) -> Iterator[ExternalToolConfig]:
        taken: set[str] = set()
        for written, entry in servers.items():
            name = self._name(written, taken)
            try:
                yield self._source(name, entry)
            except UnfitServerError as unfit:
                self._notes.append(f"{written}: left out, because {unfit}")
                continue
            taken.add(name)

    def notes(self) -> list[str]:
        return [*self._notes, *self._placeholders.notes]

    def variables(self) -> list[Variable]:
        return [*self._concealer.variables, *self._placeholders.variables]

    def _name(self, written: str, taken: set[str]) -> str:
        fit = fit_name(written)
        name, number = fit, 1
        while name in taken:
            number += 1
            name = f"{fit}-{number}"
        if name != written:
            self._notes.append(f"{written}: called {name} here, because names are letters, digits, _ and -, and differ")
        return name

    def _source(self, name: str, entry: Any) -> ExternalToolConfig:
        if not is_object(entry):
            raise UnfitServerError("it is not a JSON object")
        server = ServerEntry(name, entry, self._placeholders, self._concealer)
        source = server.to_config(self._folder)
        self._notes.extend(f"{name}: {note}" for note in server.notes)
        return source


def _project_folder(path: Path) -> Path:
    """What `${workspaceFolder}` stands for, and what relative paths start from."""
    return path.parent.parent if path.parent.name in _PROGRAM_FOLDERS else path.parent


def _inputs(document: Mapping[str, Any]) -> dict[str, Any]:
    listed = document.get("inputs")
    known = [item for item in listed if is_object(item)] if is_array(listed) else []
    return {str(item.get("id")): item for item in known}


def _has_servers(about: Any) -> bool:
    return is_object(about) and bool(cast("Mapping[str, Any]", about).get("mcpServers"))


def _listed(names: list[str]) -> str:
    return ", ".join(map(repr, names))

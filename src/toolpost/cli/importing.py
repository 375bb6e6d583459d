"""Servers of an ecosystem file, shown, agreed to and written; started only where a person wants to see their tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolpost.cli.confirmation import at_a_terminal, confirm
from toolpost.cli.output import Output
from toolpost.cli.proposal import beside, document, needed, row, unpinned, variable_documents, write
from toolpost.cli.session import rehearsal
from toolpost.cli.source_trouble import trouble
from toolpost.cli.trusting import offer_trust, write_trust
from toolpost.configuration.file_editor import config_path, load_leniently, snippet
from toolpost.configuration.loading import environment, load_settings, with_only
from toolpost.connecting.client_files import NO_SERVERS, ImportedServers, read_servers, usual_places
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taking:
    """What one file would add to another."""

    file: Path
    path: Path
    new: list[ExternalToolConfig]
    skipped: list[str]
    imported: ImportedServers
    trusted: list[str] = field(default_factory=list[str])

    def notes(self) -> list[str]:
        there = [f"{name}: left out, because {self.path.name} has a source of that name" for name in self.skipped]
        return [*self.imported.notes, *there, *unpinned(self.new)]

    def to_dict(self, status: str) -> dict[str, Any]:
        environ = environment(self.path.parent)
        missing = needed(self.new, environ)
        return {
            "status": status,
            "file": str(self.file),
            "config": str(self.path),
            "written": status != "dry_run" and bool(self.new),
            "sources": [document(source) for source in self.new],
            "skipped": self.skipped,
            "variables": variable_documents(missing, self.imported.variables, environ),
            "notes": self.notes(),
            "trusted": self.trusted,
            "error": None,
        }


def list_found(folder: Path, output: Output) -> int:
    """List the files that hold servers, in the working folder and in the usual places of this person."""
    found = [_look(path) for path in usual_places(folder)]
    listed = [item for item in found if item["servers"] or item["error"]]
    if output.as_json:
        output.document(listed)
        return 0
    if not listed:
        output.note("No file with MCP servers in this folder or in the usual places; name one: `toolpost import FILE`.")
        return 0
    output.table(["File", "Servers"], [(item["file"], item["error"] or ", ".join(item["servers"])) for item in listed])
    output.note("`toolpost import FILE` takes the servers of one over.")
    return 0


async def take_over(file: Path, config: Path | None, output: Output, *, yes: bool, trust: bool, dry_run: bool) -> int:
    """Show what a file lists and, if that is agreed to, write it; returns the code to leave with."""
    taking = _taking(file, config_path(config))
    _show(taking, output)
    if dry_run:
        if taking.new and not output.as_json:
            output.text(snippet(taking.new).rstrip())
        return _leave(taking, output, "dry_run")
    if taking.new:
        if not confirm(f"Write {_count(taking.new)} to {taking.path.name}?", yes=yes):
            raise ToolError("nothing was written, because nobody agreed", code="not_confirmed")
        write(taking.new, taking.path, output, secrets={})
        _tell_what_next(taking, output)
        if trust or (not yes and _wants_to_see(taking, output)):
            return await _trusted(taking, output, trust=trust, yes=yes)
    return _leave(taking, output, "ok")


def _wants_to_see(taking: _Taking, output: Output) -> bool:
    """Whether a person wants to know now what the servers' tools claim; what is not set keeps them from starting."""
    if output.as_json or needed(taking.new, environment(taking.path.parent)) or not at_a_terminal():
        return False
    return confirm("Connect them once, to see what their tools claim? This starts the commands above.", yes=False)


async def _trusted(taking: _Taking, output: Output, *, trust: bool, yes: bool) -> int:
    """Connect the new sources, show what each claims, and write down which are trusted."""
    if missing := needed(taking.new, environment(taking.path.parent)):
        unset = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        output.note(f"None of them is trusted, because {unset}; write trust: true yourself, and run `toolpost lock`.")
        return _leave(taking, output, "failed") or 1
    loaded = load_settings(taking.path)
    names = {source.name for source in taking.new if source.enabled}
    failed: list[str] = []
    async with rehearsal(with_only(loaded, names), output) as box:
        for state in box.report:
            if not state.ok:
                failed.append(state.name)
                output.note(f"{state.name!r} is not trusted, because it cannot be connected: {trouble(state, box)}")
                continue
            specs = [spec for spec in box.registry.specs() if spec.source == state.name]
            if offer_trust(state.name, specs, output, trust=trust, yes=yes):
                pins = box.sources.pins(state.name)
                write_trust(state.name, taking.path, pins, loaded.settings.lock, output, secrets={})
                taking.trusted.append(state.name)
    return _leave(taking, output, "failed" if failed else "ok") or int(bool(failed))


def _look(path: Path) -> dict[str, Any]:
    try:
        names = [source.name for source in read_servers(path).sources]
    except ConfigError as error:
        empty = error.error_code == NO_SERVERS  # the settings of a program, which may well list none
        return {"file": str(path), "servers": [], "error": None if empty else str(error)}
    return {"file": str(path), "servers": names, "error": None}


def _taking(file: Path, path: Path) -> _Taking:
    imported = read_servers(file)
    settings = load_leniently(path, os.environ)
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    return _Taking(
        file=file,
        path=path,
        new=[beside(source, path) for source in imported.sources if source.name not in taken],
        skipped=[source.name for source in imported.sources if source.name in taken],
        imported=imported,
    )


def _show(taking: _Taking, output: Output) -> None:
    if taking.new and not output.as_json:
        output.table(["Source", "Command or URL", "Variables, headers", "Enabled"], map(row, taking.new))
    for note in taking.notes():
        output.note(note)
    if not taking.new:
        output.note(f"There is nothing in {taking.file} to add to {taking.path.name}.")


def _tell_what_next(taking: _Taking, output: Output) -> None:
    output.note(f"{_count(taking.new)} written to {taking.path.name}; nothing was started.")
    told = {variable.name: variable.stands_for for variable in taking.imported.variables}
    environ = environment(taking.path.parent)
    for name in needed(taking.new, environ):
        output.note(f"Set {name}: {told.get(name, f'{taking.file.name} refers to it')}.")
    lacking = [source.name for source in taking.new if needed([source], environ)]
    if lacking:
        output.note(
            f"Until then every command goes on without {', '.join(lacking)}; .env beside the file will do, too."
        )
    else:
        output.note("`toolpost config check --connect` connects them.")


def _leave(taking: _Taking, output: Output, status: str) -> int:
    """Failed is a file that lists servers of which none can be used."""
    if output.as_json:
        output.document(taking.to_dict(status))
    return int(bool(taking.imported.notes) and not taking.imported.sources)


def _count(sources: Sequence[ExternalToolConfig]) -> str:
    return "1 source" if len(sources) == 1 else f"{len(sources)} sources"

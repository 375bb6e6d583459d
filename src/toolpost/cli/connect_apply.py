"""Write new sources to the configuration file after a confirmation, and connect each once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolpost.catalog.lock import Lock, Pin
from toolpost.catalog.specs import describe_claims, read_claims, trust_loosens
from toolpost.cli.commands import CommonOptions
from toolpost.cli.connect_plan import (
    SourcePlan,
    describe_source,
    detect_source,
    is_file_source,
    is_remote,
    missing_requirements,
    needs_detection,
    relative_to_config,
    source_document,
    source_row,
    unset_variables,
    variable_documents,
    variable_values,
    warn_unpinned,
    write_sources,
)
from toolpost.cli.output import Output, show_tools
from toolpost.cli.prompts import confirm, is_interactive, require_confirmation
from toolpost.cli.runner import describe_failure, every_source, open_in_memory, progress_sinks
from toolpost.configuration.file_editor import config_path, load_leniently, mark_trusted, snippet
from toolpost.configuration.loading import LoadedSettings, environment, load_settings, with_only
from toolpost.configuration.settings import Settings
from toolpost.connecting.client_files import NO_SERVERS, ImportedServers, read_servers, usual_places
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError, ToolConnectionError, ToolError
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.redaction import Redactor


async def connect_source(
    plan: SourcePlan | ToolError,
    config: Path | None,
    output: Output,
    *,
    yes: bool,
    trust: bool,
    force: bool,
    dry_run: bool,
) -> int:
    """Show a plan, ask for confirmation, write the source and connect it once; return the exit code."""
    if isinstance(plan, ToolError):
        raise plan
    path = config_path(config)
    if needs_detection(plan.source):
        _refuse_unset(plan, path)
    plan = await detect_source(plan, output)
    source = _with_relative_paths(plan.source, path)
    _refuse_taken(source.name, load_leniently(path, os.environ), path)
    _show_plan(plan, source, path, output)
    if dry_run:
        return _finish(output, plan, path, status="dry_run")
    _refuse_unset(plan, path)
    _refuse_missing_requirements(plan.source, force=force)
    require_confirmation(f"Write this to {path.name}, and connect it once?", yes=yes)
    settings = write_sources([source], path, output, secrets=plan.secrets())
    _report_variables(plan, path, output)
    return await _connect_once(plan, settings, path, output, trust=trust, yes=yes)


def _refuse_taken(name: str, settings: Settings | None, path: Path) -> None:
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    if name in taken:
        raise ToolError(f"{path.name} has a source named {name!r} already; give another name with --name", code="taken")


def _refuse_unset(plan: SourcePlan, path: Path) -> None:
    """Raise a ToolError when the source refers to variables that are not set."""
    # Every other command would leave such a source out from then on.
    missing = unset_variables([plan.source], {**environment(path.parent), **plan.secrets()})
    if missing:
        unset = f"variables that are not set: {', '.join(missing)}; set them first"
        advice = "" if is_remote(plan.source) else f", or give --env {missing[0]}=..."
        raise ToolError(f"{unset}{advice}", code="variable_unset")


def _refuse_missing_requirements(source: ExternalToolConfig, *, force: bool) -> None:
    """Raise a ToolError when the source is known not to start, unless `force` is set."""
    missing = list(missing_requirements(source, os.environ))
    if missing and not force:
        message = f"{source.name!r} cannot start, and nothing was written: {'; '.join(missing)}"
        raise ToolError(f"{message}. With --force it is written all the same.", code="cannot_start")


def _with_relative_paths(source: ExternalToolConfig, path: Path) -> ExternalToolConfig:
    """Return the source with paths below the folder of the configuration relative to it."""
    if not is_file_source(source):
        return relative_to_config(source, path)
    file = Path(os.path.abspath(Path(source.connection).expanduser()))  # noqa: PTH100 - links are there for a reason
    written = f"./{file.relative_to(path.parent)}" if file.is_relative_to(path.parent) else str(file)
    return source.model_copy(update={"connection": written})


def _show_plan(plan: SourcePlan, source: ExternalToolConfig, path: Path, output: Output) -> None:
    """Show what is about to be written; on stderr where stdout is for JSON."""
    lines = [*describe_source(plan.source), f"to be written to {path}", snippet([source]).rstrip()]
    output.announce("\n".join(lines))
    for note in plan.notes:
        output.note(note)


def _report_variables(plan: SourcePlan, path: Path, output: Output) -> None:
    for variable in plan.variables:
        output.note(f"A secret was kept out of {path.name}: {variable.stands_for}. Set {variable.name} to it.")
    if unset_variables([plan.source], environment(path.parent)):
        output.note(f"Until then every command goes on without {plan.source.name}; .env beside the file will do, too.")


async def _connect_once(
    plan: SourcePlan, settings: Settings, path: Path, output: Output, *, trust: bool, yes: bool
) -> int:
    """Connect this source alone without a data folder, show its tools, and ask whether it is trusted."""
    name, redactor = plan.source.name, Redactor(variable_values(plan))
    loaded = LoadedSettings(settings=_only_source(settings, name), path=path, secrets=frozenset(variable_values(plan)))
    async with every_source(loaded, progress_sinks(output)) as box:
        specs = [spec for spec in box.registry.specs() if spec.source == name]
        error = next(
            (describe_failure(state, box) for state in box.report if state.name == name and not state.ok), None
        )
        problems = [redactor.text(problem) for problem in box.sources.problems]
        pins = box.sources.pins(name)
    for problem in problems:
        output.note(problem)
    if error is not None:
        return _report_failure(plan, redactor.text(error), path, output)
    if not output.as_json:
        show_tools(specs, output)
    trusted = _ask_trust(name, specs, output, trust=trust, yes=yes)
    if trusted:
        _write_trust(name, path, pins, settings.lock, output, secrets=plan.secrets())
    return _finish(output, plan, path, status="ok", specs=specs, trusted=trusted)


def _only_source(settings: Settings, name: str) -> Settings:
    return settings.model_copy(
        update={
            "data_dir": None,
            "builtins": "none",
            "collections": {},
            "sources": [source for source in settings.sources if source.name == name],
            "tools": settings.tools.model_copy(update={"mcp_servers": []}),
        }
    )


def _report_failure(plan: SourcePlan, error: str, path: Path, output: Output) -> int:
    output.note(f"{plan.source.name!r} is in {path.name} now, but it cannot be connected: {error}")
    options = CommonOptions(None if path == config_path(None) else path)
    output.note(
        f"`toolpost config check --connect{options}` tries again, "
        f"`toolpost tools disconnect {plan.source.name}{options}` takes it out."
    )
    return _finish(output, plan, path, status="failed", error=ToolConnectionError(error))


def _finish(
    output: Output,
    plan: SourcePlan,
    path: Path,
    *,
    status: str,
    specs: Sequence[ToolSpec] = (),
    trusted: bool = False,
    error: ToolError | None = None,
) -> int:
    if output.as_json:
        environ = environment(path.parent)
        output.document(
            {
                "status": status,
                "config": str(path),
                "written": status != "dry_run",
                "source": {**source_document(plan.source), "auth_type": plan.source.auth_type.value},
                "variables": variable_documents(unset_variables([plan.source], environ), plan.variables, environ),
                "notes": list(plan.notes),
                "tools": [spec.to_dict() for spec in specs],
                "claims": [{"tool": spec.name, "claims": describe_claims(read_claims(spec))} for spec in specs],
                "trusted": trusted,
                "error": None if error is None else error.to_dict(),
            }
        )
    return int(status == "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportPlan:
    """Sources that a file of another program would add to the configuration."""

    file: Path
    path: Path
    new: list[ExternalToolConfig]
    skipped: list[str]
    imported: ImportedServers
    trusted: list[str] = field(default_factory=list[str])

    def notes(self) -> list[str]:
        there = [f"{name}: left out, because {self.path.name} has a source of that name" for name in self.skipped]
        return [*self.imported.notes, *there, *warn_unpinned(self.new)]

    def to_dict(self, status: str) -> dict[str, Any]:
        environ = environment(self.path.parent)
        missing = unset_variables(self.new, environ)
        return {
            "status": status,
            "file": str(self.file),
            "config": str(self.path),
            "written": status != "dry_run" and bool(self.new),
            "sources": [source_document(source) for source in self.new],
            "skipped": self.skipped,
            "variables": variable_documents(missing, self.imported.variables, environ),
            "notes": self.notes(),
            "trusted": self.trusted,
            "error": None,
        }


def list_importable(folder: Path, output: Output) -> int:
    """List the files that hold servers, in the working folder and in the usual places of other programs."""
    found = [_list_servers(path) for path in usual_places(folder)]
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


async def import_file(file: Path, config: Path | None, output: Output, *, yes: bool, trust: bool, dry_run: bool) -> int:
    """Show the servers of a file and, after a confirmation, write them; return the exit code."""
    plan = _plan_import(file, config_path(config))
    _show_import(plan, output)
    if dry_run:
        if plan.new and not output.as_json:
            output.text(snippet(plan.new).rstrip())
        return _finish_import(plan, output, "dry_run")
    if plan.new:
        require_confirmation(f"Write {_count(plan.new)} to {plan.path.name}?", yes=yes)
        write_sources(plan.new, plan.path, output, secrets={})
        _report_next_steps(plan, output)
        if trust or (not yes and _ask_connect(plan, output)):
            return await _trust_imported(plan, output, trust=trust, yes=yes)
    return _finish_import(plan, output, "ok")


def _ask_connect(plan: _ImportPlan, output: Output) -> bool:
    """Ask whether the new sources are connected now; False without a terminal or with unset variables."""
    if output.as_json or unset_variables(plan.new, environment(plan.path.parent)) or not is_interactive():
        return False
    return confirm("Connect them once, to see what their tools claim? This starts the commands above.", yes=False)


async def _trust_imported(plan: _ImportPlan, output: Output, *, trust: bool, yes: bool) -> int:
    """Connect the new sources, show the claims of each, and write which are trusted."""
    if missing := unset_variables(plan.new, environment(plan.path.parent)):
        unset = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        output.note(f"None of them is trusted, because {unset}; write trust: true yourself, and run `toolpost lock`.")
        return _finish_import(plan, output, "failed") or 1
    loaded = load_settings(plan.path)
    names = {source.name for source in plan.new if source.enabled}
    failed: list[str] = []
    async with open_in_memory(with_only(loaded, names), output) as box:
        for state in box.report:
            if not state.ok:
                failed.append(state.name)
                output.note(
                    f"{state.name!r} is not trusted, because it cannot be connected: {describe_failure(state, box)}"
                )
                continue
            specs = [spec for spec in box.registry.specs() if spec.source == state.name]
            if _ask_trust(state.name, specs, output, trust=trust, yes=yes):
                pins = box.sources.pins(state.name)
                _write_trust(state.name, plan.path, pins, loaded.settings.lock, output, secrets={})
                plan.trusted.append(state.name)
    return _finish_import(plan, output, "failed" if failed else "ok") or int(bool(failed))


def _list_servers(path: Path) -> dict[str, Any]:
    try:
        names = [source.name for source in read_servers(path).sources]
    except ConfigError as error:
        empty = error.error_code == NO_SERVERS  # the settings of a program, which may well list none
        return {"file": str(path), "servers": [], "error": None if empty else str(error)}
    return {"file": str(path), "servers": names, "error": None}


def _plan_import(file: Path, path: Path) -> _ImportPlan:
    imported = read_servers(file)
    settings = load_leniently(path, os.environ)
    taken = {source.name for source in settings.all_sources()} if settings else set[str]()
    return _ImportPlan(
        file=file,
        path=path,
        new=[relative_to_config(source, path) for source in imported.sources if source.name not in taken],
        skipped=[source.name for source in imported.sources if source.name in taken],
        imported=imported,
    )


def _show_import(plan: _ImportPlan, output: Output) -> None:
    if plan.new and not output.as_json:
        output.table(["Source", "Command or URL", "Variables, headers", "Enabled"], map(source_row, plan.new))
    for note in plan.notes():
        output.note(note)
    if not plan.new:
        output.note(f"There is nothing in {plan.file} to add to {plan.path.name}.")


def _report_next_steps(plan: _ImportPlan, output: Output) -> None:
    output.note(f"{_count(plan.new)} written to {plan.path.name}; nothing was started.")
    meanings = {variable.name: variable.stands_for for variable in plan.imported.variables}
    environ = environment(plan.path.parent)
    for name in unset_variables(plan.new, environ):
        output.note(f"Set {name}: {meanings.get(name, f'{plan.file.name} refers to it')}.")
    lacking = [source.name for source in plan.new if unset_variables([source], environ)]
    if lacking:
        output.note(
            f"Until then every command goes on without {', '.join(lacking)}; .env beside the file will do, too."
        )
    else:
        output.note("`toolpost config check --connect` connects them.")


def _finish_import(plan: _ImportPlan, output: Output, status: str) -> int:
    """Print the document of an import; the code is 1 for a file none of whose servers can be used."""
    if output.as_json:
        output.document(plan.to_dict(status))
    return int(bool(plan.imported.notes) and not plan.imported.sources)


def _count(sources: Sequence[ExternalToolConfig]) -> str:
    return "1 source" if len(sources) == 1 else f"{len(sources)} sources"


def _ask_trust(name: str, specs: Sequence[ToolSpec], output: Output, *, trust: bool, yes: bool) -> bool:
    """Show the claims of a source about its tools, and return whether a person trusts them."""
    loosened = [spec for spec in specs if trust_loosens(read_claims(spec))]
    if loosened:
        _show_claims(name, specs, output)
    if trust:
        return True
    if not loosened:
        return False
    if yes or not is_interactive():
        message = f"{name} is not trusted: what it claims lets no call run unasked."
        output.note(f"{message} `trust: true` in the configuration, or --trust here, takes its word.")
        return False
    output.status.clear()
    return confirm(f"Trust {name}? Then these claims count, and its tools are pinned as they are now.", yes=False)


def _show_claims(name: str, specs: Sequence[ToolSpec], output: Output) -> None:
    """Show the claims of a source about each of its tools."""
    rows = [
        (spec.name, describe_claims(read_claims(spec)) or "nothing", spec.description.partition("\n")[0])
        for spec in specs
    ]
    if output.as_json:
        output.note("\n".join([f"{name} claims of its tools:", *(f"  {tool}: {claims}" for tool, claims, _ in rows)]))
    else:
        output.table(["Tool", f"{name} claims that it", "Description"], rows)


def _write_trust(
    name: str, path: Path, pins: dict[str, Pin], lock: Path | None, output: Output, *, secrets: Mapping[str, str]
) -> None:
    """Write `trust: true` to the configuration, and the pins of the tools to the lock file."""
    mark_trusted(path, name, environ={**os.environ, **secrets})
    if lock is None:
        output.note(f"{name} is trusted in {path.name}; `lock: null` there pins nothing.")
        return
    kept = Lock(lock)
    kept.write({**kept.sources, name: pins})
    output.note(f"{name} is trusted in {path.name}; its tools are pinned in {lock.name}, commit both.")
